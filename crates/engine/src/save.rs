//! Saves a tree into a repository.
//!
//! 1. read `gc.json`, then the index   2. read the tree and store what is new   3. put the manifest
//! 4. read `gc.json` again and judge every name (`SaveGuard`)   5. publish by one conditional write of the index
//! 6. remember the tree
//!
//! A long save goes through 3 and 4 now and then with what it has stored so far (provisional manifests).
//!
//! A subject that has no index yet, or whose index says that it was deleted, begins with an empty one before any of that.
//!
//! *Always true:* the index leads only to manifests whose every chunk is durable. A crash before 5 leaves chunks, and a
//! manifest nobody leads to, for the sweep; after 5 the snapshot exists, heard or not. No lease is taken: of two saves under one
//! name that began alike, the index lets one publish and tells the other that it diverged.

mod command;
mod databases;
mod describe;
mod donors;
mod gather;
mod provisional;

pub use command::{
    LostDatabase, LostHow, NotConsistent, RepoSave, RepoSaved, SaveOverlay, StatedBy, VolumeFacts,
};
pub(crate) use databases::committed_digest;
pub(crate) use donors::Donors;
use gather::SaveBasis;
pub(crate) use gather::{GatheredTree, StoringPlace, gc_of, matcher, may_borrow};
pub use gather::{IGNORE_FILE, patterns_in};
pub(crate) use provisional::LongSave;

use crate::address::SubjectAddress;
use crate::bridge;
use crate::catalog::pool::closed;
use crate::catalog::port::ChunkFetcher;
use crate::error::Error;
use crate::handle::DirRepo;
use crate::warning::Warning;
use describe::{
    check_shrink, databases_of, digest_at, lost_databases, measured_volumes, settle_volumes,
};
use stasis_disk::form::chunked::save::Saved;
use stasis_disk::fs::remove;
use stasis_model::format::manifest::{
    FileList, Indexed, Publish, RepoDocument, SnapshotIndex, SnapshotManifest, StoredManifest,
    VolumeManifest,
};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{GaveUp, Names, SaveAnswer, SaveGuard};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::tree::EntryPath;
use stasis_store::documents::roots::Root;
use stasis_store::location::StoreLocation;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a save begins again when a sweep takes what it was about to use.
pub(crate) const ATTEMPTS: usize = 5;
const OVERTAKEN: &str = "a sweep took chunks that it was about to use; run it again";

/// A snapshot that only the index does not lead to yet.
pub(crate) struct Ready {
    gathered: GatheredTree,
    /// What may be published.
    manifest: SnapshotManifest,
    /// The same as it is stored.
    stored: StoredManifest,
    /// Databases that should be in it and are not.
    lost: Vec<LostDatabase>,
}

impl Ready {
    /// Its volumes, measured.
    pub(crate) fn volumes(&self) -> &BTreeMap<String, VolumeManifest> {
        &self.manifest.volume_manifests
    }

    /// Nobody will publish it.
    pub(crate) async fn give_up(self) {
        self.gathered.give_up().await;
    }
}

/// The names that a snapshot uses, and who vouches for them.
pub(crate) struct Naming<'n> {
    pub(crate) root: &'n Root,
    pub(crate) repo: &'n RepoDocument,
    /// What is known of gc since the names were given.
    pub(crate) guard: &'n mut SaveGuard,
    pub(crate) names: &'n Names,
    /// Who has lent some, if anybody may have.
    pub(crate) donors: Option<&'n Donors>,
}

