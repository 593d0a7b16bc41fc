//! A record of a log: a batch of writes that counts them.

use super::varint::Cursor;
use super::{Trouble, damage};

/// Checks that a batch holds as many writes as it says, and nothing else.
pub(super) fn check(record: &[u8]) -> Result<(), Trouble> {
    let mut cursor = Cursor(record);
    let (Some(_sequence), Some(count)) = (cursor.fixed64(), cursor.fixed32()) else {
        return damage("a batch without a header");
    };
    let mut found = 0_u64;
    while !cursor.is_empty() {
        let write = match cursor.byte() {
            Some(0) => cursor.string(),
            Some(1) => cursor.string().and_then(|_| cursor.string()),
            _ => return damage("a batch with an unknown kind of write"),
        };
        if write.is_none() {
            return damage("a batch that ends too early");
        }
        found += 1;
    }
    if found != u64::from(count) {
        return damage(format!(
            "a batch of {found} writes that says it has {count}"
        ));
    }
    Ok(())
}
