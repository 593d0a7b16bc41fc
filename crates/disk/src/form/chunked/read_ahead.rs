//! The content of one file, from its beginning to its end, fetched ahead by several workers.
//!
//! Which chunks are unpacked when, is known from the extents alone: what was unpacked lately is kept, and everything else is
//! asked for in the order in which it will be missed, a bounded number of chunks before it is.

use super::lately::Lately;
use super::{ChunkError, ChunkSource, cut_out, fetch};
use crate::worker_pool::WorkerPool;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::Extent;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// How many chunks each worker may be ahead of what is written.
const AHEAD: usize = 3;

/// Why a content was not written to its end.
#[derive(Debug)]
pub enum ReadAheadError {
    /// A chunk could not be had.
    Chunk(ChunkError),
    /// Whoever takes the bytes takes no more.
    Out(io::Error),
}

impl From<ChunkError> for ReadAheadError {
    fn from(error: ChunkError) -> Self {
        Self::Chunk(error)
    }
}

impl From<io::Error> for ReadAheadError {
    fn from(error: io::Error) -> Self {
        Self::Out(error)
    }
}

/// A chunk that somebody fetches.
struct Fetch {
    number: usize,
    name: ChunkName,
}

/// What became of one.
struct Fetched {
    number: usize,
    plain: Result<Vec<u8>, ChunkError>,
}

/// Writes what extents stand for, in order, and says how long it is.
pub fn write_content(
    source: &dyn ChunkSource,
    extents: &[Extent],
    workers: NonZeroUsize,
    mut out: impl Write,
) -> Result<u64, ReadAheadError> {
    let missed = missed(extents);
    let workers = workers.get().min(missed.len());
    let pool = WorkerPool::<Fetch, Infallible>::new([]);
    let (sender, fetched) = channel();
    let threads = (0..workers).map(|_| {
        let sender = sender.clone();
        move |pool: &WorkerPool<Fetch, Infallible>| {
            pool.work(|Fetch { number, name }| {
                let plain = fetch(source, &name);
                // Nobody listens any more when the writing has ended early.
                let _ = sender.send(Fetched { number, plain });
                Ok(())
            });
        }
    });
    let threads: Vec<_> = threads.collect();
    drop(sender);
    pool.run_fed(threads, |pool| {
        let ahead = ReadAhead {
            pool,
            missed,
            asked: 0,
            taken: 0,
            ahead: workers * AHEAD,
            early: HashMap::new(),
            fetched,
        };
        ahead.write(extents, &mut out)
    })
}

/// The chunks that are not among those unpacked lately when they are needed, in that order.
fn missed(extents: &[Extent]) -> VecDeque<ChunkName> {
    let (mut lately, mut missed) = (Lately::default(), VecDeque::new());
    for extent in extents {
        if let Extent::Stored(slice) = extent
            && lately.get(&slice.chunk.name).is_none()
        {
            missed.push_back(slice.chunk.name);
            lately.add(slice.chunk.name, ());
        }
    }
    missed
}

struct ReadAhead<'p> {
    pool: &'p WorkerPool<Fetch, Infallible>,
    /// Chunks that nobody was asked for yet.
    missed: VecDeque<ChunkName>,
    asked: usize,
    taken: usize,
    /// How many may be asked for before they are needed.
    ahead: usize,
    /// What came before its turn.
    early: HashMap<usize, Result<Vec<u8>, ChunkError>>,
    fetched: Receiver<Fetched>,
}

impl ReadAhead<'_> {
    fn write(mut self, extents: &[Extent], out: &mut impl Write) -> Result<u64, ReadAheadError> {
        let (mut lately, mut written) = (Lately::default(), 0);
        for extent in extents {
            match extent {
                Extent::Hole(length) => {
                    io::copy(&mut io::Read::take(io::repeat(0), *length), out)?;
                }
                // No snapshot of a store has such a file.
                Extent::Version(_) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
                Extent::Stored(slice) => {
                    let name = &slice.chunk.name;
                    let plain: Arc<Vec<u8>> = match lately.get(name) {
                        Some(plain) => plain,
                        None => lately.add(*name, Arc::new(self.next()?)),
                    };
                    out.write_all(cut_out(&plain, slice)?)?;
                }
            }
            written += extent.length();
        }
        out.flush()?;
        Ok(written)
    }

    /// The chunk that is missed next.
    fn next(&mut self) -> Result<Vec<u8>, ChunkError> {
        while self.asked < self.taken + self.ahead
            && let Some(name) = self.missed.pop_front()
        {
            let number = self.asked;
            self.pool.push(Fetch { number, name });
            self.asked += 1;
        }
        let number = self.taken;
        self.taken += 1;
        loop {
            if let Some(plain) = self.early.remove(&number) {
                return plain;
            }
            let next = self.fetched.recv();
            let next =
                next.expect("every chunk that is asked for is answered, by a worker that lives");
            self.early.insert(next.number, next.plain);
        }
    }
}

#[cfg(test)]
mod tests;
