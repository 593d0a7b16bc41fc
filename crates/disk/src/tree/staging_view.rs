//! A place for a capture: directories of our own, which others are laid over, and copies that are made for it.
//!
//! 1. make `capture-PID-N` in a private directory of ours, after removing those of the dead
//! 2. make directories in it, and let others put copies there
//! 3. give every directory its owner, mode and time, the deepest first: a tree that did not change is the same tree again
//!
//! *Always true:* it is removed when it is dropped; a crash leaves it, and the next capture removes it.

use crate::fs::atomic_write;
use crate::fs::fd::open_dir_in;
use crate::fs::metadata::{self, Rights, Seen};
use crate::fs::remove;
use rustix::fs::{self, Mode, OFlags};
use stasis_model::failure::{AtPath, ErrorKind, Failure, Kinded};
use stasis_model::tree::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const STEM: &str = "capture-";

/// There is no place for a capture.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StagingViewError(#[from] Failure);

impl Kinded for StagingViewError {
    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}

/// Directories of our own, until it is dropped.
#[derive(Debug)]
#[must_use = "dropped, it is removed"]
pub struct StagingView {
    root: PathBuf,
    /// What each directory shall look like in the end.
    looks: Vec<(PathBuf, Metadata)>,
}

impl StagingView {
    /// Makes one in the directory `place`, which is made if it is not there.
    pub fn make(place: &Path, looks: Metadata) -> Result<Self, StagingViewError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        atomic_write::make_directory(place)?;
        remove::left_by_the_dead(place, STEM);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = place.join(format!("{STEM}{}-{count}", std::process::id()));
        // One with our own name was left by somebody who had our number before.
        remove::tree_at(&root).at("remove", &root)?;
        make(&root)?;
        let looks = vec![(root.clone(), looks)];
        Ok(Self { root, looks })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a directory in it, whose parent must be there, and which shall look like this in the end.
    pub fn directory(&mut self, way: &str, looks: Metadata) -> Result<PathBuf, StagingViewError> {
        let path = self.root.join(way);
        make(&path)?;
        self.looks.push((path.clone(), looks));
        Ok(path)
    }

    /// Says what something that somebody else made in it shall look like in the end.
    pub fn shall_look(&mut self, path: PathBuf, looks: Metadata) {
        self.looks.push((path, looks));
    }

    /// Gives every directory its looks. Nothing is made in it any more.
    pub fn dress(&mut self) -> Result<(), StagingViewError> {
        self.looks
            .sort_by_key(|(path, _)| usize::MAX - path.components().count());
        for (path, looks) in &self.looks {
            let op = "give its owner, mode and time to";
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = fs::open(path, flags, Mode::empty()).at(op, path)?;
            metadata::give(&opened, looks, Rights::of_this_process()).at(op, path)?;
        }
        Ok(())
    }
}

impl Drop for StagingView {
    fn drop(&mut self) {
        // What stays is removed by the next capture.
        let _ = remove::tree_at(&self.root);
    }
}

/// What a directory looks like; a symbolic link is none.
pub fn look_at(path: &Path) -> Result<Seen, StagingViewError> {
    let seen = open_dir_in(fs::CWD, path).and_then(metadata::of);
    Ok(seen.at("look at", path)?)
}

fn make(path: &Path) -> Result<(), StagingViewError> {
    Ok(fs::mkdir(path, Mode::RWXU).at("make the directory", path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_model::tree::FileTime;

    fn aged(seconds: i64) -> Metadata {
        Metadata {
            mode: 0o750,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            modified: FileTime { seconds, nanos: 5 },
        }
    }

    #[test]
    fn directories_look_as_was_said_although_others_were_made_in_them_later() {
        let place = tempfile::tempdir().unwrap();
        let mut view = StagingView::make(place.path(), aged(1)).unwrap();
        let above = view.directory("volumes", aged(2)).unwrap();
        let inner = view.directory("volumes/main", aged(3)).unwrap();
        std::fs::create_dir(inner.join("deep")).unwrap();
        view.shall_look(inner.join("deep"), aged(4));

        view.dress().unwrap();

        for (path, seconds) in [
            (view.root(), 1),
            (&above, 2),
            (&inner, 3),
            (&inner.join("deep"), 4),
        ] {
            assert_eq!(look_at(path).unwrap().metadata(), aged(seconds), "{path:?}");
        }
    }

    #[test]
    fn nothing_is_left_of_it_nor_of_one_whose_maker_died() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("capture-4194999-0/x")).unwrap();

        let view = StagingView::make(place.path(), aged(1)).unwrap();
        let during = std::fs::read_dir(place.path()).unwrap().count();
        drop(view);

        assert_eq!(during, 1);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
