//! Which snapshots of containers are beyond the limits, or of no use any more.

use super::cleanup::{ContainersCleaned, RemovedSnapshot};
use super::find::FoundContainer;
use super::list::{ContainerSnapshotStatus, KnownImages};
use super::{ContainerHost, SeenEngine};
use crate::error::Error;
use crate::handle::Containers;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{Label, SnapshotId};
use stasis_model::policy::retention::{
    AgeCountBytes, Clocks, OnDoubt, RetentionPolicy, Snapshot, SnapshotNeed, SnapshotOrigin, judge,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the limits say of all snapshots of a tenant.
pub(super) struct Judged {
    pub(super) going: Vec<RemovedSnapshot>,
    pub(super) clock_doubt: Option<String>,
}

/// Those that are of one engine: what another one has is none of its business.
fn of_engine<'f>(all: &'f [FoundContainer], engine: &str) -> Vec<&'f FoundContainer> {
    let all = all.iter();
    all.filter(|one| one.subject.engine() == engine).collect()
}

impl Containers<'_> {
    /// Removes what is beyond the limits, now that a snapshot was made; says what went.
    pub(super) async fn keep_limits(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        limits: &AgeCountBytes,
    ) -> Result<ContainersCleaned, Error> {
        // Of a container that cannot be read nothing goes, and nothing of it counts.
        let all = self.found(Some(&host.tenant)).await?.readable;
        let judged = self.judged(&all, &seen.digits, limits).await?;
        let mut cleaned = ContainersCleaned {
            clock_doubt: judged.clock_doubt,
            snapshots: judged.going,
            ..ContainersCleaned::default()
        };
        if cleaned.snapshots.is_empty() {
            return Ok(cleaned);
        }
        let gone = cleaned.snapshots.iter().map(|one| one.snapshot_id.clone());
        let gone: BTreeSet<SnapshotId> = gone.collect();
        self.remove_going(&all, &gone, seen, &mut cleaned).await;
        self.sweep_into(host, &mut cleaned).await;
        Ok(cleaned)
    }

    /// What is beyond the limits of one engine: age first, then count, then bytes, the oldest first.
    pub(super) async fn judged(
        self,
        all: &[FoundContainer],
        engine: &str,
        limits: &AgeCountBytes,
    ) -> Result<Judged, Error> {
        let all = of_engine(all, engine);
        let sizes = self.sizes(&all, limits.max_bytes).await?;
        let (mut snapshots, mut names) = (Vec::new(), BTreeMap::new());
        let (mut replaced, now) = (Vec::new(), self.clock.now());
        let needed = self.needed_to_go_back().await?;
        for of in all {
            let mut undo = of.index.finished();
            let undo = undo.rfind(|one| one.reason == SaveReason::BeforeRestore);
            let undo = undo.filter(|one| now.since(one.at_ms) <= limits.max_age);
            for one in of.index.finished() {
                let is_undo = one.reason == SaveReason::BeforeRestore;
                // What was replaced takes no place among what somebody saved, and only the last of it is something to go back to.
                if is_undo && undo != Some(one) && !one.pinned && !needed.contains(&one.id) {
                    replaced.push(RemovedSnapshot {
                        snapshot_id: one.id.clone(),
                        container_name: of.subject.container().to_owned(),
                        because: "undo needs it no more".to_owned(),
                    });
                    continue;
                }
                let size = sizes.get(&one.id).copied().unwrap_or_default();
                names.insert(one.id.clone(), of.subject.container().to_owned());
                let group = if is_undo { " undo" } else { "" };
                let group = format!("{}{group}", of.subject).parse();
                snapshots.push(Snapshot {
                    id: one.id.clone(),
                    group: group.unwrap_or_else(|_| Label::nobody()),
                    created: one.at_ms,
                    bytes: size.bytes(),
                    origin: SnapshotOrigin::Auto,
                    active: false,
                    pinned: one.pinned || needed.contains(&one.id),
                    verified: false,
                    rolled_back_at: None,
                    needed_for: (undo == Some(one)).then_some(SnapshotNeed::Undo),
                });
            }
        }
        let clocks = Clocks {
            local: self.clock.now(),
            store: self.bucket.clock_offset_ms().map(|_| self.lineages.now()),
            on_doubt: OnDoubt::RefuseAges,
        };
        let policy = RetentionPolicy::AgeCountBytes(limits.clone());
        let judgement = judge(&policy, &snapshots, &clocks);
        let going = judgement.verdicts.iter().filter(|one| !one.is_kept());
        // The oldest first, as they go.
        let going = going.rev().map(|one| RemovedSnapshot {
            snapshot_id: one.snapshot.id.clone(),
            container_name: names[&one.snapshot.id].clone(),
            because: one
                .goes_because
                .map_or_else(String::new, |why| why.to_string())
                .replace("its group", "its container"),
        });
        replaced.extend(going);
        Ok(Judged {
            going: replaced,
            clock_doubt: judgement.clock.as_ref().map(ToString::to_string),
        })
    }

    /// Snapshots of which no container can be made any more.
    pub(super) async fn add_broken(
        self,
        host: &ContainerHost,
        all: &[FoundContainer],
        cleaned: &mut ContainersCleaned,
    ) -> Result<(), Error> {
        let known = KnownImages::ask(host).await;
        let needed = self.needed_to_go_back().await?;
        for of in all {
            let all = of.index.finished();
            for one in all.filter(|one| !one.pinned && !needed.contains(&one.id)) {
                let row = of.row(one, &known).await?;
                let is_going = cleaned.snapshots.iter();
                let is_going = is_going.map(|one| &one.snapshot_id).any(|id| *id == one.id);
                if row.status == ContainerSnapshotStatus::Broken && !is_going {
                    cleaned.snapshots.push(RemovedSnapshot {
                        snapshot_id: one.id.clone(),
                        container_name: row.container_name,
                        because: "its image is gone".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}
