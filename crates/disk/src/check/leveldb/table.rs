//! A table: blocks, an index of them, and a footer that says where the index is.

use super::block::{self, Handle};
use super::cursor::Cursor;
use super::{End, LevelDbTrouble, ReadFileAt, damage};

/// Two handles, room for the longest ones, and the magic number.
pub(super) const FOOTER: usize = 48;
/// The last eight bytes of every table.
pub(super) const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Sequence number and kind, behind every key.
const KEY_TRAILER: usize = 8;

/// A table whose footer and index are right.
pub(super) struct SortedTable<'a> {
    file: &'a dyn ReadFileAt,
    name: &'a str,
    is_bytewise: bool,
    blocks: Vec<Handle>,
}

impl<'a> SortedTable<'a> {
    pub(super) fn open(
        file: &'a dyn ReadFileAt,
        name: &'a str,
        is_bytewise: bool,
    ) -> Result<Self, LevelDbTrouble> {
        let (metaindex, index) = footer(file, name)?;
        for_each_handle(&block::read(file, name, metaindex)?, |_, filter| {
            block::read(file, name, filter).map(drop)
        })?;
        let index_block = block::read(file, name, index)?;
        let (mut blocks, mut end, mut last) = (Vec::new(), 0, Vec::new());
        for_each_handle(&index_block, |key, handle| {
            if handle.offset < end || handle.end().is_none_or(|end| end > index.offset) {
                let at = handle.offset;
                return damage(format!(
                    "the index leads to a block at byte {at} that is not there"
                ));
            }
            end = handle.offset + handle.size + block::TRAILER;
            blocks.push(handle);
            check_order(&mut last, key, is_bytewise)
        })?;
        Ok(Self {
            file,
            name,
            is_bytewise,
            blocks,
        })
    }

    /// The data blocks, in order.
    pub(super) fn blocks(&self) -> &[Handle] {
        &self.blocks
    }

    /// Reads one block and parses it; `last` is the last key of the block before. Says how large it is unpacked.
    pub(super) fn check_block(
        &self,
        handle: Handle,
        last: &mut Vec<u8>,
    ) -> Result<u64, LevelDbTrouble> {
        let bytes = block::read(self.file, self.name, handle)?;
        block::entries(&bytes, |key, _| check_order(last, key, self.is_bytewise))?;
        Ok(bytes.len() as u64)
    }
}

fn footer(file: &dyn ReadFileAt, name: &str) -> Result<(Handle, Handle), LevelDbTrouble> {
    let Some(at) = file.size().checked_sub(FOOTER as u64) else {
        return damage("it is too short for a table");
    };
    let mut footer = [0; FOOTER];
    let read = file.read_at(&mut footer, at);
    read.map_err(|error| End::unreadable(name, &error))?;
    let (handles, magic) = footer.split_at(footer.len() - 8);
    if Cursor::new(magic).fixed64() != Some(MAGIC) {
        return damage("it does not end like a table");
    }
    let mut cursor = Cursor::new(handles);
    match (Handle::parse(&mut cursor), Handle::parse(&mut cursor)) {
        (Some(metaindex), Some(index)) => Ok((metaindex, index)),
        _ => damage("its footer is not one"),
    }
}

fn for_each_handle(
    block: &[u8],
    mut each: impl FnMut(&[u8], Handle) -> Result<(), LevelDbTrouble>,
) -> Result<(), LevelDbTrouble> {
    block::entries(block, |key, value| {
        match Handle::parse(&mut Cursor::new(value)) {
            Some(handle) => each(key, handle),
            None => damage("the index leads nowhere"),
        }
    })
}

/// Checks that a key is one, and comes after the one before where the order is known; remembers it.
fn check_order(last: &mut Vec<u8>, key: &[u8], is_bytewise: bool) -> Result<(), LevelDbTrouble> {
    let Some((user, trailer)) = split(key) else {
        return damage("a key without a sequence number");
    };
    if is_bytewise {
        let before = split(last);
        // The newer of two writes to one key comes first.
        let is_after =
            before.is_none_or(|(before, newer)| before < user || before == user && newer > trailer);
        if !is_after {
            return damage("keys out of order");
        }
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(())
}

/// A key without its write, and the write.
pub(super) fn split(key: &[u8]) -> Option<(&[u8], u64)> {
    let (user, mut trailer) = key
        .split_at_checked(key.len().checked_sub(KEY_TRAILER)?)
        .map(|(user, trailer)| (user, Cursor::new(trailer)))?;
    Some((user, trailer.fixed64()?))
}
