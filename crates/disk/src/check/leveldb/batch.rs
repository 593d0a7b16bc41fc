//! A record of a log: a batch of writes that counts them.

use super::cursor::Cursor;
use super::{LevelDbTrouble, damage};

/// Checks that a batch holds as many writes as it says, and nothing else.
pub(super) fn check(record: &[u8]) -> Result<(), LevelDbTrouble> {
    writes(record, |_, _, _| Ok(()))
}

/// Calls `each` with the key and the value of every write, and with its number and kind as a table has them.
pub(super) fn writes(
    record: &[u8],
    mut each: impl FnMut(&[u8], &[u8], u64) -> Result<(), LevelDbTrouble>,
) -> Result<(), LevelDbTrouble> {
    let mut cursor = Cursor::new(record);
    let (Some(sequence), Some(count)) = (cursor.fixed64(), cursor.fixed32()) else {
        return damage("a batch without a header");
    };
    let mut found = 0_u64;
    while !cursor.is_empty() {
        let kind = cursor.byte();
        let written = match kind {
            Some(0) => cursor.string().map(|key| (key, &[][..])),
            Some(1) => cursor.string().zip(cursor.string()),
            _ => return damage("a batch with an unknown kind of write"),
        };
        let (Some((key, value)), Some(kind)) = (written, kind) else {
            return damage("a batch that ends too early");
        };
        each(
            key,
            value,
            sequence.wrapping_add(found) << 8 | u64::from(kind),
        )?;
        found += 1;
    }
    if found != u64::from(count) {
        return damage(format!(
            "a batch of {found} writes that says it has {count}"
        ));
    }
    Ok(())
}
