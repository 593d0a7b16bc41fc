//! The state as bytes, so that a monitor can go on where an earlier one stopped.
//!
//! A mark, then one record per entry (length of the path, path, kind, inode, size, two times; numbers little-endian), then
//! the BLAKE3 of all that. Directories come before what they hold.

use super::table::{EntryStat, EntryTable, WatchedKind};
use stasis_model::tree::EntryPath;

const MARK: &[u8; 16] = b"stasis beliefs 1";
const DIGEST: usize = blake3::OUT_LEN;

/// The bytes are not what was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damaged;

pub(super) fn encode(table: &EntryTable) -> Vec<u8> {
    let mut entries: Vec<(EntryPath, &EntryStat)> = table.iter().collect();
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut bytes = MARK.to_vec();
    for (path, fact) in entries {
        let path = path.as_bytes();
        let length = u32::try_from(path.len()).expect("no path has 4 GiB");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(path);
        bytes.push(match fact.kind {
            WatchedKind::File => b'f',
            WatchedKind::Symlink => b'l',
            WatchedKind::Directory => b'd',
        });
        bytes.extend_from_slice(&fact.inode.to_le_bytes());
        bytes.extend_from_slice(&fact.size.to_le_bytes());
        bytes.extend_from_slice(&fact.modified.to_le_bytes());
        bytes.extend_from_slice(&fact.changed.to_le_bytes());
    }
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Result<EntryTable, Damaged> {
    let (body, digest) = bytes.split_last_chunk::<DIGEST>().ok_or(Damaged)?;
    if blake3::hash(body) != *digest {
        return Err(Damaged);
    }
    let mut rest = body.strip_prefix(MARK).ok_or(Damaged)?;
    let mut table = EntryTable::default();
    while !rest.is_empty() {
        let (path, fact) = record(&mut rest).ok_or(Damaged)?;
        if !table.insert(&path, fact) {
            return Err(Damaged);
        }
    }
    Ok(table)
}

fn record(rest: &mut &[u8]) -> Option<(EntryPath, EntryStat)> {
    let length = u32::from_le_bytes(take(rest)?);
    let (path, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    let kind = match take(rest)? {
        [b'f'] => WatchedKind::File,
        [b'l'] => WatchedKind::Symlink,
        [b'd'] => WatchedKind::Directory,
        _ => return None,
    };
    let fact = EntryStat {
        inode: u64::from_le_bytes(take(rest)?),
        size: u64::from_le_bytes(take(rest)?),
        modified: i64::from_le_bytes(take(rest)?),
        changed: i64::from_le_bytes(take(rest)?),
        kind,
        // Whoever goes on with this looks at everything anyway.
        is_fresh: false,
        has_more_names: false,
    };
    Some((EntryPath::parse(path).ok()?, fact))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}
