//! Which frames are written already, so that the file can be digested in order while they are written in any.
//!
//! *Always true:* nothing is read before it was written; whoever waits is woken by the next frame or by the end, also when
//! a failure is the end.

use super::super::ReadAt;
use crate::crypt::{PieceId, TAG};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The frames of an encrypted archive while it is written.
#[derive(Debug)]
pub(super) struct FrameTable {
    /// Where each begins in the file, and where the last ends.
    starts: Vec<u64>,
    state: Mutex<FrameTableState>,
    cond: Condvar,
}

#[derive(Debug)]
struct FrameTableState {
    ids: Vec<Option<PieceId>>,
    /// So many frames are written without a gap.
    whole: usize,
    /// So many bytes are.
    end: u64,
    is_over: bool,
}

impl FrameTable {
    /// Expects frames that have these lengths before they are encrypted.
    pub(super) fn new(lengths: impl Iterator<Item = u32>) -> Self {
        let (mut starts, mut end) = (vec![0], 0);
        for length in lengths {
            end += u64::from(length) + TAG as u64;
            starts.push(end);
        }
        let state = FrameTableState {
            ids: vec![None; starts.len() - 1],
            whole: 0,
            end: 0,
            is_over: false,
        };
        Self {
            starts,
            state: Mutex::new(state),
            cond: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FrameTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a frame belongs in the file.
    pub(super) fn start(&self, frame: usize) -> u64 {
        self.starts[frame]
    }

    /// How long a frame is in the file.
    pub(super) fn length(&self, frame: usize) -> u64 {
        self.starts[frame + 1] - self.starts[frame]
    }

    /// Hears that a frame is in the file.
    pub(super) fn note(&self, frame: usize, id: PieceId) {
        let mut state = self.lock();
        state.ids[frame] = Some(id);
        while state.ids.get(state.whole).is_some_and(Option::is_some) {
            state.whole += 1;
        }
        state.end = self.starts[state.whole];
        self.cond.notify_all();
    }

    /// The ids of all frames, which are all written.
    pub(super) fn ids(&self) -> Vec<PieceId> {
        let state = self.lock();
        let ids = state.ids.iter();
        ids.map(|id| id.expect("every frame was encrypted"))
            .collect()
    }

    /// Hears that the file is whole, and how long it is.
    pub(super) fn finish(&self, end: u64) {
        self.lock().end = end;
    }

    /// Waits until there is more than `from` bytes; says where that ends. There it stays when nothing more comes.
    fn more(&self, from: u64) -> u64 {
        let mut state = self.lock();
        while state.end <= from && !state.is_over {
            state = self
                .cond
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.end
    }
}

/// Ends all waiting when the writer ends, in whatever way.
pub(super) struct Closing<'a>(pub(super) &'a FrameTable);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.cond.notify_all();
    }
}

/// A file that is read behind those who write it: its end is where they end.
#[derive(Debug)]
pub(super) struct Behind<'a>(pub(super) &'a File, pub(super) &'a FrameTable);

impl ReadAt for Behind<'_> {
    fn length(&self) -> io::Result<u64> {
        Ok(self.1.more(u64::MAX))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let there = self.1.more(offset).saturating_sub(offset);
        let length = usize::try_from(there).unwrap_or(usize::MAX);
        let length = length.min(buffer.len());
        FileExt::read_at(self.0, &mut buffer[..length], offset)
    }
}
