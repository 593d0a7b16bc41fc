//! Which snapshots of a lineage were ever the active one, as far as anything still tells.
//!
//! A flip needs the base that it supersedes, so what an active snapshot derives from was active too; and the pointer
//! remembers its last changes and the rollbacks of a month. A snapshot that neither leads to was stored without being
//! published, or was left by a rollback so long ago that nobody remembers.

use crate::digest::ArchiveDigest;
use crate::format::pointer::{Act, Pointer};
use std::collections::{BTreeMap, BTreeSet};

/// The snapshots that were active once; `predecessors` says what each one supersedes.
pub fn promoted(
    pointer: &Pointer,
    predecessors: &BTreeMap<ArchiveDigest, Option<ArchiveDigest>>,
) -> BTreeSet<ArchiveDigest> {
    // Acts that are about no snapshot remember the one that was active; a delete, a pin and a check are about any.
    let remembered = pointer
        .recent
        .iter()
        .filter(|entry| !matches!(entry.kind, Act::Delete | Act::Pin | Act::Unpin | Act::Check))
        .filter_map(|entry| entry.sha256);
    let rolled_back_to = pointer.rollbacks.iter().map(|mark| mark.sha256);
    let mut open: Vec<ArchiveDigest> = pointer
        .active_archive()
        .into_iter()
        .chain(pointer.flipped_from)
        .chain(remembered)
        .chain(rolled_back_to)
        .collect();
    let mut known = BTreeSet::new();
    while let Some(one) = open.pop() {
        if known.insert(one) {
            open.extend(predecessors.get(&one).copied().flatten());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::ManifestDigest;
    use crate::format::pointer::Active;
    use crate::id::OpId;
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn digest(text: &str) -> ArchiveDigest {
        ArchiveDigest::of(text.as_bytes())
    }

    fn flipped(pointer: &Pointer, to: &str, kind: Act) -> Pointer {
        let mut next = pointer.successor(OpId::default(), kind, Some(digest(to)), NOW);
        let active = Active {
            archive: digest(to),
            manifest: ManifestDigest::of(to.as_bytes()),
            archive_key: "a".to_owned(),
            manifest_key: "m".to_owned(),
        };
        next.point_at(active, NOW);
        next
    }

    #[test]
    fn what_the_active_one_derives_from_was_active_and_what_diverged_was_not() {
        let mut pointer = flipped(&Pointer::empty(), "c", Act::Flip);
        pointer.recent.clear();
        let pairs = [
            ("a", None),
            ("b", Some("a")),
            ("c", Some("b")),
            ("stray", Some("b")),
        ];
        let predecessors = pairs
            .iter()
            .map(|(one, from)| (digest(one), from.map(digest)))
            .collect();

        let known = promoted(&pointer, &predecessors);

        assert_eq!(known, ["a", "b", "c"].map(digest).into());
    }

    #[test]
    fn what_a_rollback_left_behind_is_remembered_and_a_pin_proves_nothing() {
        let pointer = flipped(&Pointer::empty(), "new", Act::Flip);
        let pointer = flipped(&pointer, "old", Act::Rollback);
        let pointer = pointer.successor(OpId::default(), Act::Pin, Some(digest("stray")), NOW);

        let known = promoted(&pointer, &BTreeMap::new());

        assert_eq!(known, ["new", "old"].map(digest).into());
    }

    #[test]
    fn a_circle_of_predecessors_ends() {
        let pointer = flipped(&Pointer::empty(), "a", Act::Flip);
        let circle = [("a", "b"), ("b", "a")].map(|(one, from)| (digest(one), Some(digest(from))));

        assert_eq!(promoted(&pointer, &circle.into()).len(), 2);
    }
}
