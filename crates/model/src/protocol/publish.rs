//! Which snapshots of a lineage were ever the active one, as far as anything still tells.
//!
//! Publishing needs the base that is superseded, so what an active snapshot derives from was active too; and the pointer
//! records its last changes and the rollbacks of a month. A snapshot that neither leads to was stored without being
//! published, or was left by a rollback that is not recorded any more.

use crate::digest::ArchiveDigest;
use crate::format::pointer::{Pointer, PointerAct};
use std::collections::{BTreeMap, BTreeSet};

/// The snapshots that were active once; `predecessors` says what each one supersedes.
pub fn published(
    pointer: &Pointer,
    predecessors: &BTreeMap<ArchiveDigest, Option<ArchiveDigest>>,
) -> BTreeSet<ArchiveDigest> {
    // Acts that are about no snapshot record the one that was active; a delete, a pin and a check are about any.
    let recorded = pointer
        .recent
        .iter()
        .filter(|entry| {
            !matches!(
                entry.kind,
                PointerAct::Delete | PointerAct::Pin | PointerAct::Unpin | PointerAct::Check
            )
        })
        .filter_map(|entry| entry.sha256);
    let rolled_back_to = pointer.rollbacks.iter().map(|mark| mark.sha256);
    let mut open: Vec<ArchiveDigest> = pointer
        .active_archive()
        .into_iter()
        .chain(pointer.published_from)
        .chain(recorded)
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

    fn published_as(pointer: &Pointer, to: &str, kind: PointerAct) -> Pointer {
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
        let mut pointer = published_as(&Pointer::empty(), "c", PointerAct::Publish);
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

        let known = published(&pointer, &predecessors);

        assert_eq!(known, ["a", "b", "c"].map(digest).into());
    }

    #[test]
    fn what_a_rollback_left_behind_is_known_and_a_pin_proves_nothing() {
        let pointer = published_as(&Pointer::empty(), "new", PointerAct::Publish);
        let pointer = published_as(&pointer, "old", PointerAct::Rollback);
        let pointer =
            pointer.successor(OpId::default(), PointerAct::Pin, Some(digest("stray")), NOW);

        let known = published(&pointer, &BTreeMap::new());

        assert_eq!(known, ["new", "old"].map(digest).into());
    }

    #[test]
    fn a_circle_of_predecessors_ends() {
        let pointer = published_as(&Pointer::empty(), "a", PointerAct::Publish);
        let circle = [("a", "b"), ("b", "a")].map(|(one, from)| (digest(one), Some(digest(from))));

        assert_eq!(published(&pointer, &circle.into()).len(), 2);
    }
}
