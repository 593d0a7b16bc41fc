//! How chunks that no snapshot needs are removed, beside running saves and without trusting any clock.
//!
//! The subjects of a tenant share a pool of chunks; each has an index and manifests of its own. The pool has one
//! conditionally written document, `gc.json` ([`GcState`]): an epoch, and which names are condemned in it. A chunk's name carries
//! the epoch it was born in ([`ChunkName`]). A *donor* is a snapshot that a save takes names from: its parent, or one of
//! another subject of the pool.
//!
//! ```text
//! save                                              gc, one round
//! 1. read gc.json                                   1. read gc.json; a list is in? go to 5 with that list
//! 2. read the index, and those of donors; reuse     2. list the chunks
//!    names that live donors have,                   3. ask every manifest which of them it names
//!    else put `digest.epoch` (+1 if condemned)      4. swap the condemned list in
//! 3. put a manifest, under a name never used        5. ask every manifest again, subject by subject: list them,
//! 4. read gc.json again, and judge each name           read the index, read what either has; keep what they name
//!    condemned ─▶ store anew, back to 3             6. read gc.json: is the list still in? no: done
//!    epoch moved ─▶ is a donor that has it live     7. delete the rest
//!    in its index? no: store anew, back to 3;       8. swap the list out, epoch + 1
//!    yes: 4
//! 5. swap the index, at any later time
//! ```
//!
//! A long save goes through 3 and 4 now and then with what it has stored so far, and then goes on with 2: its manifest is
//! provisional, and what it proved stays proved.
//!
//! *Always true:*
//! - A DELETE of a name is only ever sent after the name was condemned, in an epoch not before its birth; each epoch
//!   has at most one list. So a name not condemned now and born now (or later) was never deleted.
//! - A name in a manifest that an index leads to was never deleted, not even by a request still under way: its save
//!   saw, after its manifest could be listed, that the name was not condemned, and every list that came later leaves it out.
//! - What passed once passes for good, as long as the manifest stays; so a save repeats only for what it stored last.
//! - A manifest is written once and never rewritten. It goes only when its save cannot publish it any more: tombstoned, which
//!   needs its lease to be behind the fence, or of another incarnation than its index's ([`manifests`]). A live save's
//!   manifest protects what it names.
//! - A round deletes only what it found unnamed while its list was in, from the first look at a manifest to the last. Looking
//!   is not one moment: a snapshot may be forked into a subject that was looked at already and be forgotten in one that
//!   was not. If the list stays in all the while, such a fork either meets the list or finds its donor gone.
//! - Names never pass from one pool to another: neither pool's gc would know of the other's manifests.
//!
//! Nothing rests on a chunk *existing* when looked at: a PUT that lands late can bring a deleted name back, and a slow
//! round may be about to delete a name that another one kept. Any request may land late or twice, then.
//!
//! *Crash points.* A save that dies leaves garbage: chunks that the next round takes, and manifests that protect their
//! chunks until the next owner of the subject raises the fence. A round that dies before 4 leaves nothing; after 4 it
//! leaves its list in, which costs saves that meet it a second copy of the condemned chunks and which the next round
//! finishes. Two rounds at once work on the same list: the second one loses a swap, reads, and finds it done.

mod guard;
pub mod manifests;
mod round;
mod state;

pub use crate::chunk_name::{ChunkName, GcEpoch};
pub use guard::{GaveUp, Replacement, SaveAnswer, SaveGuard, SaveStep};
pub use round::{Abort, GcAnswer, GcReport, GcRound, GcStep};
pub use state::{CONDEMNED_BYTES, CONDEMNED_LIMIT, GcDocument, GcState};

use crate::digest::ChunkDigest;
use std::collections::BTreeSet;

/// A set of chunk names.
pub type Names = BTreeSet<ChunkName>;

/// How often a request that settles nothing is repeated before the operation is given up.
pub const ATTEMPTS: u8 = 3;

/// What a name is worth to a save whose manifest can be listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChunkStatus {
    /// It exists and will not be deleted while the manifest stays.
    Proved,
    /// A gc round may be deleting it right now.
    Condemned,
    /// A gc round was finished since the save learned of it, and may have deleted it.
    Doubtful,
}

/// Judges one name that a save learned of in epoch `since` (from a live donor, or by storing it) after reading `now`.
pub fn judge(name: &ChunkName, since: GcEpoch, now: &GcState) -> ChunkStatus {
    if now.condemns(name) {
        ChunkStatus::Condemned
    } else if since == now.epoch || name.born() >= now.epoch {
        ChunkStatus::Proved
    } else {
        ChunkStatus::Doubtful
    }
}

/// What a save has to do before it may swap the index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "publishing against the verdict can leave a snapshot without its chunks"]
pub enum PublishVerdict {
    /// Nothing more: every name is safe for good.
    Publish,
    /// These names are condemned: their bytes must be stored under new names.
    StoreAnew(Names),
    /// An epoch went by.
    CheckIndexed {
        /// Safe only if a donor has them that is live in its index, read from now on; else to be stored anew.
        doubtful: Names,
        /// To be stored anew in any case.
        condemned: Names,
    },
}

/// Judges all names a save has not proved yet; see [`judge`].
pub fn before_publish(since: GcEpoch, now: &GcState, names: &Names) -> PublishVerdict {
    let with_status = |wanted: ChunkStatus| -> Names {
        let fits = |name: &&ChunkName| judge(name, since, now) == wanted;
        names.iter().filter(fits).copied().collect()
    };
    let condemned = with_status(ChunkStatus::Condemned);
    let doubtful = with_status(ChunkStatus::Doubtful);
    if !doubtful.is_empty() {
        PublishVerdict::CheckIndexed {
            doubtful,
            condemned,
        }
    } else if !condemned.is_empty() {
        PublishVerdict::StoreAnew(condemned)
    } else {
        PublishVerdict::Publish
    }
}

/// The name under which a save uses a chunk: the one that a live donor has for it, or one born now.
///
/// `indexed` must come from a snapshot in an index that was read after `gc`. A name born now may exist already, put there by another
/// save or by one that died; then its bytes need not be sent again.
pub fn place(digest: ChunkDigest, indexed: Option<ChunkName>, gc: &GcState) -> ChunkName {
    match indexed.filter(|name| name.digest() == digest && !gc.condemns(name)) {
        Some(name) => name,
        None => newborn(digest, gc),
    }
}

/// A name for `digest` that was never deleted and is not about to be.
pub fn newborn(digest: ChunkDigest, gc: &GcState) -> ChunkName {
    let name = ChunkName::new(digest, gc.epoch);
    if gc.condemns(&name) {
        // Born before its epoch: the list of this epoch is fixed already, so it cannot hold this name.
        ChunkName::new(digest, gc.epoch.next())
    } else {
        name
    }
}

/// Chooses what to condemn among the listed chunks: what no manifest names, at most [`CONDEMNED_LIMIT`] at a time.
///
/// `gc` must have been read before the chunks were listed, and its very version be replaced by the list.
pub fn mark(listed: &Names, referenced: &Names, gc: &GcState) -> Names {
    listed
        .difference(referenced)
        .filter(|name| name.born() <= gc.epoch)
        .take(CONDEMNED_LIMIT)
        .copied()
        .collect()
}

/// What of a condemned list may be deleted: what no manifest names, all of them asked after the list was in.
pub fn unreferenced(condemned: &Names, referenced: &Names) -> Names {
    condemned.difference(referenced).copied().collect()
}

#[cfg(test)]
mod tests;
