//! A file of somebody else that we change: read once, shown, replaced as a whole.
//!
//! 1. write a new file beside it, with its owner and its mode
//! 2. make that durable
//! 3. look whether the file is still what was shown
//! 4. rename the new one over it, or, where there was none, to its name if that is still free
//! 5. make the directory durable
//!
//! *Always true:* the file holds what it held or what was shown, whole. A crash before 4 leaves the old one, and a
//! `.stasis-tmp-…` beside it. A link is followed, and stays a link.

use anyhow::{Context as _, bail, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{self as unix, AtFlags, Mode, OFlags, RenameFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Larger settings than this are somebody's mistake.
const LARGEST: u64 = 16 << 20;

/// A file and what it held when we looked.
#[derive(Debug)]
pub(super) struct Target {
    /// Where it lies, links followed.
    path: PathBuf,
    is_link: bool,
    /// What it held; `None` if it was not there.
    pub(super) text: Option<String>,
}

impl Target {
    pub(super) fn read(asked: &Path) -> anyhow::Result<Self> {
        let is_link = asked.is_symlink();
        let path = match std::fs::canonicalize(asked) {
            Ok(path) => path,
            Err(error) if error.kind() == ErrorKind::NotFound && !is_link => asked.to_owned(),
            Err(error) => {
                let name = asked.display();
                let hint = "mend or remove it, then try again";
                return Err(error).with_context(|| format!("`{name}` leads to no file: {hint}"));
            }
        };
        let text = read(&path)?;
        Ok(Self {
            path,
            is_link,
            text,
        })
    }

    /// Whether the name that the agent uses is a link to the file.
    pub(super) fn is_link(&self) -> bool {
        self.is_link
    }

    /// Makes the file hold `text`.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<()> {
        let (directory, name) = self.place()?;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("could not make the directory `{}`", directory.display()))?;
        let opened = open_directory(directory)?;
        let temporary = temporary(&name);
        let written = self
            .fill(&opened, &temporary, text)
            .and_then(|()| self.swap(&opened, &temporary, &name));
        if written.is_err() {
            // The first failure is the one to tell.
            let _ = unix::unlinkat(&opened, &temporary, AtFlags::empty());
        }
        written.with_context(|| self.failed("write"))?;
        Ok(unix::fsync(&opened)?)
    }

    /// Takes the file away.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        let (directory, name) = self.place()?;
        self.is_as_shown()?;
        let opened = open_directory(directory)?;
        unix::unlinkat(&opened, &name, AtFlags::empty()).with_context(|| self.failed("remove"))?;
        Ok(unix::fsync(&opened)?)
    }

    fn failed(&self, doing: &str) -> String {
        format!("could not {doing} `{}`", self.path.display())
    }

    fn place(&self) -> anyhow::Result<(&Path, OsString)> {
        match (self.path.parent(), self.path.file_name()) {
            (Some(directory), Some(name)) => Ok((directory, name.to_owned())),
            _ => bail!("`{}` is no name of a file", self.path.display()),
        }
    }

    fn fill(&self, directory: &OwnedFd, temporary: &OsString, text: &str) -> anyhow::Result<()> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if self.text.is_some() { 0o600 } else { 0o666 });
        let mut file = File::from(unix::openat(directory, temporary, flags, mode)?);
        if self.text.is_some() {
            let (old, new) = (std::fs::metadata(&self.path)?, file.metadata()?);
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                let owner = rustix::process::Uid::from_raw(old.uid());
                let group = rustix::process::Gid::from_raw(old.gid());
                unix::fchown(&file, Some(owner), Some(group))?;
            }
            unix::fchmod(&file, Mode::from_raw_mode(old.mode() & 0o7777))?;
        }
        file.write_all(text.as_bytes())?;
        Ok(file.sync_all()?)
    }

    fn swap(
        &self,
        directory: &OwnedFd,
        temporary: &OsString,
        name: &OsString,
    ) -> anyhow::Result<()> {
        self.is_as_shown()?;
        if self.text.is_some() {
            return Ok(unix::renameat(directory, temporary, directory, name)?);
        }
        let flags = RenameFlags::NOREPLACE;
        Ok(unix::renameat_with(
            directory, temporary, directory, name, flags,
        )?)
    }

    fn is_as_shown(&self) -> anyhow::Result<()> {
        ensure!(
            read(&self.path)? == self.text,
            "`{}` changed while we were at it, and was left as it is: try again",
            self.path.display()
        );
        Ok(())
    }
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    let failed = || format!("could not read `{}`", path.display());
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(failed),
    };
    ensure!(metadata.is_file(), "`{}` is no file", path.display());
    ensure!(
        metadata.len() <= LARGEST,
        "`{}` is larger than any settings are",
        path.display()
    );
    let mut text = String::new();
    let bounded = File::open(path).with_context(failed)?;
    let mut bounded = bounded.take(LARGEST);
    bounded.read_to_string(&mut text).with_context(failed)?;
    Ok(Some(text))
}

fn open_directory(directory: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    unix::open(directory, flags, Mode::empty())
        .with_context(|| format!("could not open the directory `{}`", directory.display()))
}

fn temporary(name: &OsString) -> OsString {
    let mut temporary = OsString::from(format!(".stasis-tmp-{}-", std::process::id()));
    temporary.push(name);
    temporary
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn put(path: &Path, text: &str) {
        File::create_new(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn names(directory: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_that_changed_since_it_was_shown_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.json");
        put(&path, "shown");
        let target = Target::read(&path).unwrap();
        let append = std::fs::OpenOptions::new().append(true).open(&path);
        append.unwrap().write_all(b", then changed").unwrap();

        let refused = target.write("ours").unwrap_err();

        assert!(format!("{refused:#}").contains("try again"), "{refused:#}");
        assert!(target.remove().is_err());
        assert_eq!(read(&path).unwrap().as_deref(), Some("shown, then changed"));
        assert_eq!(names(home.path()), ["settings.json"]);
    }

    #[test]
    fn a_file_that_came_since_we_looked_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.json");
        let target = Target::read(&path).unwrap();
        put(&path, "theirs");

        assert!(target.write("ours").is_err());

        assert_eq!(read(&path).unwrap().as_deref(), Some("theirs"));
        assert_eq!(names(home.path()), ["settings.json"]);
    }

    #[test]
    fn owner_and_mode_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.json");
        put(&path, "before");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), Some(65_533)).unwrap();
        }
        let about = |path: &Path| {
            let about = std::fs::metadata(path).unwrap();
            (about.uid(), about.gid(), about.mode())
        };
        let before = about(&path);

        Target::read(&path).unwrap().write("after").unwrap();

        assert_eq!(about(&path), before);
        assert_eq!(read(&path).unwrap().as_deref(), Some("after"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let home = tempfile::tempdir().unwrap();

        let refused = Target::read(home.path()).unwrap_err();

        assert!(refused.to_string().contains("is no file"), "{refused}");
    }
}
