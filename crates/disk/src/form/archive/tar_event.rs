//! What a tar is made of, in the order of its bytes.

use stasis_model::tree::Entry;
use std::ops::Range;

/// What was found in the bytes that were fed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TarEvent {
    /// An entry, and where its headers begin in the tar. If it is a file with a size, that much content follows.
    Entry(Entry, u64),
    /// The next bytes of the content, as a part of what was fed.
    Content(Range<usize>),
    /// So many zeros of the content, which are not stored.
    Hole(u64),
}
