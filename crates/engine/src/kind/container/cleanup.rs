//! Keeps the limits of containers' snapshots, and removes what was left of interrupted work.
//!
//! *Always true:* what is removed is a snapshot beyond the limits, or something that we made ourselves and that nothing needs: what has
//! our labels, is of this store, and is not being worked on. An index that cannot be read ends it before anything is removed.

use super::find::FoundContainer;
use super::image::{
    AT_LABEL, BY_LABEL, HELPER_LABEL, POOL_LABEL, SNAPSHOT_LABEL, SUBJECT_LABEL, image_name,
    layered_name,
};
use super::list::{ContainerSnapshotStatus, KnownImages};
use super::lock::ContainerLock;
use super::take_back::{Forward, TakenBack};
use super::{ContainerHost, SeenEngine};
use crate::error::{Error, ErrorKind, error_chain};
use crate::gc::RepoGc;
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{ContainerSubject, Label, OpId, SnapshotId};
use stasis_model::policy::retention::{
    AgeCountBytes, Clocks, OnDoubt, RetentionPolicy, Snapshot, SnapshotNeed, SnapshotOrigin, judge,
};
use stasis_model::time::Timestamp;
use stasis_quiesce::docker::VolumeRemoval;
use stasis_store::documents::containers::images;
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Nobody works on one thing for longer.
const LONGEST_WORK: Duration = Duration::from_hours(24);

/// What is cleaned up.
#[derive(Clone, Debug)]
pub struct CleanupContainers {
    /// How many snapshots there may be, how old, and how large.
    pub limits: AgeCountBytes,
    /// Whether snapshots go whose image is gone, and what other hosts left.
    pub orphans: bool,
    /// Whether this only says what would be done.
    pub dry_run: bool,
}

/// A snapshot that is beyond the limits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RemovedSnapshot {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Of which container.
    pub container_name: String,
    /// Why.
    pub because: String,
}

/// What was cleaned up.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainersCleaned {
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// Snapshots that are gone.
    pub snapshots: Vec<RemovedSnapshot>,
    /// Images that nothing needed.
    pub images: Vec<String>,
    /// Containers of ours that nothing needed.
    pub containers: Vec<String>,
    /// Volumes that an interrupted restore left.
    pub volumes: Vec<String>,
    /// Containers that are what they were: a replacement of them had been interrupted.
    pub brought_back: Vec<String>,
    /// Bytes of the store that are free again.
    pub bytes_removed: u64,
    /// Images of snapshots that are gone, which containers use: they go once that is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images_in_use: Vec<String>,
    /// What could not be removed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Why nothing went because of its age.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
}

/// What the limits say of all snapshots of a tenant.
pub(super) struct Judged {
    pub(super) going: Vec<RemovedSnapshot>,
    clock_doubt: Option<String>,
}

/// Those that are of one engine: what another one has is none of its business.
fn of_engine<'f>(all: &'f [FoundContainer], engine: &str) -> Vec<&'f FoundContainer> {
    let all = all.iter();
    all.filter(|one| one.subject.engine() == engine).collect()
}

