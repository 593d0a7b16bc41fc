//! The date in a dump: the only bytes of it that differ when nothing else does.
//!
//! A dump in the custom format begins with `PGDMP`, three bytes of version, the sizes of numbers and offsets, the format, how
//! it is compressed, and seven numbers of a broken-down time, each a sign and its bytes, the lowest first.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// 2000-01-01, as `struct tm` has it: seconds, minutes, hours, day, month, year since 1900, no summer time.
const FIXED: [u32; 7] = [0, 0, 0, 1, 0, 100, 0];
/// From this version of the format on, compression is one byte; before it was a number.
const ONE_BYTE: [u8; 2] = [1, 15];

/// Replaces the date by a fixed one. A format that is not known is left alone: it is only stored again then.
pub(super) fn reset(dump: &File) -> io::Result<()> {
    let mut head = [0; 11];
    dump.read_exact_at(&mut head, 0)?;
    let Some((at, number)) = place(head) else {
        return Ok(());
    };
    let mut date = Vec::new();
    for part in FIXED {
        date.push(0);
        date.extend_from_slice(&u64::from(part).to_le_bytes()[..number]);
    }
    dump.write_all_at(&date, at)
}

/// Where the date is, and how many bytes its numbers have.
fn place(head: [u8; 11]) -> Option<(u64, usize)> {
    let (magic, rest) = head.split_at(5);
    let [major, minor, _revision, number, _offset, _format] = *rest else {
        return None;
    };
    let is_known = magic == b"PGDMP" && major == 1 && (12..=16).contains(&minor) && number == 4;
    let compression = if [major, minor] >= ONE_BYTE {
        1
    } else {
        1 + u64::from(number)
    };
    is_known.then_some((11 + compression, usize::from(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_where_each_version_has_it() {
        let head = |minor| {
            *b"PGDMP\x01\x00\x00\x04\x08\x01"
                .as_slice()
                .first_chunk::<11>()
                .map(|head| {
                    let mut head = *head;
                    head[6] = minor;
                    Box::leak(Box::new(head))
                })
                .unwrap()
        };

        assert_eq!(place(head(14)), Some((16, 4)));
        assert_eq!(place(head(16)), Some((12, 4)));
        assert_eq!(place(head(99)), None);
        assert_eq!(place(*b"not a dump!"), None);
    }
}
