//! Where a sparse file has bytes, and where it has none.

use rustix::fs::{self, SeekFrom};
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::os::fd::AsFd;

/// The first stretch of data at or after `from` and before `end`; `None` when only a hole is left.
///
/// A filesystem that knows no holes answers with everything. Moves the descriptor's position.
pub fn next_data(file: impl AsFd, from: u64, end: u64) -> Result<Option<Range<u64>>> {
    if from >= end {
        return Ok(None);
    }
    let start = match fs::seek(&file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(from..end)),
        Err(error) => return Err(error),
    };
    if start >= end {
        return Ok(None);
    }
    let stop = fs::seek(&file, SeekFrom::Hole(start)).unwrap_or(end);
    Ok(Some(start..stop.clamp(start, end)).filter(|data| !data.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn data_and_holes_are_distinguished() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        file.seek(std::io::SeekFrom::Start(1 << 20)).unwrap();
        file.write_all(&[7; 4096]).unwrap();

        let data = next_data(&file, 0, 1 << 30).unwrap().unwrap();

        assert!(data.start <= 1 << 20 && data.end >= (1 << 20) + 4096);
        assert!(data.end - data.start < 1 << 20, "{data:?}");
        assert_eq!(next_data(&file, data.end, 1 << 30).unwrap(), None);
    }
}
