//! Removes what nobody needs any more: what was deleted, and what the tenant's policy lets go.
//!
//! 1. read the pointer, then the lock, then list
//! 2. judge, if retention is on; without it only deleted snapshots go
//! 3. tombstone in the pointer what goes, one swap each, and date the older marks of what still lies there anew
//! 4. read the pointer and list again; of what is tombstoned remove the manifest, then the archive, while the mark is
//!    younger than half a day
//! 5. drop the marks of which nothing was left when this sweep began, if they are a day old and nobody owns the lineage
//!
//! *Always true:* **no request that removes an object arrives while its snapshot is not tombstoned in the pointer.** The
//! rules of the pointer do the rest, in the version that is replaced: the active one and a pinned one are never
//! tombstoned, and what is tombstoned can be neither published to, nor rolled back to, nor pinned. So no pointer and no pin
//! ever leads to bytes that a sweep takes, wherever it stops: a crash after 3 leaves a deleted snapshot whole, a crash
//! within 4 leaves an archive without a manifest that the next sweep knows by its mark, a crash before 5 leaves a mark.
//!
//! **A save beside a sweep** puts its archive, then its manifest, then publishes. Between the first two the archive is an
//! *orphan*: it stays while anybody owns the lineage or may come back, and it stays for a day after it was written.
//! Between the last two the manifest is *unpublished*, and carries the epoch of its lease: it stays while that epoch is
//! not behind the fence, because only then can its writer still publish to it. A save whose bytes are by chance those of a
//! snapshot that is being removed finds the archive there, writes no other, and is refused at its publish: it fails, and
//! nothing dangles.
//!
//! **A mark may go** only when nobody can still want what it forbids: the swap that drops it is refused while somebody
//! owns the lineage or may come back, and raises the fence. Whoever saw the bytes before they went, did so under an older
//! lease and cannot publish; whoever comes later finds nothing and stores them anew.
//!
//! **Two sweeps of one lineage** may overlap, and any of them may stall between reading and removing, or send what arrives
//! late. Every removal is therefore sent within half a day after the date of the mark that its sweep read, by the time
//! that has passed since it read it; and a mark is dropped only a day after its date, which leaves a request half a day
//! to arrive. That is the one thing assumed here about time (and that the hosts' clocks, or the store's where it tells
//! the date, do not differ by hours). Marks older than that are dated anew before anything is removed for them, and a
//! mark is dropped only with the date that was read: one that was set or dated since then stays.

mod removal;
mod verdicts;

pub use removal::{PreservedObject, Removed};
pub use verdicts::GcVerdict;

use super::delete::known;
use super::inventory::Inventory;
use crate::address::as_typed;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Profiles;
use crate::warning::Warning;
use removal::Stale;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::pointer::PointerMark;
use stasis_model::id::{Label, Lineage, ProfileRef, TenantId};
use stasis_model::policy::retention::{CalendarPeriod, Newest, OnDoubt};
use stasis_model::policy::tenant::ProfileRetention;
use stasis_model::protocol::step::Refusal;
use stasis_store::documents::lineages::LineageError;
use stasis_store::documents::profiles;
use std::collections::BTreeMap;
use std::time::Duration;

/// Younger orphans are left alone.
const A_DAY: Duration = Duration::from_hours(24);

/// What may go.
#[derive(Clone, Debug)]
pub struct ProfileGc {
    /// Of which profile; of all when not given.
    pub subject: Option<ProfileRef>,
    /// Of which tenant; of all when not given.
    pub tenant: Option<TenantId>,
    /// How many of the newest are kept; saying it judges even where the policy is off.
    pub keep_newest: Option<u64>,
    /// Of how many calendar periods the newest is kept; each that is said takes the place of the policy's, and judges even where that is
    /// off.
    pub keep_periods: BTreeMap<CalendarPeriod, u64>,
    /// For how many days a rollback protects; saying it judges even where the policy is off.
    pub keep_rollback_days: Option<u64>,
    /// Whether ages count while clocks disagree.
    pub on_doubt: OnDoubt,
    /// Only says what would be done.
    pub dry_run: bool,
}

