//! The bytes of one file: shared if the filesystem can, copied with their holes if it cannot.

use crate::fs::holes;
use crate::fs::sys::share;
use crate::progress::Progress;
use rustix::fs;
use rustix::io::{self, Errno};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How much is copied before we look whether somebody wants us to stop.
const STRETCH: usize = 8 << 20;
/// What is read at once where the kernel does not copy for us.
const BUFFER: usize = 256 << 10;

/// What to do with a file whose bytes the filesystem will not share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// Copies it: as much space again, and as slow as the disk.
    #[default]
    Copy,
    /// Gives up, leaving nothing.
    Refuse,
}

/// Why a content did not get across.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CarryError {
    /// The filesystem does not share, and copying was not allowed.
    CannotShare(Errno),
    /// Reading or writing failed.
    Failed(Errno),
    /// Somebody wants us to stop.
    Cancelled,
    /// It would have taken longer than it may.
    Late,
}

/// When a content is given up on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryLimit<'a> {
    /// Set by anybody at any time.
    pub(crate) cancel: &'a AtomicBool,
    /// What is shared takes no time worth mentioning; what is copied must have been by then.
    pub(crate) deadline: Option<Instant>,
    /// Who hears of the bytes that are copied, stretch by stretch.
    pub(crate) progress: Option<&'a Progress>,
}

/// What the clock says by which others are kept waiting.
#[expect(
    clippy::disallowed_methods,
    reason = "how long somebody is kept waiting is no part of any result"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl CarryLimit<'_> {
    fn check(&self) -> Result<(), CarryError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(CarryError::Cancelled);
        }
        match self.deadline {
            Some(deadline) if now() >= deadline => Err(CarryError::Late),
            _ => Ok(()),
        }
    }
}

impl From<Errno> for CarryError {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

/// How a content got across.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// So many bytes are shared with the source.
    Shared(u64),
    /// So many bytes were copied; holes are not counted.
    Copied(u64),
}

/// Makes the empty file `target` hold the first `size` bytes of `source`.
pub(crate) fn carry(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    size: u64,
    fallback: Fallback,
    cancel: &AtomicBool,
) -> Result<Filled, CarryError> {
    let stop = CarryLimit {
        cancel,
        deadline: None,
        progress: None,
    };
    carry_until(source, target, size, fallback, stop)
}

/// The same, as long as it may take.
pub(crate) fn carry_until(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    size: u64,
    fallback: Fallback,
    stop: CarryLimit<'_>,
) -> Result<Filled, CarryError> {
    if size == 0 {
        return Ok(Filled::Shared(0));
    }
    match share::share_blocks(source, target) {
        Ok(()) => Ok(Filled::Shared(size)),
        Err(
            error @ (Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::PERM
            | Errno::TXTBSY),
        ) => match fallback {
            Fallback::Refuse => Err(CarryError::CannotShare(error)),
            Fallback::Copy => copy(source, target, size, stop).map(Filled::Copied),
        },
        Err(error) => Err(error.into()),
    }
}

fn copy(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    size: u64,
    stop: CarryLimit<'_>,
) -> Result<u64, CarryError> {
    fs::ftruncate(target, size)?;
    let (mut copied, mut at) = (0, 0);
    let mut by_kernel = true;
    while let Some(data) = holes::next_data(source, at, size)? {
        at = data.start;
        while at < data.end {
            stop.check()?;
            let most = usize::try_from(data.end - at).map_or(STRETCH, |left| left.min(STRETCH));
            let done = if by_kernel {
                match share::copy_range(source, target, at, most) {
                    Ok(done) => done,
                    Err(Errno::INTR) => continue,
                    Err(
                        Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM,
                    ) => {
                        by_kernel = false;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            } else {
                by_hand(source, target, at, most)?
            };
            if done == 0 {
                return Ok(copied); // it shrank: whoever called looks again
            }
            (at, copied) = (at + done, copied + done);
            if let Some(progress) = stop.progress {
                progress.advance(0, done);
            }
        }
    }
    Ok(copied)
}

fn by_hand(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    at: u64,
    most: usize,
) -> Result<u64, Errno> {
    let mut buffer = vec![0; BUFFER.min(most)];
    let read = io::retry_on_intr(|| io::pread(source, &mut *buffer, at))?;
    let mut written = 0;
    while written < read {
        let to = at + written as u64;
        written += io::retry_on_intr(|| io::pwrite(target, &buffer[written..read], to))?;
    }
    Ok(read as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_copied_by_hand_is_the_same_bytes() {
        let (mut source, target) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
        source.write_all(&bytes).unwrap();

        let mut at = 0;
        while at < bytes.len() as u64 {
            at += by_hand(source.as_fd(), target.as_fd(), at, STRETCH).unwrap();
        }

        let mut copied = vec![0; bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&target, &mut copied, 0).unwrap();
        assert!(copied == bytes);
    }

    #[test]
    fn a_hole_stays_a_hole() {
        let (mut source, target) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        source.seek(SeekFrom::Start((1 << 30) - 3)).unwrap();
        source.write_all(b"end").unwrap();

        let copied = copy(
            source.as_fd(),
            target.as_fd(),
            1 << 30,
            CarryLimit {
                cancel: &AtomicBool::new(false),
                deadline: None,
                progress: None,
            },
        )
        .unwrap();

        assert!(copied < 1 << 20, "{copied}");
        let (source, target) = (source.metadata().unwrap(), target.metadata().unwrap());
        assert_eq!(target.len(), 1 << 30);
        assert!(target.blocks() <= source.blocks() + 16);
    }
}
