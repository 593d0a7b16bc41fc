//! Keeps the limits of containers' snapshots, and removes what was left of interrupted work.
//!
//! *Always true:* what is removed is a snapshot beyond the limits, or something that we made ourselves and that nothing needs: what has
//! our labels, is of this store, and is not being worked on. Of a container whose documents cannot be read nothing is removed.

use super::find::FoundContainer;
use super::image::{
    AT_LABEL, BY_LABEL, HELPER_LABEL, POOL_LABEL, SNAPSHOT_LABEL, SUBJECT_LABEL, image_name,
    passing_names,
};
use super::lock::ContainerLock;
use super::take_back::{Forward, TakenBack};
use super::{ContainerHost, SeenEngine};
use crate::catalog::references::is_damage;
use crate::error::{Error, ErrorKind, error_chain};
use crate::gc::RepoGc;
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::{ContainerSubject, OpId, SnapshotId};
use stasis_model::policy::retention::{AgeCountBytes, RetentionPolicy};
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
    /// Containers whose replacement had been interrupted after the new one worked: what was replaced is gone now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
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
            for journal in self.interruptions(&seen).await? {
                let names = if journal.is_done {
                    &mut cleaned.ended
                } else {
                    &mut cleaned.brought_back
                };
                names.push(journal.container_name);
            }
        } else {
            // What died has left files on this host, too: they go when a place for others is made.
            drop(self.engine.scratch().await);
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
        let found = self.found(Some(&host.tenant)).await?;
        // Of those nothing goes: neither snapshots nor images nor layers.
        cleaned.left.extend(found.unreadable_lines());
        let all = found.readable;
        let judged = self.judged(&all, &seen.digits, &how.limits).await?;
        cleaned.clock_doubt = judged.clock_doubt;
        cleaned.left.extend(judged.beyond);
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

    pub(super) async fn remove_going(
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
                Ok(TakenBack::Back) => cleaned.brought_back.push(name),
                Ok(TakenBack::Forward(None)) => cleaned.ended.push(name),
                Ok(TakenBack::Forward(Some(left))) => {
                    cleaned.left.push(format!("{name}: {left}"));
                }
                Ok(TakenBack::Gone(safety, tenant)) => {
                    let said = TakenBack::gone(&name, safety.as_ref(), &tenant);
                    cleaned.left.push(said);
                }
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
            let names = [image_name(&of)].into_iter().chain(passing_names(&of));
            let names: Vec<String> = names.filter(|name| image.tags.contains(name)).collect();
            if names.is_empty() {
                continue;
            }
            let Some(_lock) = self.abandoned(&image.labels, how.orphans).await? else {
                continue;
            };
            // Nobody makes it known from here on.
            let is_known = self.knows(host, &image.labels, &of).await? && !going.contains(&of);
            for name in names {
                if is_known && name == image_name(&of) {
                    continue;
                }
                let _ = remove_image(seen, &name, how.dry_run, cleaned).await;
            }
        }
        if how.dry_run {
            return Ok(());
        }
        for id in images(&*self.bucket, &host.tenant).await? {
            let labels = match self.labels_of_layers(&host.tenant, &id).await {
                Ok(labels) => labels,
                Err(error) if is_damage(&error) => {
                    let said = format!("layers of {id}: {}", error_chain(&error));
                    cleaned.left.push(said);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(_lock) = self.abandoned(&labels, how.orphans).await? else {
                continue;
            };
            if !self.knows(host, &labels, &id).await? {
                self.remove_layers(&host.tenant, &id).await?;
            }
        }
        Ok(())
    }

    /// Whether there is such a snapshot, as the store says now. Where that cannot be read there may be one.
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
            let is_listed = all.readable.iter().any(|one| one.index.find(id).is_some());
            return Ok(is_listed || !all.unreadable.is_empty());
        };
        let engine = self.of(&host.tenant, &subject);
        match engine.dirs().index_to_look().await {
            Ok(index) => Ok(index.find(id).is_some()),
            Err(error) if is_damage(&error) => Ok(true),
            Err(error) => Err(error),
        }
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
    pub(super) async fn sweep_into(self, host: &ContainerHost, cleaned: &mut ContainersCleaned) {
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

/// Removes an image, or says why that cannot be; whether it is gone.
pub(super) async fn remove_image(
    seen: &SeenEngine,
    name: &str,
    dry_run: bool,
    cleaned: &mut ContainersCleaned,
) -> bool {
    let removed = if dry_run {
        Ok(())
    } else {
        seen.docker.remove_image(name).await.map(|_| ())
    };
    let is_gone = removed.is_ok();
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
    is_gone
}
