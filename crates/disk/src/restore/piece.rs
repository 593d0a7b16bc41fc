//! One entry takes the place of another one, on the same filesystem, and can go back.

use super::error::{RestoreError, failed};
use rustix::fs::{self, CWD, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// An entry that was put in its place.
#[derive(Debug)]
#[must_use = "it can be put back only with this"]
pub struct Piece {
    from: PathBuf,
    to: PathBuf,
    was_there: bool,
}

impl Piece {
    /// Puts what is at `from` to `to`; what was there is at `from` afterwards.
    pub fn put(from: &Path, to: &Path) -> Result<Self, RestoreError> {
        let was_there = match fs::renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
            Ok(()) => true,
            Err(Errno::NOENT) => {
                let moved = fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
                moved.map_err(failed("move into place", to))?;
                false
            }
            Err(error) => return Err(failed("exchange", to)(error)),
        };
        let piece = Self {
            from: from.to_owned(),
            to: to.to_owned(),
            was_there,
        };
        match sync(to) {
            Ok(()) => Ok(piece),
            Err(error) => {
                // Not durable is not done.
                let _ = piece.put_back();
                Err(error)
            }
        }
    }

    /// Puts everything where it was.
    pub fn put_back(&self) -> Result<(), RestoreError> {
        let flags = if self.was_there {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        let moved = fs::renameat_with(CWD, &self.to, CWD, &self.from, flags);
        moved.map_err(failed("put back", &self.to))?;
        sync(&self.to)
    }
}

fn sync(path: &Path) -> Result<(), RestoreError> {
    let above = path.parent().unwrap_or(path);
    let flags = fs::OFlags::RDONLY | fs::OFlags::DIRECTORY | fs::OFlags::CLOEXEC;
    let synced = fs::open(above, flags, fs::Mode::empty()).and_then(fs::fsync);
    synced.map_err(failed("make durable", above))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("new")).unwrap();
        std::fs::write(at("old"), "old").unwrap();

        let exchanged = Piece::put(&at("new"), &at("old")).unwrap();
        let during = at("old").is_dir() && at("new").is_file();
        exchanged.put_back().unwrap();
        let moved = Piece::put(&at("new"), &at("elsewhere")).unwrap();
        let gone = !at("new").exists() && at("elsewhere").is_dir();
        moved.put_back().unwrap();

        assert!(during && gone);
        assert!(at("new").is_dir() && at("old").is_file() && !at("elsewhere").exists());
    }
}
