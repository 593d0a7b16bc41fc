//! What speaks for a process using a directory: its command line, and the files it has open.

use rustix::fs::{Mode, OFlags, fstat, open, stat};
use stasis_sys::open::PLACE;
use stasis_sys::{descriptor, processes};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A directory, whatever name it is called by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Directory {
    /// Its name without any links.
    path: PathBuf,
    id: (u64, u64),
}

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty())?;
        let found = fstat(&opened)?;
        let path = descriptor::path_of(&opened)?;
        Ok(Self {
            path,
            id: (found.st_dev, found.st_ino),
        })
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn is(&self, path: &Path) -> bool {
        stat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == self.id)
    }

    /// Whether the path is this directory or something beneath it, also if its last parts do not exist.
    fn holds(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.is(above))
    }
}

/// What the command line of a process says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DirectoryClaim {
    /// It names the directory.
    pub(super) names_it: bool,
    /// It is a process that a browser starts for itself, such as a renderer.
    pub(super) is_helper: bool,
}

impl DirectoryClaim {
    pub(super) fn read(pid: u32, line: &[u8], directory: &Directory) -> Self {
        let arguments = arguments(line);
        let value = |argument: &OsString, name: &str| {
            let value = argument.as_bytes().strip_prefix(name.as_bytes())?;
            (!value.is_empty()).then(|| OsStr::from_bytes(value).to_owned())
        };
        let mut claim = Self::default();
        for argument in &arguments {
            if let Some(path) = value(argument, "--user-data-dir=") {
                claim.names_it |= seen_by(pid, &path).iter().any(|path| directory.is(path));
            } else if let Some(path) = value(argument, "--database=") {
                // The handler of crashes knows only where its reports go, and leads a life of its own.
                let reports = seen_by(pid, &path);
                if is_crash_handler(&arguments) && reports.iter().any(|path| directory.holds(path))
                {
                    claim = Self {
                        names_it: true,
                        is_helper: true,
                    };
                }
            } else {
                claim.is_helper |= value(argument, "--type=").is_some();
            }
        }
        claim
    }
}

fn is_crash_handler(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    program.is_some_and(|name| name.as_bytes().ends_with(b"crashpad_handler"))
}

/// The arguments of a process. Chromium's helpers write theirs anew as one text, where an argument ends before the next
/// that begins with two dashes.
fn arguments(line: &[u8]) -> Vec<OsString> {
    let words: Vec<&[u8]> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .collect();
    let [title] = words[..] else {
        return words
            .into_iter()
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect();
    };
    let begins = |at: &usize| {
        title
            .get(*at..)
            .is_some_and(|rest| rest.starts_with(b" --"))
    };
    let mut arguments = Vec::new();
    let mut from = 0;
    for at in (0..title.len()).filter(begins).chain([title.len()]) {
        arguments.extend(
            title
                .get(from..at)
                .map(|word| OsString::from_vec(word.to_vec())),
        );
        from = at + 1;
    }
    arguments
}

/// Where a path of another process leads from here: it may have another root and surely has another working directory.
fn seen_by(pid: u32, path: &OsStr) -> Vec<PathBuf> {
    let path = Path::new(path);
    match path.strip_prefix("/") {
        Ok(beneath) => {
            // A process that may not look at its root can still believe that it is the usual one.
            if processes::is_root_known(pid) {
                vec![processes::root_of(pid).join(beneath)]
            } else {
                vec![path.to_owned()]
            }
        }
        Err(_) => vec![processes::working_directory_of(pid).join(path)],
    }
}

/// Whether an environment variable of a process names the directory.
pub(super) fn is_in_environment(pid: u32, directory: &Directory, variable: &str) -> bool {
    let environment = processes::environment(pid);
    let mut words = environment.split(|byte| *byte == 0);
    words.any(|word| {
        let value = word.strip_prefix(variable.as_bytes());
        let path = value.and_then(|value| value.strip_prefix(b"="));
        path.is_some_and(|path| {
            let paths = seen_by(pid, OsStr::from_bytes(path));
            paths.iter().any(|path| directory.is(path))
        })
    })
}

/// Whether a process has the directory or anything beneath it open.
pub(super) fn has_open(pid: u32, directory: &Directory) -> bool {
    let Ok(opened) = processes::open_files(pid) else {
        return false;
    };
    let targets = opened.filter_map(|file| file.path());
    let targets: BTreeSet<PathBuf> = targets.filter(|target| target.is_absolute()).collect();
    if targets
        .iter()
        .any(|target| target.starts_with(&directory.path))
    {
        return true;
    }
    // In another mount namespace the same directory may have another name.
    if !processes::sees_other_mounts(pid) {
        return false;
    }
    let above: BTreeSet<&Path> = targets.iter().flat_map(|path| path.ancestors()).collect();
    let root = processes::root_of(pid);
    above
        .iter()
        .filter_map(|path| path.strip_prefix("/").ok())
        .any(|path| directory.is(&root.join(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn words(line: &[u8]) -> Vec<String> {
        let words = arguments(line);
        words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn arguments_are_apart_or_one_text() {
        assert_eq!(words(b"a\0--b=c d\0e\0"), ["a", "--b=c d", "e"]);
        assert_eq!(
            words(b"/usr/lib/chromium --type=renderer --user-data-dir=/a b/c -x --lang=en\0"),
            [
                "/usr/lib/chromium",
                "--type=renderer",
                "--user-data-dir=/a b/c -x",
                "--lang=en"
            ]
        );
        assert!(words(b"").is_empty());
    }

    #[test]
    fn a_directory_is_itself_by_any_name_and_no_other() {
        let home = tempfile::tempdir().unwrap();
        let [ours, longer] = ["ada", "ada2"].map(|name| home.path().join(name));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&longer).unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();

        let directory = Directory::open(&link).unwrap();

        assert!(directory.is(&ours) && directory.is(&link) && directory.is(&link.join("../ada/.")));
        assert!(!directory.is(&longer) && !directory.is(home.path()));
        assert!(directory.holds(&ours.join("Default/not/there")));
        assert!(!directory.holds(&longer.join("Default")));
    }
}
