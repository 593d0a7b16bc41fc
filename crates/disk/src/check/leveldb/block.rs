//! A block of a table: checked, unpacked, and its entries read one after the other.

use super::cursor::{Cursor, masked};
use super::{End, LARGEST, LevelDbTrouble, ReadFileAt, damage};

/// Behind every block: how it is packed, and its checksum.
pub(super) const TRAILER: u64 = 5;

/// Where a block is in its file, without its trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handle {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Handle {
    pub(super) fn parse(cursor: &mut Cursor<'_>) -> Option<Self> {
        let (offset, size) = (cursor.varint64()?, cursor.varint64()?);
        Some(Self { offset, size })
    }

    /// Where the trailer ends; `None` beyond the end of numbers.
    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)?.checked_add(TRAILER)
    }
}

/// Reads a block, checks it and unpacks it.
pub(super) fn read(
    file: &dyn ReadFileAt,
    name: &str,
    handle: Handle,
) -> Result<Vec<u8>, LevelDbTrouble> {
    let at = handle.offset;
    if handle.end().is_none_or(|end| end > file.size()) {
        return damage(format!("a block at byte {at} that goes beyond the end"));
    }
    if handle.size > LARGEST {
        return Err(too_large(name, at).into());
    }
    let length = usize::try_from(handle.size + TRAILER).map_err(|_| too_large(name, at))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, at);
    read.map_err(|error| End::unreadable(name, &error))?;
    let (checked, stored) = bytes.split_at(length - 4);
    if Cursor::new(stored).fixed32() != Some(masked(crc32c::crc32c(checked))) {
        return damage(format!(
            "the block at byte {at} does not match its checksum"
        ));
    }
    let (packing, packed) = checked.split_last().expect("a trailer is five bytes");
    match packing {
        0 => {
            bytes.truncate(length - 5);
            Ok(bytes)
        }
        1 => unpack_snappy(packed, name, at),
        2 => unpack_zstd(packed, name, at),
        _ => damage(format!(
            "the block at byte {at} is packed in an unknown way"
        )),
    }
}

fn too_large(name: &str, at: u64) -> End {
    End::limit(format!(
        "`{name}` has a block of more than {LARGEST} bytes at byte {at}"
    ))
}

fn unpack_snappy(packed: &[u8], name: &str, at: u64) -> Result<Vec<u8>, LevelDbTrouble> {
    let length = snap::raw::decompress_len(packed).ok();
    if length.is_some_and(|length| length as u64 > LARGEST) {
        return Err(too_large(name, at).into());
    }
    let unpacked = length.and_then(|_| snap::raw::Decoder::new().decompress_vec(packed).ok());
    match unpacked {
        Some(bytes) => Ok(bytes),
        None => damage(format!("the block at byte {at} cannot be unpacked")),
    }
}

fn unpack_zstd(packed: &[u8], name: &str, at: u64) -> Result<Vec<u8>, LevelDbTrouble> {
    let most = usize::try_from(LARGEST).unwrap_or(usize::MAX);
    let said = zstd::zstd_safe::get_frame_content_size(packed)
        .ok()
        .flatten();
    let Some(length) = said else {
        return damage(format!("the block at byte {at} cannot be unpacked"));
    };
    if length > LARGEST {
        return Err(too_large(name, at).into());
    }
    let room = usize::try_from(length).unwrap_or(most);
    match zstd::bulk::decompress(packed, room) {
        Ok(bytes) => Ok(bytes),
        Err(_) => damage(format!("the block at byte {at} cannot be unpacked")),
    }
}

/// Calls `each` with the key and the value of every entry, in order.
pub(super) fn entries(
    block: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), LevelDbTrouble>,
) -> Result<(), LevelDbTrouble> {
    let Some(data) = without_restarts(block) else {
        return damage("a block whose restarts do not fit");
    };
    let (mut cursor, mut key) = (Cursor::new(data), Vec::new());
    while !cursor.is_empty() {
        let Some((shared, suffix, value)) = entry(&mut cursor) else {
            return damage("an entry that goes beyond its block");
        };
        if shared > key.len() {
            return damage("an entry that shares more than there is");
        }
        key.truncate(shared);
        key.extend_from_slice(suffix);
        each(&key, value)?;
    }
    Ok(())
}

fn entry<'a>(cursor: &mut Cursor<'a>) -> Option<(usize, &'a [u8], &'a [u8])> {
    let (shared, own, value) = (cursor.varint32()?, cursor.varint32()?, cursor.varint32()?);
    let suffix = cursor.take(usize::try_from(own).ok()?)?;
    let value = cursor.take(usize::try_from(value).ok()?)?;
    Some((usize::try_from(shared).ok()?, suffix, value))
}

/// The entries of a block: what stands before its restarts, each of which must lead into them.
fn without_restarts(block: &[u8]) -> Option<&[u8]> {
    let (rest, count) = block.split_at_checked(block.len().checked_sub(4)?)?;
    let count = usize::try_from(Cursor::new(count).fixed32()?).ok()?;
    let at = rest.len().checked_sub(count.checked_mul(4)?)?;
    let (data, restarts) = rest.split_at(at);
    let mut restarts = Cursor::new(restarts);
    while let Some(restart) = restarts.fixed32() {
        if usize::try_from(restart).ok()? > data.len() {
            return None;
        }
    }
    Some(data)
}
