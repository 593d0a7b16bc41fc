//! Whether a file holds what it should.

use crate::fs::metadata;
use rustix::io::{Errno, pread};
use stasis_model::digest::{FileDigest, FileHasher};
use stasis_model::tree::Attribute;
use std::os::fd::AsFd;

/// What is read at once.
const BUFFER: usize = 256 << 10;

/// Reads an open file and compares it with a digest; one that cannot be read does not hold it.
pub(crate) fn holds(file: impl AsFd, wanted: &FileDigest) -> bool {
    digest(file).is_ok_and(|digest| digest == *wanted)
}

/// The digest of an open file, from its beginning.
pub(crate) fn digest(file: impl AsFd) -> Result<FileDigest, Errno> {
    let (mut hasher, mut at) = (FileHasher::default(), 0);
    let mut buffer = vec![0; BUFFER];
    loop {
        match pread(&file, &mut buffer, at) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether an open file has exactly these attributes of the user.
pub(super) fn has_attributes(file: impl AsFd, wanted: &[Attribute]) -> bool {
    metadata::attributes(file).is_ok_and(|has| has.user == wanted)
}
