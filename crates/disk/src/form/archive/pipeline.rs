//! From frames to the file: workers encode them in any order, one writer appends them in theirs.
//!
//! The reader takes a token for every frame it hands out, and gets it back when that frame is in the file; there are a
//! few tokens per worker, so memory is bounded however slow the disk or one frame is. A mark is a place to which the
//! writer can be asked to return, as if nothing had been written since. Whoever fails stops, and its channels with it.

use super::ArchiveError;
use super::base::{Base, FrameId, frame_id};
use super::frames::{
    FrameEncoder, FrameSink, PIECE, Start, Tar, frame_digest, stored_digest, zeros,
};
use super::index::{Frame, IndexMark, IndexWriter};
use super::output::ArchiveOutput;
use super::shared_frames::SharedFrames;
use crate::worker_pool::WorkerPool;
use rustix::fs;
use stasis_model::digest::ArchiveHasher;
use stasis_model::failure::AtPath;
use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// How many frames per worker are on their way at once.
const PER_WORKER: usize = 8;
/// After so many bytes the disk is asked to take them, so that it does not have everything to do in the end.
const SYNCED: u64 = 32 << 20;

/// What a worker is asked to do.
struct EncodeJob {
    number: u64,
    tar: Tar,
    start: Start,
}

/// What the writer is sent, each with its number.
enum Message {
    Frame(EncodedFrame),
    PipelineMark,
    Return,
    Failed(io::Error),
}

/// A frame that is ready.
struct EncodedFrame {
    stored: Vec<u8>,
    frame: Frame,
    is_reused: bool,
}

/// How frames are encoded.
pub(super) struct Works<'a> {
    pub(super) workers: NonZeroUsize,
    pub(super) level: i32,
    pub(super) base: Option<&'a Base<'a>>,
}

/// What is in the file by now.
#[derive(Default)]
pub(super) struct StoredFrame {
    pub(super) index: IndexWriter,
    pub(super) hasher: ArchiveHasher,
    pub(super) length: u64,
    pub(super) tar_bytes: u64,
    pub(super) frames_reused: u64,
    pub(super) bytes_reused: u64,
    /// What the base has too, if there is one.
    pub(super) shared: Option<SharedFrames<FrameId>>,
}

/// Nobody fails here: a worker tells the writer, and ends when that has ended.
type EncodePool = WorkerPool<EncodeJob, ()>;

/// The reader's end of the pipeline.
pub(super) struct Feeder<'p> {
    pool: &'p EncodePool,
    messages: Sender<(u64, Message)>,
    tokens: Receiver<()>,
    number: u64,
    is_stopped: bool,
}

/// Runs `read`, whose frames go through workers into the file.
pub(super) fn run<T>(
    works: &Works<'_>,
    output: &mut ArchiveOutput,
    read: impl FnOnce(&mut Feeder<'_>) -> Result<T, ArchiveError>,
) -> Result<(T, StoredFrame), ArchiveError> {
    let in_flight = PER_WORKER * works.workers.get();
    let (messages, received) = channel();
    let (returned, tokens) = sync_channel(in_flight);
    for _ in 0..in_flight {
        returned.send(()).expect("there is room for every token");
    }
    let zeros = OnceLock::new();
    let file = output.file.try_clone();
    let file = file.at("open again", &output.path)?;
    let pool = EncodePool::new([]);
    std::thread::scope(|scope| {
        let (due, when) = sync_channel(1);
        let disk = scope.spawn(move || when.iter().try_for_each(|()| fs::fdatasync(&file)));
        let path = output.path.clone();
        let stored = StoredFrame {
            shared: works.base.map(Base::shared_frames),
            ..StoredFrame::default()
        };
        let writer = scope.spawn(move || write(received, returned, due, output, stored));
        let workers = (0..works.workers.get()).map(|_| {
            let (messages, zeros) = (messages.clone(), &zeros);
            move |pool: &EncodePool| Worker::run(works, pool, &messages, zeros)
        });
        let (read, was_stopped) = pool.run_fed(workers, |pool| {
            let mut feeder = Feeder {
                pool,
                messages: messages.clone(),
                tokens,
                number: 0,
                is_stopped: false,
            };
            (read(&mut feeder), feeder.is_stopped)
        });
        drop(messages);
        let written = writer.join().expect("the writer does not panic");
        let synced = disk.join().expect("a sync does not panic");
        // A failed sync is told once only: the next one knows nothing of it.
        let synced = synced.at("make durable", &path).map_err(ArchiveError::from);
        let written = written.and_then(|written| synced.map(|()| written));
        match read {
            Err(error) if !was_stopped || written.is_ok() => Err(error),
            Err(_) => Err(written.err().unwrap_or(ArchiveError::Cancelled)),
            Ok(read) => Ok((read, written?)),
        }
    })
}

impl Feeder<'_> {
    /// Sets a mark to which the file can be returned.
    pub(super) fn mark(&mut self) -> Result<(), ArchiveError> {
        self.send(Message::PipelineMark)
    }

    /// Takes back everything since the mark.
    pub(super) fn return_to_mark(&mut self) -> Result<(), ArchiveError> {
        self.send(Message::Return)
    }

    fn send(&mut self, message: Message) -> Result<(), ArchiveError> {
        let sent = self.messages.send((self.number, message));
        self.number += 1;
        sent.map_err(|_| self.stopped())
    }

    /// The reason is given by whoever stopped first.
    fn stopped(&mut self) -> ArchiveError {
        self.is_stopped = true;
        ArchiveError::Cancelled
    }
}

