//! Threads that open frames, and do what comes of them, while one thread keeps the order.
//!
//! The frames on their way are bounded: a new one is asked for only when another is done with.

use super::ArchiveError;
use super::framed::Framed;
use super::frames::Tar;
use super::reader::opener;
use crate::worker_pool::WorkerPool;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// How many frames per worker are on their way at once.
const PER_WORKER: usize = 6;

/// How much is done at once, and how it is ended.
#[derive(Debug)]
pub(super) struct FrameWorkers {
    workers: NonZeroUsize,
    cancel: Arc<AtomicBool>,
}

impl FrameWorkers {
    pub(super) fn new(workers: NonZeroUsize, cancel: Arc<AtomicBool>) -> Self {
        Self { workers, cancel }
    }
}

/// Something that a worker does with a frame after it was put in order.
pub(super) trait FrameTask: Send {
    fn perform(self) -> Result<(), ArchiveError>;
}

/// Of frames that are only looked at.
pub(super) struct NoTask;

impl FrameTask for NoTask {
    fn perform(self) -> Result<(), ArchiveError> {
        Ok(())
    }
}

/// Tasks are urgent and openings are not, so that memory is given back before more is taken.
enum FrameJob<D> {
    Open(usize),
    Perform(D),
}

enum FrameAnswer {
    Opened(usize, Result<Tar, ArchiveError>),
    Performed(Result<(), ArchiveError>),
}

/// Nobody fails here: answers carry the errors, and a worker whose answers nobody takes has ended.
type FramePool<D> = WorkerPool<FrameJob<D>, ()>;

/// Shows all frames of an archive in order.
pub(super) fn decode(
    workers: &FrameWorkers,
    archive: &Framed,
    mut each: impl FnMut(usize, &Tar) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let frames = 0..archive.index.frames.len();
    work::<NoTask>(workers, archive, frames, |frame, tar| {
        each(frame, &tar)?;
        Ok(None)
    })
}

/// Shows some frames of an archive in order to `each`; what that returns is done by the workers.
pub(super) fn work<D: FrameTask>(
    workers: &FrameWorkers,
    archive: &Framed,
    frames: std::ops::Range<usize>,
    mut each: impl FnMut(usize, Tar) -> Result<Option<D>, ArchiveError>,
) -> Result<(), ArchiveError> {
    with_workers(workers, Some(archive), |pool, answers| {
        let most = PER_WORKER * workers.workers.get();
        let (mut asked, mut next, mut on_their_way) = (frames.start, frames.start, 0);
        let mut early = BTreeMap::new();
        while next < frames.end || on_their_way > 0 {
            while on_their_way < most && asked < frames.end {
                pool.push(FrameJob::Open(asked));
                (asked, on_their_way) = (asked + 1, on_their_way + 1);
            }
            go_on(workers)?;
            match answers.recv() {
                Ok(FrameAnswer::Opened(frame, tar)) => {
                    early.insert(frame, tar?);
                }
                Ok(FrameAnswer::Performed(done)) => {
                    done?;
                    on_their_way -= 1;
                }
                Err(_) => return Err(ArchiveError::Cancelled),
            }
            while let Some(tar) = early.remove(&next) {
                match each(next, tar)? {
                    Some(task) => pool.push_urgent(FrameJob::Perform(task)),
                    None => on_their_way -= 1,
                }
                next += 1;
            }
        }
        Ok(())
    })
}

/// Lets workers perform tasks that come one after the other; `None` is the last.
pub(super) fn perform<D: FrameTask>(
    workers: &FrameWorkers,
    mut next: impl FnMut() -> Result<Option<D>, ArchiveError>,
) -> Result<(), ArchiveError> {
    with_workers(workers, None, |pool, answers| {
        let most = PER_WORKER * workers.workers.get();
        let (mut on_their_way, mut is_ended) = (0, false);
        while !is_ended || on_their_way > 0 {
            go_on(workers)?;
            if !is_ended && on_their_way < most {
                match next()? {
                    Some(task) => {
                        pool.push_urgent(FrameJob::Perform(task));
                        on_their_way += 1;
                    }
                    None => is_ended = true,
                }
                continue;
            }
            match answers.recv() {
                Ok(FrameAnswer::Performed(done)) => done?,
                Ok(FrameAnswer::Opened(..)) => {}
                Err(_) => return Err(ArchiveError::Cancelled),
            }
            on_their_way -= 1;
        }
        Ok(())
    })
}

fn go_on(workers: &FrameWorkers) -> Result<(), ArchiveError> {
    if workers.cancel.load(Ordering::Relaxed) {
        return Err(ArchiveError::Cancelled);
    }
    Ok(())
}

fn with_workers<D: FrameTask>(
    workers: &FrameWorkers,
    archive: Option<&Framed>,
    coordinate: impl FnOnce(&FramePool<D>, &Receiver<FrameAnswer>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let pool = WorkerPool::new([]);
    let (answers, answered) = channel();
    let threads = (0..workers.workers.get()).map(move |_| {
        let answers = answers.clone();
        move |pool: &FramePool<D>| work_off(pool, archive, &answers)
    });
    pool.run_fed(threads, |pool| {
        let done = coordinate(pool, &answered);
        if done.is_err() {
            pool.fail(());
        }
        done
    })
}

fn work_off<D: FrameTask>(
    pool: &FramePool<D>,
    archive: Option<&Framed>,
    answers: &Sender<FrameAnswer>,
) {
    let mut opener = archive.map(|archive| (archive, opener(&archive.path)));
    pool.work(|job| {
        let answer = match (job, &mut opener) {
            (FrameJob::Open(frame), Some((archive, Ok(opener)))) => {
                FrameAnswer::Opened(frame, archive.tar(frame, opener))
            }
            (FrameJob::Open(frame), _) => FrameAnswer::Opened(frame, Err(ArchiveError::Cancelled)),
            (FrameJob::Perform(task), _) => FrameAnswer::Performed(task.perform()),
        };
        answers.send(answer).map_err(|_| ())
    });
}
