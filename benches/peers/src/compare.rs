//! Whether a restored tree is the tree that was saved, asked without any of Stasis' own code.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Differences that are listed before we stop counting.
const LISTED: usize = 200;

/// How exact the times of a restored tree are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Times {
    Nanoseconds,
    Seconds,
    /// The tool does not keep them.
    No,
}

/// What a tool claims to bring back. Bytes and link targets are always compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a claim of its own")]
pub(crate) struct Fidelity {
    pub(crate) times: Times,
    /// Whether symbolic links have their own times back.
    pub(crate) link_times: bool,
    /// All bits, or only whether a file may be executed.
    pub(crate) modes: bool,
    pub(crate) empty_directories: bool,
    /// Whether journals of SQLite come back that say nothing.
    pub(crate) empty_journals: bool,
}

impl Fidelity {
    /// Everything.
    pub(crate) const FULL: Self = Self {
        times: Times::Nanoseconds,
        link_times: true,
        modes: true,
        empty_directories: true,
        empty_journals: true,
    };
    /// Everything that says something: a database is saved as what is committed, which an empty journal adds nothing to.
    pub(crate) const COMMITTED: Self = Self {
        empty_journals: false,
        ..Self::FULL
    };
    /// As `tar` writes when it is not asked for more.
    pub(crate) const SECONDS: Self = Self {
        times: Times::Seconds,
        ..Self::FULL
    };
    /// As a version control system does.
    pub(crate) const BYTES: Self = Self {
        times: Times::No,
        link_times: false,
        modes: false,
        empty_directories: false,
        empty_journals: true,
    };
}

/// What differs between two trees, in words; nothing means that they are the same.
pub(crate) fn trees(wanted: &Path, found: &Path, fidelity: Fidelity) -> Result<Vec<String>> {
    let mut comparison = Comparison {
        fidelity,
        differences: Vec::new(),
    };
    comparison.directories(wanted, found)?;
    Ok(comparison.differences)
}

struct Comparison {
    fidelity: Fidelity,
    differences: Vec<String>,
}

type Listing = BTreeMap<OsString, PathBuf>;

fn list(directory: &Path) -> Result<Listing> {
    let mut listing = Listing::new();
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("could not list `{}`", directory.display()))? {
        let entry = entry?;
        listing.insert(entry.file_name(), entry.path());
    }
    Ok(listing)
}

/// Whether there is no file in a directory, however deep.
fn is_hollow(path: &Path) -> Result<bool> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return Ok(false);
    }
    for inside in list(path)?.values() {
        if !is_hollow(inside)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file is the journal of a database, with nothing in it.
fn is_empty_journal(path: &Path) -> Result<bool> {
    let is_journal = path.as_os_str().as_encoded_bytes().ends_with(b"-journal");
    Ok(is_journal && fs::symlink_metadata(path)?.len() == 0)
}

impl Comparison {
    fn differ(&mut self, path: &Path, how: impl std::fmt::Display) {
        if self.differences.len() < LISTED {
            self.differences.push(format!("`{}` {how}", path.display()));
        }
    }

    fn directories(&mut self, wanted: &Path, found: &Path) -> Result<()> {
        let (wanted, mut found) = (list(wanted)?, list(found)?);
        for (name, path) in wanted {
            match found.remove(&name) {
                Some(there) => self.entries(&path, &there)?,
                None if !self.fidelity.empty_directories && is_hollow(&path)? => {}
                None if !self.fidelity.empty_journals && is_empty_journal(&path)? => {}
                None => self.differ(&path, "is missing"),
            }
        }
        for path in found.into_values() {
            if self.fidelity.empty_directories || !is_hollow(&path)? {
                self.differ(&path, "was not saved");
            }
        }
        Ok(())
    }

    fn entries(&mut self, wanted: &Path, found: &Path) -> Result<()> {
        let (want, have) = (fs::symlink_metadata(wanted)?, fs::symlink_metadata(found)?);
        if want.file_type() != have.file_type() {
            self.differ(wanted, "became something else");
            return Ok(());
        }
        self.dress(wanted, &want, &have);
        if want.is_dir() {
            return self.directories(wanted, found);
        }
        if want.is_symlink() {
            if fs::read_link(wanted)? != fs::read_link(found)? {
                self.differ(wanted, "leads elsewhere");
            }
        } else if want.len() != have.len() || !same_bytes(wanted, found)? {
            self.differ(wanted, "has other bytes");
        }
        Ok(())
    }

    fn dress(&mut self, path: &Path, want: &Metadata, have: &Metadata) {
        let Fidelity {
            times,
            link_times,
            modes,
            ..
        } = self.fidelity;
        let mask = if modes { 0o7777 } else { 0o100 };
        let has_mode = !want.is_symlink() && (modes || want.is_file());
        if has_mode && want.mode() & mask != have.mode() & mask {
            self.differ(path, format_args!("has mode {:o}", have.mode() & 0o7777));
        }
        if want.is_file() && modes && want.nlink() != have.nlink() {
            self.differ(path, format_args!("has {} names", have.nlink()));
        }
        let seconds = want.mtime() == have.mtime();
        let is_right = match times {
            _ if want.is_symlink() && !link_times => true,
            Times::No => true,
            Times::Seconds => seconds,
            Times::Nanoseconds => seconds && want.mtime_nsec() == have.mtime_nsec(),
        };
        if !is_right {
            self.differ(path, "has another time");
        }
    }
}

fn same_bytes(one: &Path, other: &Path) -> Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut here, mut there) = (vec![0; 1 << 18], vec![0; 1 << 18]);
    loop {
        let read = one.read(&mut here)?;
        if read == 0 {
            return Ok(other.read(&mut there)? == 0);
        }
        if other.read_exact(&mut there[..read]).is_err() || here[..read] != there[..read] {
            return Ok(false);
        }
    }
}

