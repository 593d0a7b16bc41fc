//! The names in one directory, sorted, in as little memory as a million of them need.

use crate::fs::sys::listing::Listing;
use rustix::io::Result;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;

/// Names with their closing NUL, one after the other.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Where each begins, in order.
    starts: Vec<usize>,
}

impl Names {
    /// Reads all names but `.` and `..`; `more` are added where they are not there.
    pub(super) fn read<'n>(
        directory: BorrowedFd<'_>,
        more: impl Iterator<Item = &'n [u8]>,
    ) -> Result<Self> {
        let mut names = Self::default();
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = Listing::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.starts.push(names.bytes.len());
                names.bytes.extend_from_slice(name.to_bytes_with_nul());
            }
        }
        for name in more {
            let is_there = |start: &usize| at(&names.bytes, *start).to_bytes() == name;
            if !names.starts.iter().any(is_there) {
                names.starts.push(names.bytes.len());
                names.bytes.extend_from_slice(name);
                names.bytes.push(0);
            }
        }
        let bytes = &names.bytes;
        names.starts.sort_unstable_by_key(|start| at(bytes, *start));
        Ok(names)
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn get(&self, index: usize) -> &CStr {
        at(&self.bytes, self.starts[index])
    }
}

fn at(bytes: &[u8], start: usize) -> &CStr {
    CStr::from_bytes_until_nul(&bytes[start..]).expect("every name was kept with its NUL")
}