impl Containers<'_> {
    /// Keeps the limits, and removes what was left of interrupted work.
    pub async fn cleanup(
        self,
        host: &ContainerHost,
        how: &CleanupContainers,
    ) -> Result<ContainersCleaned, Error> {
        self.store().ensure_trusted().await?;
        let seen = host.look().await?;
        self.engine.thaw_left().await;
        let mut cleaned = ContainersCleaned {
            dry_run: how.dry_run,
            ..ContainersCleaned::default()
        };
        if how.dry_run {
            cleaned.brought_back = self.interrupted(&seen).await?;
        } else {
            self.bring_back(host, &seen, &mut cleaned).await?;
        }
        let pool = self.pool(&host.tenant).await?;
        // A volume that a container uses cannot go before that, and neither can an image.
        if let Some(pool) = pool {
            self.clean_helpers(&seen, pool, how, &mut cleaned).await?;
        }
        self.clean_restores(&seen, how, &mut cleaned).await?;
        let Some(pool) = pool else {
            return Ok(cleaned);
        };
        let all = self.found(Some(&host.tenant)).await?;
        let judged = self.judged(&all, &seen.digits, &how.limits).await?;
        cleaned.clock_doubt = judged.clock_doubt;
        cleaned.snapshots = judged.going;
        if how.orphans {
            self.add_broken(host, &all, &mut cleaned).await?;
        }
        if !how.dry_run {
            let gone = cleaned.snapshots.iter().map(|one| one.snapshot_id.clone());
            let gone: BTreeSet<SnapshotId> = gone.collect();
            self.remove_going(&all, &gone, &seen, &mut cleaned).await;
        }
        self.clean_images((host, &seen), pool, how, &mut cleaned)
            .await?;
        if !how.dry_run {
            self.sweep_into(host, &mut cleaned).await;
        }
        Ok(cleaned)
    }

    /// Removes what is beyond the limits, now that a snapshot was made; says what went.
    pub(super) async fn keep_limits(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        limits: &AgeCountBytes,
    ) -> Result<ContainersCleaned, Error> {
        let all = self.found(Some(&host.tenant)).await?;
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
    async fn add_broken(
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

    async fn remove_going(
        self,
        all: &[FoundContainer],
        gone: &BTreeSet<SnapshotId>,
        seen: &SeenEngine,
        cleaned: &mut ContainersCleaned,
    ) {
        for of in all {
            let ids = of.index.finished().map(|one| one.id.clone());
            let ids: Vec<SnapshotId> = ids.filter(|id| gone.contains(id)).collect();
            if ids.is_empty() {
                continue;
            }
            // Whoever works on the container may be about to go back to one of them.
            let name = of.subject.container();
            let locked = self
                .lock_subject(of.subject.as_str(), name, "cleaned up")
                .await;
            let removed = match locked {
                Ok(_lock) => self.remove(of, &ids, Some(seen)).await,
                Err(error) => Err(error),
            };
            match removed {
                // An image that is still in use is looked at with the others.
                Ok(_) => {}
                Err(error) => {
                    cleaned
                        .snapshots
                        .retain(|one| !ids.contains(&one.snapshot_id));
                    let said = format!("{}: {}", of.subject.container(), error_chain(&error));
                    cleaned.left.push(said);
                }
            }
        }
    }

    /// Brings containers back whose replacement was interrupted.
    async fn bring_back(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        cleaned: &mut ContainersCleaned,
    ) -> Result<(), Error> {
        for name in self.interrupted(seen).await? {
            let locked = self.lock(seen, &name, "brought back").await;
            let back = match locked {
                Ok(_lock) => {
                    let back = self.take_back(host, seen, &name, Forward::IfItWorks);
                    Box::pin(back).await
                }
                // Somebody is at it.
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                Err(error) => Err(error),
            };
            match back {
                Ok(TakenBack::There) => cleaned.brought_back.push(name),
                Ok(TakenBack::Gone(safety)) => cleaned.left.push(TakenBack::gone(&name, &safety)),
                Ok(TakenBack::Nothing) => {}
                Err(error) => {
                    let said = format!("{name}: {}", error_chain(&error));
                    cleaned.left.push(said);
                }
            }
        }
        Ok(())
    }

    /// Images of snapshots that there are not, and layers in the store of those.
    async fn clean_images(
        self,
        (host, seen): (&ContainerHost, &SeenEngine),
        pool: OpId,
        how: &CleanupContainers,
        cleaned: &mut ContainersCleaned,
    ) -> Result<(), Error> {
        let going = cleaned.snapshots.iter().map(|one| one.snapshot_id.clone());
        let going: BTreeSet<SnapshotId> = going.filter(|_| how.dry_run).collect();
        let label = format!("{POOL_LABEL}={pool}");
        for image in seen.docker.images_labelled(&label).await? {
            let of = image.labels.get(SNAPSHOT_LABEL);
            let Some(of): Option<SnapshotId> = of.and_then(|id| id.parse().ok()) else {
                continue;
            };
            // What somebody else made of a container of ours has its labels, and other names, or none.
            let names = [image_name(&of), layered_name(&of)];
            let names: Vec<&String> = names
                .iter()
                .filter(|name| image.tags.contains(name))
                .collect();
            if names.is_empty() {
                continue;
            }
            let Some(_lock) = self.abandoned(&image.labels, how.orphans).await? else {
                continue;
            };
            // Nobody makes it known from here on.
            let is_known = self.knows(host, &image.labels, &of).await? && !going.contains(&of);
            for name in names {
                if is_known && *name == image_name(&of) {
                    continue;
                }
                remove_image(seen, name, how.dry_run, cleaned).await;
            }
        }
        if how.dry_run {
            return Ok(());
        }
        for id in images(&*self.bucket, &host.tenant).await? {
            let labels = self.labels_of_layers(&host.tenant, &id).await?;
            let Some(_lock) = self.abandoned(&labels, how.orphans).await? else {
                continue;
            };
            if !self.knows(host, &labels, &id).await? {
                self.remove_layers(&host.tenant, &id).await?;
            }
        }
        Ok(())
    }

    /// Whether there is such a snapshot, as the store says now.
    async fn knows(
        self,
        host: &ContainerHost,
        labels: &BTreeMap<String, String>,
        id: &SnapshotId,
    ) -> Result<bool, Error> {
        let subject = labels.get(SUBJECT_LABEL).and_then(|name| name.parse().ok());
        let Some(subject): Option<ContainerSubject> = subject else {
            // Whoever made it did not say of which container it is.
            let all = self.found(Some(&host.tenant)).await?;
            return Ok(all.iter().any(|one| one.index.find(id).is_some()));
        };
        let engine = self.of(&host.tenant, &subject);
        let index = engine.dirs().root().index().await?;
        Ok(index.is_some_and(|index| index.value.find(id).is_some()))
    }

    /// Containers of ours that were never started, and that nobody uses any more.
    async fn clean_helpers(
        self,
        seen: &SeenEngine,
        pool: OpId,
        how: &CleanupContainers,
        cleaned: &mut ContainersCleaned,
    ) -> Result<(), Error> {
        let label = format!("{HELPER_LABEL}={pool}");
        for helper in seen.docker.containers_labelled(&label).await? {
            if helper.status.is_alive() {
                continue;
            }
            let Some(_lock) = self.abandoned(&helper.labels, how.orphans).await? else {
                continue;
            };
            if !how.dry_run {
                let removed = seen
                    .docker
                    .remove_container(&helper.id, VolumeRemoval::Anonymous);
                if let Err(error) = removed.await {
                    let said = format!("{}: {}", helper.name, error_chain(&error));
                    cleaned.left.push(said);
                    continue;
                }
            }
            cleaned.containers.push(helper.name);
        }
        Ok(())
    }

    /// Makes sure that nobody works on what something with these labels was made for, for as long as the result lives; nothing if
    /// somebody does. What another host or for another store made is left to that, unless somebody says otherwise and it is a day old.
    async fn abandoned(
        self,
        labels: &BTreeMap<String, String>,
        also_of_others: bool,
    ) -> Result<Option<Abandoned>, Error> {
        let subject = labels.get(SUBJECT_LABEL);
        let Some(subject) = subject.filter(|_| labels.get(BY_LABEL).is_some()) else {
            return Ok(also_of_others.then_some(Abandoned { _lock: None }));
        };
        if labels.get(BY_LABEL) != Some(&self.by().await?) {
            let at = labels.get(AT_LABEL).and_then(|at| at.parse().ok());
            let at = at.map_or(self.clock.now(), Timestamp::from_millis);
            let is_old = self.clock.now().since(at) > LONGEST_WORK;
            return Ok((also_of_others && is_old).then_some(Abandoned { _lock: None }));
        }
        match self.lock_subject(subject, subject, "cleaned up").await {
            Ok(lock) => Ok(Some(Abandoned { _lock: Some(lock) })),
            // Somebody is at it.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frees the bytes that nobody needs; that it failed is said with the rest.
    async fn sweep_into(self, host: &ContainerHost, cleaned: &mut ContainersCleaned) {
        match self.sweep(host).await {
            Ok(bytes) => cleaned.bytes_removed = bytes,
            Err(error) => {
                let said = format!("unused bytes of the store: {}", error_chain(&error));
                cleaned.left.push(said);
            }
        }
    }

    /// Frees the bytes that no snapshot of the tenant needs any more; says how many.
    async fn sweep(self, host: &ContainerHost) -> Result<u64, Error> {
        let pool = self.engine.rooted(ChunkRoot::pool(&host.tenant));
        let collected = pool.dirs().gc(RepoGc::new(RetentionPolicy::KeepAll));
        Ok(Box::pin(collected).await?.bytes_removed)
    }
}

/// Something that nobody works on.
struct Abandoned {
    _lock: Option<ContainerLock>,
}

/// Removes an image, or says why that cannot be.
async fn remove_image(
    seen: &SeenEngine,
    name: &str,
    dry_run: bool,
    cleaned: &mut ContainersCleaned,
) {
    let removed = if dry_run {
        Ok(())
    } else {
        seen.docker.remove_image(name).await.map(|_| ())
    };
    match removed {
        Ok(()) => cleaned.images.push(name.to_owned()),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            cleaned.images_in_use.push(name.to_owned());
        }
        Err(error) => {
            let said = format!("{name}: {}", error_chain(&error));
            cleaned.left.push(said);
        }
    }
}
