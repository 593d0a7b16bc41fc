//! Threads that open frames, and do what comes of them, while one thread keeps the order.
//!
//! The frames on their way are bounded: a new one is asked for only when another is done with.

use super::ArchiveError;
use super::framed::Framed;
use super::frames::Tar;
use super::reader::opener;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many frames per worker are on their way at once.
const PER_WORKER: usize = 6;

/// How much is done at once, and how it is ended.
#[derive(Debug)]
pub(super) struct Crew {
    workers: NonZeroUsize,
    cancel: Arc<AtomicBool>,
}

impl Crew {
    pub(super) fn new(workers: NonZeroUsize, cancel: Arc<AtomicBool>) -> Self {
        Self { workers, cancel }
    }
}

/// Something that a worker does with a frame after it was put in order.
pub(super) trait Deed: Send {
    fn perform(self) -> Result<(), ArchiveError>;
}

/// Nothing at all.
pub(super) struct Nothing;

impl Deed for Nothing {
    fn perform(self) -> Result<(), ArchiveError> {
        Ok(())
    }
}

enum Job<D> {
    Open(usize),
    Perform(D),
}

enum Answer {
    Opened(usize, Result<Tar, ArchiveError>),
    Performed(Result<(), ArchiveError>),
}

/// What is to be done; deeds come before new frames, so that memory is given back first.
struct Pile<D> {
    jobs: Mutex<(VecDeque<Job<D>>, bool)>,
    news: Condvar,
}

impl<D> Pile<D> {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Job<D>>, bool)> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: Job<D>) {
        let mut jobs = self.lock();
        match job {
            Job::Open(_) => jobs.0.push_back(job),
            Job::Perform(_) => jobs.0.push_front(job),
        }
        self.news.notify_one();
    }

    fn close(&self) {
        *self.lock() = (VecDeque::new(), true);
        self.news.notify_all();
    }

    fn take(&self) -> Option<Job<D>> {
        let mut jobs = self.lock();
        loop {
            if let Some(job) = jobs.0.pop_front() {
                return Some(job);
            }
            if jobs.1 {
                return None;
            }
            jobs = self.news.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Closes the pile when the coordinator ends, in whatever way.
struct Closing<'a, D>(&'a Pile<D>);

impl<D> Drop for Closing<'_, D> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Shows all frames of an archive in order.
pub(super) fn decode(
    crew: &Crew,
    archive: &Framed,
    mut each: impl FnMut(usize, &Tar) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let frames = 0..archive.index.frames.len();
    work::<Nothing>(crew, archive, frames, |frame, tar| {
        each(frame, &tar)?;
        Ok(None)
    })
}

/// Shows some frames of an archive in order to `each`; what that returns is done by the workers.
pub(super) fn work<D: Deed>(
    crew: &Crew,
    archive: &Framed,
    frames: std::ops::Range<usize>,
    mut each: impl FnMut(usize, Tar) -> Result<Option<D>, ArchiveError>,
) -> Result<(), ArchiveError> {
    with_workers(crew, Some(archive), |pile, answers| {
        let most = PER_WORKER * crew.workers.get();
        let (mut asked, mut next, mut on_their_way) = (frames.start, frames.start, 0);
        let mut early = BTreeMap::new();
        while next < frames.end || on_their_way > 0 {
            while on_their_way < most && asked < frames.end {
                pile.put(Job::Open(asked));
                (asked, on_their_way) = (asked + 1, on_their_way + 1);
            }
            go_on(crew)?;
            match answers.recv() {
                Ok(Answer::Opened(frame, tar)) => {
                    early.insert(frame, tar?);
                }
                Ok(Answer::Performed(done)) => {
                    done?;
                    on_their_way -= 1;
                }
                Err(_) => return Err(ArchiveError::Cancelled),
            }
            while let Some(tar) = early.remove(&next) {
                match each(next, tar)? {
                    Some(deed) => pile.put(Job::Perform(deed)),
                    None => on_their_way -= 1,
                }
                next += 1;
            }
        }
        Ok(())
    })
}

/// Lets workers perform deeds that come one after the other; `None` is the last.
pub(super) fn perform<D: Deed>(
    crew: &Crew,
    mut next: impl FnMut() -> Result<Option<D>, ArchiveError>,
) -> Result<(), ArchiveError> {
    with_workers(crew, None, |pile, answers| {
        let most = PER_WORKER * crew.workers.get();
        let (mut on_their_way, mut is_ended) = (0, false);
        while !is_ended || on_their_way > 0 {
            go_on(crew)?;
            if !is_ended && on_their_way < most {
                match next()? {
                    Some(deed) => {
                        pile.put(Job::Perform(deed));
                        on_their_way += 1;
                    }
                    None => is_ended = true,
                }
                continue;
            }
            match answers.recv() {
                Ok(Answer::Performed(done)) => done?,
                Ok(Answer::Opened(..)) => {}
                Err(_) => return Err(ArchiveError::Cancelled),
            }
            on_their_way -= 1;
        }
        Ok(())
    })
}

fn go_on(crew: &Crew) -> Result<(), ArchiveError> {
    if crew.cancel.load(Ordering::Relaxed) {
        return Err(ArchiveError::Cancelled);
    }
    Ok(())
}

fn with_workers<D: Deed>(
    crew: &Crew,
    archive: Option<&Framed>,
    coordinate: impl FnOnce(&Pile<D>, &Receiver<Answer>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let pile = Pile {
        jobs: Mutex::new((VecDeque::new(), false)),
        news: Condvar::new(),
    };
    let (answers, heard) = channel();
    std::thread::scope(|scope| {
        let closing = Closing(&pile);
        for _ in 0..crew.workers.get() {
            let (pile, answers) = (&pile, answers.clone());
            scope.spawn(move || toil(pile, archive, &answers));
        }
        drop(answers);
        let done = coordinate(&pile, &heard);
        drop(closing);
        done
    })
}

fn toil<D: Deed>(pile: &Pile<D>, archive: Option<&Framed>, answers: &Sender<Answer>) {
    let mut opener = archive.map(|archive| (archive, opener(&archive.path)));
    while let Some(job) = pile.take() {
        let answer = match (job, &mut opener) {
            (Job::Open(frame), Some((archive, Ok(opener)))) => {
                Answer::Opened(frame, archive.tar(frame, opener))
            }
            (Job::Open(frame), _) => Answer::Opened(frame, Err(ArchiveError::Cancelled)),
            (Job::Perform(deed), _) => Answer::Performed(deed.perform()),
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}