/// What went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Collected {
    /// Whether nothing was really done.
    pub dry_run: bool,
    /// One per lineage.
    #[serde(rename = "items")]
    pub lineages: Vec<LineageCollected>,
    /// How many objects were removed, or would be.
    pub objects_removed: u64,
    /// How many bytes they had.
    pub bytes_removed: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// What went of one lineage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LineageCollected {
    /// Which.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Whether a policy judged; otherwise only what was deleted goes.
    pub judged: bool,
    /// Every snapshot that was judged, and why it stays or goes, the newest first.
    pub verdicts: Vec<GcVerdict>,
    /// Objects that were removed, or would be.
    pub removed: Vec<Removed>,
    /// What looks like garbage and was left alone.
    #[serde(rename = "spared")]
    pub preserved: Vec<PreservedObject>,
    /// How many marks of removed snapshots were dropped.
    pub marks_dropped: u64,
    /// Why ages did not count, if they did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// Why nothing was done here, if nothing could be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl LineageCollected {
    fn nothing(subject: Lineage) -> Self {
        Self {
            subject,
            judged: false,
            verdicts: Vec::new(),
            removed: Vec::new(),
            preserved: Vec::new(),
            marks_dropped: 0,
            clock_doubt: None,
            failure: None,
        }
    }
}

impl ProfileGc {
    /// What is kept; `None` when nothing is judged.
    fn rules(&self, policy: &ProfileRetention) -> Option<Newest> {
        let asked = self.keep_newest.is_some()
            || self.keep_rollback_days.is_some()
            || !self.keep_periods.is_empty();
        let days = u64::from(policy.keep_rollback_days);
        let days = self.keep_rollback_days.unwrap_or(days);
        (asked || policy.enabled).then(|| Newest {
            keep: self.keep_newest.unwrap_or(u64::from(policy.keep_newest)),
            periods: policy.periods().with(&self.keep_periods),
            keep_rolled_back: Duration::from_secs(days.saturating_mul(A_DAY.as_secs())),
        })
    }
}

