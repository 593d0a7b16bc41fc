//! Which snapshots of containers are beyond the limits, or of no use any more.

use super::cleanup::{ContainersCleaned, RemovedSnapshot};
use super::create::ContainerSaved;
use super::find::FoundContainer;
use super::list::{ContainerSnapshotStatus, KnownImages};
use super::{ContainerHost, SeenEngine};
use crate::error::{Error, error_chain};
use crate::handle::Containers;
use crate::warning::Warning;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{Label, SnapshotId};
use stasis_model::policy::retention::{
    AgeCountBytes, Clocks, Judgement, OnDoubt, RetentionPolicy, RetentionVerdict, Snapshot,
    SnapshotNeed, SnapshotOrigin, judge,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the limits say of all snapshots of a tenant.
pub(super) struct Judged {
    pub(super) going: Vec<RemovedSnapshot>,
    /// Those among them that nobody asked for or named.
    automatic: BTreeSet<SnapshotId>,
    pub(super) clock_doubt: Option<String>,
    /// What stays although there is no room for it, and why.
    pub(super) beyond: Option<String>,
}

/// What goes when there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Going {
    /// Whatever is beyond the limits.
    All,
    /// Of that, what was made without being asked for, and that nobody has named since.
    Automatic,
}

/// Snapshots that are judged together.
#[derive(Default)]
struct Judging {
    /// What somebody asked for, has named, or needs to take a restore back.
    asked: Vec<Snapshot>,
    /// What a server made by itself.
    automatic: Vec<Snapshot>,
    /// What a restore replaced, and nobody can go back to any more.
    replaced: Vec<RemovedSnapshot>,
}

/// Those that are of one engine: what another one has is none of its business.
fn of_engine<'f>(all: &'f [FoundContainer], engine: &str) -> Vec<&'f FoundContainer> {
    let all = all.iter();
    all.filter(|one| one.subject.engine() == engine).collect()
}

