//! Whether a file holds what it should.

use crate::fs::metadata;
use rustix::io::{Errno, pread};
use stasis_model::digest::{FileDigest, FileHasher};
use stasis_model::tree::Attribute;
use std::os::fd::AsFd;

/// Reads an open file and compares it with a digest; one that cannot be read does not hold it.
pub(super) fn holds(file: impl AsFd, digest: &FileDigest) -> bool {
    let (mut hasher, mut at) = (FileHasher::default(), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        match pread(&file, &mut buffer, at) {
            Ok(0) => return hasher.finish() == *digest,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether an open file has exactly these attributes of the user.
pub(super) fn has_attributes(file: impl AsFd, wanted: &[Attribute]) -> bool {
    metadata::attributes(file).is_ok_and(|has| has.user == wanted)
}
