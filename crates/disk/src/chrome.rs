//! What a browser's profile on disk says of itself.

use crate::beneath::Beneath;
use rustix::io::Errno;
use stasis_model::chrome::{self, Preferences};
use stasis_model::id::{ChromeMajor, Label};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;

/// More of one of its small files is never read.
const LIMIT: u64 = 16 << 20;

/// What is known of a profile without opening its databases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProfileFacts {
    /// Which Chrome wrote it; `None` for a profile that no Chrome has started with.
    pub version: Option<(ChromeMajor, Label)>,
    /// Whether its browser crashed, was killed, or still runs.
    pub has_crashed: bool,
    /// Whether it wrote down that it ended by itself.
    pub ended_well: Option<bool>,
}

/// Reads what the profile beneath `root` says of itself; what is missing says nothing.
pub fn facts(root: &Beneath) -> Result<ProfileFacts, Errno> {
    let last = small_file(root, chrome::LAST_VERSION)?;
    let Preferences {
        version,
        has_crashed,
        ended_well,
    } = small_file(root, chrome::PREFERENCES)?
        .map(|content| chrome::preferences(&content))
        .unwrap_or_default();
    let last = last.and_then(|content| chrome::last_version(&content));
    Ok(ProfileFacts {
        version: last.or(version),
        has_crashed,
        ended_well,
    })
}

/// The content of a small regular file; `None` when there is none, or something else.
fn small_file(root: &Beneath, path: &str) -> Result<Option<Vec<u8>>, Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let opened = root
        .directory(above.as_bytes())
        .and_then(|directory| root.file(std::os::fd::AsFd::as_fd(&directory), &name));
    let file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    match file.take(LIMIT).read_to_end(&mut content) {
        Ok(_) => Ok(Some(content)),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Mounts;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
    fn a_profile_tells_its_version_and_its_crash_and_links_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let read = || facts(&Beneath::open(home.path(), Mounts::Stay).unwrap()).unwrap();
        assert_eq!(read(), ProfileFacts::default());

        std::fs::create_dir(home.path().join("Default")).unwrap();
        let preferences = r#"{"profile":{"exit_type":"Crashed"},"extensions":{"last_chrome_version":"130.0.1.2"}}"#;
        std::fs::write(home.path().join("Default/Preferences"), preferences).unwrap();
        assert!(read().has_crashed);
        assert_eq!(u32::from(read().version.unwrap().0), 130);

        std::os::unix::fs::symlink("/proc/version", home.path().join("Last Version")).unwrap();
        assert_eq!(u32::from(read().version.unwrap().0), 130);
        std::fs::remove_file(home.path().join("Last Version")).unwrap();
        std::fs::write(home.path().join("Last Version"), "131.0.6778.85").unwrap();
        assert_eq!(u32::from(read().version.unwrap().0), 131);
    }
}
