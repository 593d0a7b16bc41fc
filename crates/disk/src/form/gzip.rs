//! An archive of ours as a `.tar.gz`, for whoever has no zstd: the same tar bytes, compressed otherwise.

use crate::fs::atomic_write::replace_with;
use flate2::Compression;
use flate2::write::GzEncoder;
use stasis_model::failure::{AtPath, Failure};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;

/// Writes the tar of a `.tar.zst` as a `.tar.gz`, whole or not at all, readable by its owner only; says how many bytes that has.
pub fn from_zstd(archive: &Path, target: &Path) -> Result<u64, Failure> {
    let file = File::open(archive).at("read", archive)?;
    replace_with(target, 0o600, |into| {
        let mut tar = zstd::Decoder::new(BufReader::new(file))?;
        let mut gzip = GzEncoder::new(BufWriter::new(into), Compression::default());
        io::copy(&mut tar, &mut gzip)?;
        gzip.finish()?.flush()
    })?;
    Ok(target.metadata().at("read", target)?.len())
}
