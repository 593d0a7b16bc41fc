//! What the policy says of the snapshots of one lineage.

use crate::handle::Profiles;
use crate::kind::profile::inventory::Damage;
use crate::kind::profile::inventory::Inventory;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::pointer::PointerMark;
use stasis_model::id::{Label, SnapshotId};
use stasis_model::policy::retention::{
    self, Clocks, Newest, OnDoubt, RetentionPolicy, Snapshot, SnapshotOrigin,
};
use stasis_model::time::Timestamp;
use stasis_store::documents::profiles::StoredSnapshot;
use std::collections::BTreeMap;

/// How many digits tell the snapshots of one lineage apart here.
const DIGITS: usize = 40;

/// What becomes of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GcVerdict {
    /// Which.
    pub sha256: ArchiveDigest,
    /// When it was captured.
    pub captured_at: String,
    /// The same in milliseconds.
    pub captured_at_ms: Timestamp,
    /// Whether it stays.
    pub kept: bool,
    /// Why.
    pub because: Vec<String>,
}

impl GcVerdict {
    fn new(sha256: ArchiveDigest, at: Timestamp, kept: bool, because: Vec<String>) -> Self {
        Self {
            sha256,
            captured_at: at.to_string(),
            captured_at_ms: at,
            kept,
            because,
        }
    }
}

/// A judgement, put into words.
pub(super) struct SnapshotVerdicts {
    pub(super) verdicts: Vec<GcVerdict>,
    pub(super) going: Vec<ArchiveDigest>,
    pub(super) doubt: Option<String>,
}

impl Profiles<'_> {
    /// Judges what is whole and not deleted. What its writer may yet publish is not judged but kept.
    pub(super) fn judge_snapshots(
        self,
        inventory: &Inventory,
        rules: Newest,
        on_doubt: OnDoubt,
    ) -> SnapshotVerdicts {
        let published = inventory.published();
        let fence = inventory
            .pointer
            .as_ref()
            .map(|pointer| pointer.fence.epoch);
        let (mut verdicts, mut snapshots) = (Vec::new(), Vec::new());
        let mut digests: BTreeMap<SnapshotId, ArchiveDigest> = BTreeMap::new();
        for one in &inventory.stored.snapshots {
            let sha256 = one.active.archive;
            if inventory.is_tombstoned(sha256) || one.damage().is_some() {
                continue;
            }
            let is_published = published.contains(&sha256);
            if !is_published && Some(one.manifest.lease_epoch) >= fence {
                let why = vec!["its writer may yet publish it".to_owned()];
                let at = one.manifest.captured_at_ms;
                verdicts.push(GcVerdict::new(sha256, at, true, why));
                continue;
            }
            let proven = judged(inventory, one);
            // What was never published may come back, and still be nobody's profile.
            let snapshot = Snapshot {
                verified: proven.verified && is_published,
                ..proven
            };
            digests.insert(snapshot.id.clone(), sha256);
            snapshots.push(snapshot);
        }
        let clocks = Clocks {
            local: self.clock.now(),
            store: self.bucket.clock_offset_ms().map(|_| self.lineages.now()),
            on_doubt,
        };
        let judgement = retention::judge(&RetentionPolicy::Newest(rules), &snapshots, &clocks);
        let mut going = Vec::new();
        for verdict in &judgement.verdicts {
            let sha256 = digests[&verdict.snapshot.id];
            let kept = verdict.kept_because.iter().map(ToString::to_string);
            let goes = verdict.goes_because.iter().map(ToString::to_string);
            going.extend((!verdict.is_kept()).then_some(sha256));
            let because = if verdict.is_kept() {
                kept.collect()
            } else {
                goes.collect()
            };
            let at = verdict.snapshot.created;
            verdicts.push(GcVerdict::new(sha256, at, verdict.is_kept(), because));
        }
        // The oldest first, so that a sweep that is stopped has taken the oldest.
        going.reverse();
        SnapshotVerdicts {
            verdicts,
            going,
            doubt: judgement.clock.map(|doubt| doubt.to_string()),
        }
    }
}

fn judged(inventory: &Inventory, one: &StoredSnapshot) -> Snapshot {
    let archive = one.active.archive;
    let at = |marks: &[PointerMark]| {
        let of_it = marks.iter().filter(|mark| mark.sha256 == archive);
        of_it.map(|mark| mark.at_ms).max()
    };
    let pointer = inventory.pointer.as_ref();
    Snapshot {
        created: one.manifest.captured_at_ms,
        id: archive.to_string()[..DIGITS]
            .parse()
            .expect("hexadecimal digits are a name"),
        group: Label::nobody(),
        bytes: one.manifest.archive_size_bytes,
        origin: SnapshotOrigin::Auto,
        active: inventory.active() == Some(archive),
        pinned: pointer.is_some_and(|pointer| pointer.is_pinned(archive)),
        verified: pointer
            .is_some_and(|pointer| pointer.is_proven(archive, one.manifest.checked_at_ms)),
        needed_for: None,
        rolled_back_at: pointer.and_then(|pointer| at(&pointer.rollbacks)),
    }
}
