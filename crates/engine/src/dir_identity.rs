//! What a filesystem says a directory is, whatever it is called.
//!
//! *Always true:* a directory that was renamed within its filesystem has the identity that it had. No other one of that filesystem ever
//! gets it; what a snapshot of the filesystem shows differs from it by the number of the device alone.

use serde::{Deserialize, Serialize};
use stasis_sys::stat;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// What a filesystem says a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DirIdentity {
    device: u64,
    inode: u64,
    /// When it was made. Numbers of inodes are used again, moments are not; where nobody knows it, only the path counts.
    born_s: i64,
    born_ns: u32,
}

impl DirIdentity {
    /// Of what lies at a path; none where nothing does, or where the filesystem does not say when it was made.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let seen = stat::birth(dir)?;
        Some(Self {
            device: seen.device,
            inode: seen.inode,
            born_s: seen.at.seconds,
            born_ns: seen.at.nanos,
        })
    }

    /// Whether the two are one but for the number of the device, which may change with a restart.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let without = |one: &Self| (one.inode, one.born_s, one.born_ns);
        without(self) == without(other)
    }

    /// The same, as after a restart that gave its filesystem another number.
    #[cfg(test)]
    pub(crate) fn on_another_device(self) -> Self {
        Self {
            device: self.device + 1,
            ..self
        }
    }

    /// Where it lies now, if it only got another name in the directory that `path` is in.
    pub(crate) fn beside(&self, path: &Path) -> Option<PathBuf> {
        let entries = std::fs::read_dir(path.parent()?).ok()?.flatten();
        let mut same = entries.filter(|entry| entry.ino() == self.inode);
        // The number alone is cheap to compare, and may have been used again.
        same.find_map(|entry| {
            let found = Self::of(&entry.path())?;
            found.is_alike(self).then(|| entry.path())
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests move directories")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_found_under_its_new_name_and_no_other_one_is_taken_for_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("a")).unwrap();
        fs::create_dir(at("other")).unwrap();
        let identity = DirIdentity::of(&at("a")).unwrap();

        fs::rename(at("a"), at("b")).unwrap();

        assert_eq!(identity.beside(&at("a")), Some(at("b")));
        assert_eq!(DirIdentity::of(&at("b")), Some(identity));
        fs::remove_dir(at("b")).unwrap();
        fs::create_dir(at("b")).unwrap();
        assert_eq!(identity.beside(&at("a")), None);
    }
}
