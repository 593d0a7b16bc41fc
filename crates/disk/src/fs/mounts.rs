//! What is mounted where, as this process sees it.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Where something is mounted in a directory, relative to it; `None` when the kernel does not say.
pub(crate) fn mounts_inside(directory: BorrowedFd<'_>) -> Option<Vec<PathBuf>> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let root = std::fs::read_link(link).ok()?;
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let inside = points.filter_map(|point| {
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        let rest = point.strip_prefix(&root).ok()?;
        (!rest.as_os_str().is_empty()).then(|| rest.to_owned())
    });
    Some(inside.collect())
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
    use crate::fs::fd::open_dir;
    use std::os::fd::AsFd;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape(br"/plain\9"), br"/plain\9");
    }

    #[test]
    fn nothing_is_mounted_in_a_fresh_directory() {
        let home = tempfile::tempdir().unwrap();
        let opened = open_dir(home.path()).unwrap();

        assert_eq!(mounts_inside(opened.as_fd()), Some(Vec::new()));
    }

    #[test]
    fn what_is_mounted_in_the_root_is_relative_to_it() {
        let opened = open_dir(std::path::Path::new("/")).unwrap();

        let mounts = mounts_inside(opened.as_fd()).unwrap();

        assert!(mounts.contains(&PathBuf::from("proc")), "{mounts:?}");
    }
}
