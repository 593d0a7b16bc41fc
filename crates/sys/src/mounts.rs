//! What is mounted where, as this process sees it.

use crate::descriptor;
use rustix::fs::statfs;
use rustix::io::Result;
use rustix::mount::{UnmountFlags, unmount};
use stasis_model::filesystem::Filesystem;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where the kernel lists what is mounted.
const TABLE: &str = "/proc/self/mountinfo";

/// What is mounted somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// On which directory.
    pub point: PathBuf,
    /// The type of the filesystem, as `mount` calls it.
    pub kind: String,
    /// Where it comes from.
    pub source: String,
    /// How it was mounted, words with commas between them.
    pub options: String,
}

/// What is mounted on a directory, the uppermost; `None` also when the system does not say.
pub fn mounted_on(path: &Path) -> Option<Mount> {
    let table = std::fs::read(TABLE).ok()?;
    let mut rows = table.split(|byte| *byte == b'\n').filter_map(mount);
    rows.rfind(|row| row.point == path)
}

/// Unmounts what is mounted on a directory, at once; whoever still reads may go on until its process ends.
pub fn detach(path: &Path) -> Result<()> {
    unmount(path, UnmountFlags::DETACH)
}

/// The filesystem that a directory lies on.
pub fn filesystem(directory: &Path) -> Result<Filesystem> {
    Ok(of_magic(statfs(directory)?.f_type))
}

/// The one whose `f_type` of statfs(2) this is.
fn of_magic(magic: i64) -> Filesystem {
    match magic {
        0xEF53 => Filesystem::Ext4,
        0x5846_5342 => Filesystem::Xfs,
        0x9123_683E => Filesystem::Btrfs,
        0x0102_1994 => Filesystem::Tmpfs,
        0x794C_7630 => Filesystem::Overlayfs,
        0x2FC1_2FC1 => Filesystem::Zfs,
        0xCA45_1A4E => Filesystem::Bcachefs,
        0x6969 => Filesystem::Nfs,
        _ => Filesystem::Other,
    }
}

/// Where something is mounted in a directory, relative to it; `None` when the kernel does not say.
pub fn mounts_inside(directory: BorrowedFd<'_>) -> Option<Vec<PathBuf>> {
    let root = descriptor::path_of(directory).ok()?;
    let table = std::fs::read(TABLE).ok()?;
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let inside = points.filter_map(|point| {
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        let rest = point.strip_prefix(&root).ok()?;
        (!rest.as_os_str().is_empty()).then(|| rest.to_owned())
    });
    Some(inside.collect())
}

/// A line of the table: the fifth word is the mount point; after a dash come type, source and options.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let point = unescape(words.nth(4)?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let (kind, source) = (text(rest.next()?), text(rest.next()?));
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(point)),
        kind,
        source,
        options: text(rest.next()?),
    })
}

/// A path of the mount table, in which blanks and the like are written as `\040`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let value = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = value.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_filesystem_is_known_by_its_number() {
        assert_eq!(of_magic(0x5846_5342).to_string(), "xfs");
        assert_eq!(of_magic(0xEF53).to_string(), "ext4");
        assert_eq!(of_magic(7).to_string(), "another filesystem");
    }

    #[test]
    fn a_row_of_the_table_says_what_is_mounted_where() {
        let line = b"310 29 0:52 / /tmp/a\\040b ro,nosuid,nodev,noatime shared:1 - fuse.stasis stasis ro,user_id=1000,group_id=1000";

        let row = mount(line).unwrap();

        assert_eq!(row.point, Path::new("/tmp/a b"));
        assert_eq!((&*row.kind, &*row.source), ("fuse.stasis", "stasis"));
        assert_eq!(row.options, "ro,user_id=1000,group_id=1000");
        assert_eq!(mount(b""), None);
        assert_eq!(mount(b"1 2 3 4"), None);
    }

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape(br"/plain\9"), br"/plain\9");
    }

    #[test]
    fn nothing_is_mounted_in_a_fresh_directory() {
        let home = tempfile::tempdir().unwrap();
        let opened = File::open(home.path()).unwrap();

        assert_eq!(mounts_inside(opened.as_fd()), Some(Vec::new()));
    }

    #[test]
    fn what_is_mounted_in_the_root_is_relative_to_it() {
        let opened = File::open("/").unwrap();

        let mounts = mounts_inside(opened.as_fd()).unwrap();

        assert!(mounts.contains(&PathBuf::from("proc")), "{mounts:?}");
    }
}