/// Whether two files have the same bytes.
pub(crate) fn files(one: &Path, other: &Path) -> Result<bool> {
    same_bytes(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, UNIX_EPOCH};

    fn tree(root: &Path) {
        fs::create_dir_all(root.join("empty")).unwrap();
        fs::write(root.join("file"), "bytes").unwrap();
        symlink("file", root.join("link")).unwrap();
        settle(root);
    }

    /// Gives everything but the link the same time.
    fn settle(root: &Path) {
        for path in [root.join("file"), root.join("empty")] {
            let time = UNIX_EPOCH + Duration::new(1_700_000_000, 500);
            File::open(path).unwrap().set_modified(time).unwrap();
        }
    }

    /// What is found when one thing is done to a copy.
    fn found(fidelity: Fidelity, spoil: impl FnOnce(&Path)) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let (wanted, copy) = (home.path().join("wanted"), home.path().join("copy"));
        tree(&wanted);
        tree(&copy);
        spoil(&copy);
        let differences = trees(&wanted, &copy, fidelity).unwrap();
        let word = |line: String| {
            line.rsplit_once("` ")
                .map(|(_, how)| how.to_owned())
                .unwrap()
        };
        differences.into_iter().map(word).collect()
    }

    const NO_LINK_TIMES: Fidelity = Fidelity {
        link_times: false,
        ..Fidelity::FULL
    };

    #[test]
    fn whatever_differs_is_found() {
        let remove = |path: PathBuf| fs::remove_file(path).unwrap();
        let same = found(NO_LINK_TIMES, |_| {});
        let bytes = found(NO_LINK_TIMES, |copy| {
            fs::write(copy.join("file"), "bytez").unwrap();
            settle(copy);
        });
        let mode = found(NO_LINK_TIMES, |copy| {
            fs::set_permissions(copy.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        });
        let time = found(NO_LINK_TIMES, |copy| {
            let later = UNIX_EPOCH + Duration::new(1_700_000_000, 501);
            File::open(copy.join("file"))
                .unwrap()
                .set_modified(later)
                .unwrap();
        });
        let link = found(NO_LINK_TIMES, |copy| {
            remove(copy.join("link"));
            symlink("elsewhere", copy.join("link")).unwrap();
        });
        let missing = found(NO_LINK_TIMES, |copy| {
            fs::remove_dir(copy.join("empty")).unwrap();
        });
        let added = found(NO_LINK_TIMES, |copy| {
            fs::create_dir(copy.join("more")).unwrap();
        });
        let names = found(NO_LINK_TIMES, |copy| {
            fs::hard_link(copy.join("file"), copy.join("../elsewhere")).unwrap();
        });

        assert!(same.is_empty(), "{same:?}");
        assert_eq!(bytes, ["has other bytes"]);
        assert_eq!(mode, ["has mode 600"]);
        assert_eq!(time, ["has another time"]);
        assert_eq!(link, ["leads elsewhere"]);
        assert_eq!(
            (&*missing, &*added),
            (
                &["is missing".to_owned()][..],
                &["was not saved".to_owned()][..]
            )
        );
        assert_eq!(names, ["has 2 names"]);
    }

    #[test]
    fn what_a_tool_does_not_claim_is_not_compared() {
        let touched = found(Fidelity::BYTES, |copy| {
            fs::remove_dir(copy.join("empty")).unwrap();
            fs::set_permissions(copy.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        });
        let became_a_program = found(Fidelity::BYTES, |copy| {
            fs::set_permissions(copy.join("file"), fs::Permissions::from_mode(0o755)).unwrap();
        });

        assert!(touched.is_empty(), "{touched:?}");
        assert_eq!(became_a_program, ["has mode 755"]);
    }
}
