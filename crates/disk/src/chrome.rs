//! What a browser's profile on disk says of itself.

use crate::check::is_sqlite;
use crate::fs::fd::c_name;
use crate::fs::root_dir::RootDir;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use stasis_model::chrome::{self, DatabaseFiles, Preferences};
use stasis_model::id::{ChromeMajor, Label};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

/// More of one of its small files is never read.
const LIMIT: u64 = 16 << 20;

/// Where newer versions keep what belongs to the network, in the directory of a profile.
const NETWORK: &str = "Network";

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
pub fn facts(root: &RootDir) -> Result<ProfileFacts, Errno> {
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

/// Looks which files of the profile beneath `root` are SQLite databases. What cannot be opened is in no set: whoever reads
/// the whole tree meets it.
pub fn database_files(root: &RootDir) -> Result<DatabaseFiles, Errno> {
    let mut found = DatabaseFiles::default();
    for profile in look_into(root, "", &mut found)? {
        if let Ok(inner) = look_into(root, &profile, &mut found)
            && inner.iter().any(|name| name == NETWORK)
        {
            let network = format!("{profile}/{NETWORK}");
            // Without rights to it the walk that follows fails, and says so.
            let _ = look_into(root, &network, &mut found);
        }
    }
    Ok(found)
}

/// Sorts the files of one directory; returns the names of the directories in it.
fn look_into(root: &RootDir, path: &str, found: &mut DatabaseFiles) -> Result<Vec<String>, Errno> {
    let directory = root.directory(path.as_bytes())?;
    let mut directories = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        let Some(text) = name
            .to_str()
            .ok()
            .filter(|text| !matches!(*text, "." | ".."))
        else {
            continue;
        };
        match file_type(&directory, &entry) {
            Some(FileType::Directory) => directories.push(text.to_owned()),
            Some(FileType::RegularFile) => {
                let Ok(file) = root.file(directory.as_fd(), name) else {
                    continue;
                };
                let whole = if path.is_empty() {
                    text.to_owned()
                } else {
                    format!("{path}/{text}")
                };
                match is_sqlite(&file) {
                    Ok(Some(true)) => drop(found.sqlite.insert(whole)),
                    Ok(Some(false)) => drop(found.other.insert(whole)),
                    Ok(None) | Err(_) => {}
                }
            }
            _ => {}
        }
    }
    Ok(directories)
}

/// What an entry is; some filesystems say it only when asked.
fn file_type(directory: impl AsFd, entry: &rustix::fs::DirEntry) -> Option<FileType> {
    match entry.file_type() {
        FileType::Unknown => {
            let seen = crate::fs::root_dir::find(directory, entry.file_name()).ok()??;
            Some(FileType::from_raw_mode(seen.raw_mode))
        }
        known => Some(known),
    }
}

/// The content of a small regular file; `None` when there is none, or something else.
fn small_file(root: &RootDir, path: &str) -> Result<Option<Vec<u8>>, Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let name = c_name(name)?;
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
    use crate::fs::root_dir::Mounts;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
    fn databases_are_known_by_their_header_where_no_path_names_a_site() {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        let header = b"SQLite format 3\0 and so on";
        write("top.db", header);
        write("Default/Cookies", b"garbage");
        write("Default/History", b"");
        write("Default/Network/Cookies", header);
        write("Default/IndexedDB/https_site.example_0.db", header);
        std::os::unix::fs::symlink("Cookies", home.path().join("Default/Web Data")).unwrap();

        let root = RootDir::open(home.path(), Mounts::Stay).unwrap();
        let found = database_files(&root).unwrap();

        let sqlite: Vec<&str> = found.sqlite.iter().map(String::as_str).collect();
        assert_eq!(sqlite, ["Default/Network/Cookies", "top.db"]);
        let other: Vec<&str> = found.other.iter().map(String::as_str).collect();
        assert_eq!(other, ["Default/Cookies"]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
    fn a_profile_tells_its_version_and_its_crash_and_links_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let read = || facts(&RootDir::open(home.path(), Mounts::Stay).unwrap()).unwrap();
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
