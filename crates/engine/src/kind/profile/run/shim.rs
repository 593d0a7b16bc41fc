//! A run that a browser framework starts in the place of the browser (`executablePath`).
//!
//! The framework names a user data directory of its own, often one that it made for this start and removes afterwards. The
//! profile's own directory takes its place: what a run that was killed leaves there is found by the next one. Who looks
//! into the framework's directory for the debugging port, as chromedriver does, finds a link there.
//!
//! Descriptors 3 and 4 are the framework's conversation with the browser (`--remote-debugging-pipe`); the browser inherits
//! them. *Always true:* the browser does not outlive us. Frameworks kill the whole process group when they give up waiting,
//! and the browser has a group of its own, so it is started bound to its parent.

use super::ProfileRun;
use stasis_disk::fs::remove;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How a browser is told where its profile is.
const DATA_DIR: &[u8] = b"--user-data-dir";
/// Where a browser writes down its debugging port.
const PORT_FILE: &str = "DevToolsActivePort";

/// How a run in the place of a browser starts it.
#[derive(Clone, Debug)]
pub struct BrowserShim {
    /// What comes before the browser's command, so that it ends with us; the number of our process is added.
    pub launcher: Vec<OsString>,
}

impl ProfileRun {
    /// The words to start in the place of the browser's.
    pub(super) fn bound(&self, command: &[OsString]) -> Vec<OsString> {
        let Some(shim) = &self.shim else {
            return command.to_vec();
        };
        let mut words = shim.launcher.clone();
        words.push(std::process::id().to_string().into());
        words.extend_from_slice(command);
        words
    }
}

/// The browser's command with `dir` as its user data directory, and the one that the framework had named.
pub(super) fn with_own_dir(command: &[OsString], dir: &Path) -> (Vec<OsString>, Option<PathBuf>) {
    let (mut words, mut named) = (Vec::new(), None);
    let mut rest = command.iter();
    while let Some(word) = rest.next() {
        match word.as_bytes().strip_prefix(DATA_DIR) {
            Some([b'=', path @ ..]) => named = Some(PathBuf::from(OsStr::from_bytes(path))),
            // Chrome knows no other spelling, but whoever writes it so means it.
            Some([]) => named = rest.next().map(PathBuf::from),
            _ => words.push(word.clone()),
        }
    }
    let own = [DATA_DIR, b"=", dir.as_os_str().as_bytes()].concat();
    // What follows the program, so that it stands before the addresses of pages.
    words.insert(words.len().min(1), OsString::from_vec(own));
    (words, named)
}

/// Lets who looks for the debugging port in the framework's directory find it. That this fails matters to nobody who uses a
/// pipe, or reads what the browser says.
pub(super) fn link_port(named: &Path, dir: &Path) {
    if named == dir || !named.is_dir() {
        return;
    }
    let (place, port) = (named.join(PORT_FILE), dir.join(PORT_FILE));
    // A link that an earlier run left may lead to another profile.
    if place.is_symlink() {
        let _ = remove::file_at(&place);
    }
    if let Err(error) = rustix::fs::symlink(&port, &place) {
        tracing::debug!(%error, place = %place.display(), "no link to the debugging port");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_profiles_directory_takes_the_place_of_the_frameworks() {
        let own = Path::new("/p/alice");
        for (given, named) in [
            (
                "chromium --headless --user-data-dir=/tmp/x about:blank",
                Some("/tmp/x"),
            ),
            (
                "chromium --user-data-dir /tmp/x --headless about:blank",
                Some("/tmp/x"),
            ),
            ("chromium --headless about:blank", None),
        ] {
            let (command, found) = with_own_dir(&words(given), own);

            let wanted = words("chromium --user-data-dir=/p/alice --headless about:blank");
            assert_eq!((command, found.as_deref()), (wanted, named.map(Path::new)));
        }
        let (command, named) = with_own_dir(&words("chromium --user-data-directory=x"), own);
        assert_eq!((command.len(), named), (3, None), "another switch stays");
    }
}