impl Profiles<'_> {
    /// Judges, tombstones and removes. A lineage whose documents are damaged is left alone and keeps no other from it.
    #[tracing::instrument(skip_all, err(level = "info"))]
    pub async fn gc(self, cmd: &ProfileGc) -> Result<Collected, Error> {
        self.store().ensure_trusted().await?;
        let lineages = if let Some(subject) = &cmd.subject {
            self.lineages_of(subject).await?
        } else {
            let all = profiles::lineages(&*self.bucket, cmd.tenant.as_ref()).await?;
            all.into_iter().collect()
        };
        let mut collected = Vec::with_capacity(lineages.len());
        for lineage in lineages {
            let one = match self.collect(&lineage, cmd).await {
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Limit) => {
                    tracing::warn!(subject = %lineage, %error, "lineage left alone");
                    let failure = Some(error_chain(&error));
                    let nothing = LineageCollected::nothing(lineage);
                    LineageCollected { failure, ..nothing }
                }
                one => one?,
            };
            collected.push(one);
        }
        let removed = || collected.iter().flat_map(|one| &one.removed);
        Ok(Collected {
            dry_run: cmd.dry_run,
            objects_removed: removed().count() as u64,
            bytes_removed: removed().map(|one| one.size_bytes).sum(),
            lineages: collected,
            warnings: self.clock_warnings(),
        })
    }

    async fn collect(self, lineage: &Lineage, cmd: &ProfileGc) -> Result<LineageCollected, Error> {
        let policy = self.tenants().policy(&lineage.tenant).await?;
        let rules = cmd.rules(&policy.retention);
        let inventory = self.sound_inventory(lineage).await?;
        let mut one = LineageCollected::nothing(lineage.clone());
        if inventory.pointer.is_none() {
            // Nobody ever owned it: there is no fence that anything could be behind.
            return Ok(one);
        }
        let mut stale = Stale::default();
        if let Some(rules) = rules {
            let judged = self.judge_snapshots(&inventory, rules, cmd.on_doubt);
            stale = self.stale_orphans(&inventory).await?;
            stale.snapshots = judged.going;
            (one.judged, one.verdicts, one.clock_doubt) = (true, judged.verdicts, judged.doubt);
            one.preserved.append(&mut stale.preserved);
        }
        if cmd.dry_run {
            one.removed = self.would_go(&inventory, &stale).await?;
            return Ok(one);
        }
        for target in stale.all() {
            let refused = self.condemn(&inventory, target).await?;
            one.preserved.extend(refused);
        }
        self.date_marks(&inventory).await?;
        one.removed = self.remove_tombstoned(lineage).await?;
        one.marks_dropped = self.drop_marks(&inventory).await?;
        Ok(one)
    }

    /// Tombstones one snapshot; says why not when the rules forbid it by now.
    async fn condemn(
        self,
        inventory: &Inventory,
        target: ArchiveDigest,
    ) -> Result<Option<PreservedObject>, Error> {
        let lineage = &inventory.lineage;
        let result = self
            .lineages
            .delete(lineage, target, known(inventory, target));
        match result.await {
            Err(LineageError::Refused {
                refusal:
                    refusal @ (Refusal::IsActive(_)
                    | Refusal::IsPinned(_)
                    | Refusal::IsLast(_)
                    | Refusal::Full { .. }),
                ..
            }) => Ok(Some(PreservedObject {
                what: target.prefix(),
                because: refusal.to_string(),
            })),
            result => {
                let moved = self.operations().settled(result).await?;
                let actor: Label = "gc".parse().expect("a constant that is a label");
                let event = self
                    .events()
                    .event(EventKind::Delete, Severity::Info, &actor)
                    .about(lineage.clone(), moved.op_id)
                    .with("sha256", target.to_string());
                // The mark in the pointer is the act; an event more or less must not stop the sweep.
                let _ = self.events().record(&lineage.tenant, event).await;
                Ok(None)
            }
        }
    }

    /// Dates the marks of what still lies there anew, where they are not fresh: only then may it be removed.
    async fn date_marks(self, inventory: &Inventory) -> Result<(), Error> {
        let marks = inventory.pointer.iter().flat_map(|found| &found.tombstones);
        let listed = |mark: &&PointerMark| removal::is_listed(inventory, mark.sha256);
        for mark in marks.filter(listed) {
            // Naming no snapshot, it sets no mark that somebody has dropped since.
            let lineage = &inventory.lineage;
            match self.lineages.delete(lineage, mark.sha256, Vec::new()).await {
                Err(LineageError::Refused {
                    refusal: Refusal::NoSuchSnapshot(_) | Refusal::Contended,
                    ..
                }) => {}
                result => drop(self.operations().settled(result).await?),
            }
        }
        Ok(())
    }

    /// Drops spent marks of which nothing was left when the sweep began.
    async fn drop_marks(self, inventory: &Inventory) -> Result<u64, Error> {
        let Some(pointer) = &inventory.pointer else {
            return Ok(0);
        };
        let now = self.lineages.now();
        let spent = pointer.tombstones.iter().filter(|mark| mark.is_spent(now));
        let gone: Vec<PointerMark> = spent
            .filter(|mark| !removal::is_listed(inventory, mark.sha256))
            .cloned()
            .collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let count = gone.len() as u64;
        match self.lineages.forget(&inventory.lineage, gone).await {
            Err(LineageError::Refused {
                refusal: Refusal::Held(_) | Refusal::Contended,
                ..
            }) => Ok(0),
            result => {
                self.operations().settled(result).await?;
                Ok(count)
            }
        }
    }
}

#[cfg(test)]
mod tests;