impl Containers<'_> {
    /// Removes what is beyond the limits, now that a snapshot was made, and says so with it. That is there, whatever becomes of the others.
    pub(super) async fn make_room(
        self,
        on: (&ContainerHost, &SeenEngine),
        limits: (&AgeCountBytes, Going),
        saved: &mut ContainerSaved,
    ) {
        match Box::pin(self.keep_limits(on, limits)).await {
            Ok((removed, beyond)) => {
                saved.removed = removed;
                let beyond = beyond.map(|reason| Warning::LimitsNotKept { reason });
                saved.warnings.extend(beyond);
            }
            Err(error) => {
                let reason = error_chain(&error);
                saved.warnings.push(Warning::LimitsNotKept { reason });
            }
        }
    }

    /// Removes what is beyond the limits; says what that was, and what of it stays.
    async fn keep_limits(
        self,
        (host, seen): (&ContainerHost, &SeenEngine),
        (limits, going): (&AgeCountBytes, Going),
    ) -> Result<(Vec<RemovedSnapshot>, Option<String>), Error> {
        // Of a container that cannot be read nothing goes, and nothing of it counts.
        let all = self.found(Some(&host.tenant)).await?.readable;
        let mut judged = self.judged(&all, &seen.digits, limits).await?;
        if going == Going::Automatic {
            let automatic = judged.automatic;
            judged
                .going
                .retain(|one| automatic.contains(&one.snapshot_id));
        }
        let mut cleaned = ContainersCleaned {
            snapshots: judged.going,
            ..ContainersCleaned::default()
        };
        if cleaned.snapshots.is_empty() {
            return Ok((cleaned.snapshots, judged.beyond));
        }
        let gone = cleaned.snapshots.iter().map(|one| one.snapshot_id.clone());
        let gone: BTreeSet<SnapshotId> = gone.collect();
        self.remove_going(&all, &gone, seen, &mut cleaned).await;
        // What a server removes by itself, its job that sweeps frees: every save would go through the whole pool.
        if going == Going::All {
            self.sweep_into(host, &mut cleaned).await;
        }
        Ok((cleaned.snapshots, judged.beyond))
    }

    /// What is beyond the limits of one engine: age first, then count, then bytes, the oldest first.
    ///
    /// What was made without being asked for takes the room that the others leave, and so pushes out none of them.
    pub(super) async fn judged(
        self,
        all: &[FoundContainer],
        engine: &str,
        limits: &AgeCountBytes,
    ) -> Result<Judged, Error> {
        let Judging {
            asked,
            automatic,
            replaced,
        } = self.judging(&of_engine(all, engine), limits).await?;
        let clocks = Clocks {
            local: self.clock.now(),
            store: self.bucket.clock_offset_ms().map(|_| self.lineages.now()),
            on_doubt: OnDoubt::RefuseAges,
        };
        let names = all.iter().flat_map(|of| {
            let name = of.subject.container();
            of.index.finished().map(move |one| (&one.id, name))
        });
        let names: BTreeMap<&SnapshotId, &str> = names.collect();
        let row = |one: &RetentionVerdict<'_>| RemovedSnapshot {
            snapshot_id: one.snapshot.id.clone(),
            container_name: names[&one.snapshot.id].to_owned(),
            because: one
                .goes_because
                .map_or_else(String::new, |why| why.to_string())
                .replace("its group", "its container"),
        };
        let first = judge(
            &RetentionPolicy::AgeCountBytes(limits.clone()),
            &asked,
            &clocks,
        );
        let left = RetentionPolicy::AgeCountBytes(left_by(&first, limits));
        let second = judge(&left, &automatic, &clocks);
        // The oldest first, as they go.
        let going = |judgement: &Judgement<'_>| {
            let going = judgement.verdicts.iter().rev();
            let going = going.filter(|one| !one.is_kept());
            going.map(&row).collect::<Vec<_>>()
        };
        let unasked = going(&second);
        let doubt = first.clock.as_ref().or(second.clock.as_ref());
        Ok(Judged {
            automatic: unasked.iter().map(|one| one.snapshot_id.clone()).collect(),
            clock_doubt: doubt.map(ToString::to_string),
            beyond: beyond([&first, &second], limits),
            going: [replaced, going(&first), unasked].concat(),
        })
    }

    async fn judging(
        self,
        all: &[&FoundContainer],
        limits: &AgeCountBytes,
    ) -> Result<Judging, Error> {
        let sizes = self.sizes(all, limits.max_bytes).await?;
        let (mut judging, now) = (Judging::default(), self.clock.now());
        let needed = self.needed_to_go_back().await?;
        for of in all {
            let mut undo = of.index.finished();
            let undo = undo.rfind(|one| one.reason == SaveReason::BeforeRestore);
            let undo = undo.filter(|one| now.since(one.at_ms) <= limits.max_age);
            let mut newest = of.index.finished();
            let newest = newest.rfind(|one| one.reason != SaveReason::BeforeRestore);
            for one in of.index.finished() {
                let is_undo = one.reason == SaveReason::BeforeRestore;
                // What was replaced takes no place among what somebody saved, and only the last of it is something to go back to.
                if is_undo && undo != Some(one) && !one.pinned && !needed.contains(&one.id) {
                    judging.replaced.push(RemovedSnapshot {
                        snapshot_id: one.id.clone(),
                        container_name: of.subject.container().to_owned(),
                        because: "undo needs it no more".to_owned(),
                    });
                    continue;
                }
                let is_automatic = one.reason == SaveReason::Autosave && one.labels.is_empty();
                let group = if is_undo { " undo" } else { "" };
                let group = format!("{}{group}", of.subject).parse();
                let snapshot = Snapshot {
                    id: one.id.clone(),
                    group: group.unwrap_or_else(|_| Label::nobody()),
                    created: one.at_ms,
                    bytes: sizes.get(&one.id).copied().unwrap_or_default().bytes(),
                    origin: SnapshotOrigin::Auto,
                    // What a server made makes room for others, but the last of a container stays: else two of them would push out each
                    // other for ever, and nothing would be left of one that is gone.
                    active: is_automatic && newest == Some(one),
                    pinned: one.pinned || needed.contains(&one.id),
                    verified: false,
                    rolled_back_at: None,
                    needed_for: (undo == Some(one)).then_some(SnapshotNeed::Undo),
                };
                if is_automatic {
                    judging.automatic.push(snapshot);
                } else {
                    judging.asked.push(snapshot);
                }
            }
        }
        Ok(judging)
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

/// Why automatic snapshots stay for which there is no room, if some do.
fn beyond(judged: [&Judgement<'_>; 2], limits: &AgeCountBytes) -> Option<String> {
    let [_, automatic] = judged;
    let mut unmet = automatic.unmet.iter();
    if unmet.all(|one| one.group.is_some()) {
        return None;
    }
    let kept = judged.into_iter().flat_map(|one| &one.verdicts);
    let kept = kept.filter(|one| one.is_kept());
    let sizes: Vec<u64> = kept.map(|one| one.snapshot.bytes).collect();
    let bytes = sizes.iter().copied().fold(0, u64::saturating_add);
    Some(format!(
        "{} snapshots of {bytes} bytes stay, where {} of {} bytes may: the last one of a container stays, and what is pinned",
        sizes.len(),
        limits.in_all,
        limits.max_bytes
    ))
}

/// The room that is left by what stays. Of one container there may be as many automatic ones as others.
fn left_by(kept: &Judgement<'_>, limits: &AgeCountBytes) -> AgeCountBytes {
    let kept = kept.verdicts.iter().filter(|one| one.is_kept());
    let (mut in_all, mut max_bytes) = (limits.in_all, limits.max_bytes);
    for one in kept {
        in_all = in_all.saturating_sub(1);
        max_bytes = max_bytes.saturating_sub(one.snapshot.bytes);
    }
    AgeCountBytes {
        in_all,
        max_bytes,
        ..limits.clone()
    }
}