impl DirRepo<'_> {
    /// Saves a directory.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %command.name))]
    ///
    /// A sweep that takes what it was about to use makes it begin again, a few times.
    pub async fn save(self, command: RepoSave) -> Result<RepoSaved, Error> {
        for _ in 1..ATTEMPTS {
            match Box::pin(self.try_save(command.clone())).await {
                Err(Error::SaveGaveUp(why)) => tracing::info!(why, "once more"),
                saved => return saved,
            }
        }
        self.try_save(command).await
    }

    async fn try_save(self, command: RepoSave) -> Result<RepoSaved, Error> {
        let gathered = self.save_gather(command).await?;
        if gathered.is_nothing_new() {
            return self.save_nothing(gathered).await;
        }
        let ready = self.save_describe(gathered).await?;
        self.save_publish(ready).await
    }

    /// Whether a tree has at some places just what a snapshot has there: contents and attributes.
    pub(crate) async fn save_equals_at(
        self,
        gathered: &GatheredTree,
        other: &FileList,
        places: Vec<EntryPath>,
    ) -> Result<bool, Error> {
        let GatheredTree { began, saved, .. } = gathered;
        let source = ChunkFetcher::new(began.root.clone(), began.codec.clone());
        let (own, other) = (saved.list.clone(), other.clone());
        bridge::blocking(move || {
            let own = digest_at(&source, &own, &places)?;
            Ok(own == digest_at(&source, &other, &places)?)
        })
        .await
    }

    /// Puts the manifest, and makes sure that no sweep can hurt what it names: steps 3 and 4.
    pub(crate) async fn save_describe(self, gathered: GatheredTree) -> Result<Ready, Error> {
        match self.described(&gathered).await {
            Ok((manifest, stored, lost)) => Ok(Ready {
                gathered,
                manifest,
                stored,
                lost,
            }),
            Err(error) => {
                gathered.storing.give_up(&error).await;
                Err(error)
            }
        }
    }

    async fn described(
        self,
        gathered: &GatheredTree,
    ) -> Result<(SnapshotManifest, StoredManifest, Vec<LostDatabase>), Error> {
        let GatheredTree {
            command,
            began,
            saved,
            ..
        } = gathered;
        check_shrink(command, began, saved)?;
        let mut manifest = self.manifest(command, began, saved);
        let source = ChunkFetcher::new(began.root.clone(), began.codec.clone());
        manifest.volume_manifests = measured_volumes(&command.volumes, &saved.list, source).await?;
        settle_volumes(
            &command.volumes,
            &manifest.databases,
            &mut manifest.volume_manifests,
        );
        let lost = lost_databases(command, began, saved, &manifest, &gathered.damaged.paths())?;
        manifest.is_held_back = !lost.is_empty() && !command.force;
        let stored = closed(&began.root, &began.codec, &manifest, &saved.names);
        let naming = Naming {
            root: &began.root,
            repo: &began.repo,
            guard: &mut gathered.storing.guard(),
            names: &saved.names,
            donors: gathered.donors.as_deref(),
        };
        self.settle(naming, &stored).await?;
        Ok((manifest, stored, lost))
    }

    /// Makes the snapshot exist: steps 5 and 6.
    pub(crate) async fn save_publish(self, ready: Ready) -> Result<RepoSaved, Error> {
        let Ready {
            mut gathered,
            manifest,
            stored,
            lost,
        } = ready;
        gathered.command.activates &= lost.is_empty() || gathered.command.force;
        let activates = gathered.command.activates && gathered.command.reason.is_explicit();
        let publish = Publish {
            incarnation: manifest.incarnation,
            lease: manifest.lease_epoch,
            base: manifest.parent_snapshot_id.clone(),
            snapshot: Indexed::of(&manifest, &stored),
            activates,
        };
        let published = self.publish(&gathered.began.root, &manifest, publish);
        if let Err(error) = published.await {
            gathered.storing.give_up(&error).await;
            return Err(error);
        }
        gathered.storing.remove_documents().await;
        let chunks_healed = gathered.release_healed().await?;
        let chunks_damaged = gathered.storing.unhealed().len() as u64;
        let GatheredTree {
            began,
            saved,
            started,
            ..
        } = gathered;
        let elapsed_ms = self.elapsed_ms(started);
        let parent = began.equals.first().map(|(_, digest)| *digest);
        let mut result = RepoSaved::new(&manifest, parent, &saved.report, elapsed_ms);
        result.is_stored_in(&began);
        result.chunks_healed = chunks_healed;
        result.is_latest = activates;
        result.lost_databases = lost;
        result.warnings.extend(self.left_copy(&began));
        self.collect_unpublished(&began.root, &manifest).await;
        let snapshot = &manifest.snapshot_id;
        self.remember_donor(&began.root, &began.repo, snapshot)
            .await;
        result.chunks_damaged = chunks_damaged;
        remember(saved, None).await;
        Ok(result)
    }

    /// Says that a subject which was a copy until now goes its own way: nobody copies over what was saved here.
    fn left_copy(self, began: &SaveBasis) -> Option<Warning> {
        if !began.index.is_copy() {
            return None;
        }
        Some(Warning::LeftCopy {
            subject: SubjectAddress::of_root(&self.location, began.root.layout())?.subject,
            store: self.location.to_string(),
        })
    }

    /// Removes what killed saves of this chain left in a store on this host: documents that the index does not lead to, and
    /// never will, because the fence has passed them. What cannot be removed is left to gc.
    async fn collect_unpublished(self, root: &Root, published: &SnapshotManifest) {
        // A listing costs a directory here, and a request elsewhere: there gc does it.
        let is_here = matches!(self.location, StoreLocation::File(_));
        if !is_here {
            return;
        }
        self.remove_empty(root).await;
        let (Ok(ids), Ok(index)) = (root.manifest_ids().await, self.index(root).await) else {
            return;
        };
        for id in ids {
            if index.find(&id).is_some() || index.tombstones.contains_key(&id) {
                continue;
            }
            let is_dead = match root.manifest(&id).await {
                Ok(Some((found, _))) => {
                    found.check().is_ok()
                        && found.incarnation() == published.incarnation
                        && found.lease_epoch() <= published.lease_epoch
                }
                _ => false,
            };
            if is_dead && let Err(error) = root.remove_manifest(&id).await {
                tracing::warn!(snapshot = %id, %error, "what a killed save left could not be removed");
            }
        }
    }

    /// Removes directories of snapshots in which a killed save had not even put a document. Only in a project's own state
    /// directory: there its lock says that nobody else is about to put one.
    async fn remove_empty(self, root: &Root) {
        let StoreLocation::File(store) = &self.location else {
            return;
        };
        if !root.layout().is_alone() {
            return;
        }
        let place = store.join(root.layout().manifests().to_string());
        bridge::blocking(move || remove::empty_directories(&place)).await;
    }

    /// Says that the snapshot before is this very tree, and makes none.
    pub(crate) async fn save_nothing(self, gathered: GatheredTree) -> Result<RepoSaved, Error> {
        gathered.storing.remove_documents().await;
        let chunks_healed = gathered.release_healed().await?;
        let equal = gathered.equal().cloned();
        let equal = equal.expect("it is the tree of a snapshot");
        let chunks_damaged = gathered.storing.unhealed().len() as u64;
        let GatheredTree {
            command,
            began,
            saved,
            started,
            ..
        } = gathered;
        let databases = databases_of(&began, &saved);
        let (op_id, now) = (self.rng.op_id(), self.lineages.now());
        let mut manifest = SnapshotManifest::new(command.name, equal, op_id, now);
        manifest.state_digest = saved.digest;
        manifest.totals = saved.totals;
        manifest.set_databases(databases, now);
        let elapsed_ms = self.elapsed_ms(started);
        let mut result = RepoSaved::new(&manifest, Some(saved.digest), &saved.report, elapsed_ms);
        result.published = false;
        result.is_stored_in(&began);
        result.chunks_healed = chunks_healed;
        result.chunks_damaged = chunks_damaged;
        let equal = result.snapshot_id.clone();
        remember(saved, Some(equal)).await;
        Ok(result)
    }

    pub(crate) fn elapsed_ms(self, started: Duration) -> u64 {
        let elapsed = self.clock.uptime().saturating_sub(started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    /// Puts the manifest, and goes on until no sweep can hurt what it names.
    pub(crate) async fn settle(
        self,
        naming: Naming<'_>,
        manifest: &StoredManifest,
    ) -> Result<(), Error> {
        let gathered = SaveAnswer::Gathered(naming.names.clone());
        let documents = std::slice::from_ref(manifest);
        self.drive(naming, documents, gathered).await?;
        Ok(())
    }

    /// Makes the index lead to a manifest.
    pub(crate) async fn publish(
        self,
        root: &Root,
        manifest: &SnapshotManifest,
        publish: Publish,
    ) -> Result<SnapshotIndex, Error> {
        let op_id = manifest.op_id;
        let changed = root
            .change(op_id, |index| index.publish(&publish, op_id))
            .await;
        let operations = self.operations();
        let index = operations.known(IndexOperation::Save, root, changed);
        let index = index.await?;
        tracing::info!(snapshot = %manifest.snapshot_id, bytes = manifest.totals.bytes, "published");
        Ok(index)
    }
}

/// Remembers the tree, as that of a snapshot that was there before if none was made.
async fn remember(mut saved: Saved, equal: Option<SnapshotId>) {
    let remembered = bridge::blocking(move || match equal {
        Some(equal) => saved.keep_cache_as(&equal),
        None => saved.keep_cache(),
    });
    if let Err(error) = remembered.await {
        tracing::warn!(%error, "this host could not remember the tree; the next save reads all of it");
    }
}

fn words(why: GaveUp) -> &'static str {
    match why {
        GaveUp::Unreachable => "the store does not answer",
        GaveUp::Outrun => "sweeps were faster again and again; run it again when they are over",
    }
}

#[cfg(test)]
mod tests;