impl FrameSink for Feeder<'_> {
    type Error = ArchiveError;

    fn frame(&mut self, tar: Tar, start: Start) -> Result<(), ArchiveError> {
        if self.tokens.recv().is_err() {
            return Err(self.stopped());
        }
        if self.pool.has_ended() {
            return Err(self.stopped());
        }
        let number = self.number;
        self.pool.push(EncodeJob { number, tar, start });
        self.number += 1;
        Ok(())
    }
}

struct Worker<'a> {
    encoder: FrameEncoder,
    base: Option<&'a Base<'a>>,
}

type EncodedZeros = OnceLock<(Vec<u8>, Frame)>;

impl<'a> Worker<'a> {
    fn run(
        works: &Works<'a>,
        pool: &EncodePool,
        messages: &Sender<(u64, Message)>,
        zeros: &EncodedZeros,
    ) {
        let mut worker = FrameEncoder::new(works.level).map(|encoder| Self {
            encoder,
            base: works.base,
        });
        pool.work(|EncodeJob { number, tar, start }| {
            let encoded = match &mut worker {
                Ok(worker) => worker.encode(&tar, start, zeros),
                Err(error) => Err(io::Error::from(error.kind())),
            };
            let message = encoded.map_or_else(Message::Failed, Message::Frame);
            messages.send((number, message)).map_err(|_| ())
        });
    }

    fn encode(
        &mut self,
        tar: &Tar,
        start: Start,
        encoded_zeros: &EncodedZeros,
    ) -> io::Result<EncodedFrame> {
        match tar {
            Tar::Bytes(tar) => self.encode_bytes(tar, start),
            Tar::Zeros => {
                if let Some((stored, frame)) = encoded_zeros.get() {
                    return Ok(EncodedFrame {
                        stored: stored.clone(),
                        frame: frame.clone(),
                        is_reused: false,
                    });
                }
                let encoded = self.encode_bytes(zeros(), None)?;
                let _ = encoded_zeros.set((encoded.stored.clone(), encoded.frame.clone()));
                Ok(encoded)
            }
        }
    }

    fn encode_bytes(&mut self, tar: &[u8], start: Start) -> io::Result<EncodedFrame> {
        let digest = frame_digest(tar);
        let found = self.base.and_then(|base| base.find(digest, tar.len()));
        let is_reused = found.is_some();
        let (stored, stored_digest) = if let Some(found) = found {
            found
        } else {
            let stored = self.encoder.encode(tar)?;
            let digest = stored_digest(&stored);
            (stored, digest)
        };
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("frames are small");
        let frame = Frame {
            stored: length(&stored),
            tar: length(tar),
            digest,
            stored_digest,
            start,
        };
        Ok(EncodedFrame {
            stored,
            frame,
            is_reused,
        })
    }
}

/// What the file is returned to.
struct PipelineMark {
    index: IndexMark,
    hasher: ArchiveHasher,
    length: u64,
    tar_bytes: u64,
    frames_reused: u64,
    bytes_reused: u64,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the others hear that we stopped by the end of these channels"
)]
fn write(
    received: Receiver<(u64, Message)>,
    returned: SyncSender<()>,
    due: SyncSender<()>,
    output: &mut ArchiveOutput,
    mut stored: StoredFrame,
) -> Result<StoredFrame, ArchiveError> {
    let mut next_sync = SYNCED;
    let mut early = BTreeMap::new();
    let (mut next, mut mark) = (0, None);
    for (number, message) in received {
        early.insert(number, message);
        while let Some(message) = early.remove(&next) {
            next += 1;
            let path = &output.path;
            match message {
                Message::Frame(encoded) => {
                    output.file.write_all(&encoded.stored).at("write", path)?;
                    stored.add(&encoded);
                    if !stored.index.fits() {
                        return Err(ArchiveError::TooLarge);
                    }
                    // Nobody takes it any more when the reader has ended.
                    let _ = returned.send(());
                    if stored.length >= next_sync && due.try_send(()).is_ok() {
                        next_sync = stored.length + SYNCED;
                    }
                }
                Message::PipelineMark => mark = Some(stored.mark()),
                Message::Return => {
                    let mark = mark.take().expect("a mark is set before it is returned to");
                    stored.return_to(mark);
                    let length = stored.length;
                    fs::ftruncate(&output.file, length).at("write", path)?;
                    let sought = output.file.seek(SeekFrom::Start(length));
                    sought.at("write", path)?;
                }
                Message::Failed(error) => return Ok(Err(error).at("write", path)?),
            }
        }
    }
    Ok(stored)
}

impl StoredFrame {
    fn add(&mut self, encoded: &EncodedFrame) {
        self.hasher.update(&encoded.stored);
        self.index.add(&encoded.frame);
        self.length += encoded.stored.len() as u64;
        self.tar_bytes += u64::from(encoded.frame.tar);
        if let Some(shared) = &mut self.shared {
            shared.add(&frame_id(&encoded.frame), encoded.stored.len() as u64);
        }
        if encoded.is_reused {
            self.frames_reused += 1;
            self.bytes_reused += encoded.stored.len() as u64;
        }
    }

    fn mark(&self) -> PipelineMark {
        PipelineMark {
            index: self.index.mark(),
            hasher: self.hasher.clone(),
            length: self.length,
            tar_bytes: self.tar_bytes,
            frames_reused: self.frames_reused,
            bytes_reused: self.bytes_reused,
        }
    }

    fn return_to(&mut self, mark: PipelineMark) {
        self.index.return_to(mark.index);
        self.hasher = mark.hasher;
        self.length = mark.length;
        self.tar_bytes = mark.tar_bytes;
        self.frames_reused = mark.frames_reused;
        self.bytes_reused = mark.bytes_reused;
        if let Some(shared) = &mut self.shared {
            shared.return_to(self.length);
        }
    }
}

const _: () = assert!(PIECE <= u32::MAX as usize);
