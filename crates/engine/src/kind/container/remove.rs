//! Lets go of snapshots of containers, with their images.

use super::failure;
use super::find::{FoundContainer, FoundSnapshot};
use super::image::{SNAPSHOT_LABEL, image_name};
use super::{ContainerHost, SeenEngine};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::manifest::{IndexRefusal, SnapshotIndex, StepBack};
use stasis_model::id::{SnapshotId, TenantId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::documents::containers::remove_restorations;
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, BTreeSet};

/// Snapshots of containers that are gone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerSnapshotsDeleted {
    /// Which.
    pub deleted: Vec<SnapshotId>,
    /// Images of them that are still there, and why: they go with a cleanup once that is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images_kept: Vec<String>,
    /// Whether this only says what would be done.
    pub dry_run: bool,
}

impl Containers<'_> {
    /// Deletes snapshots with their images; none of them, if one may not go.
    pub async fn delete(
        self,
        host: &ContainerHost,
        wanted: &[SnapshotRef],
        container: Option<&str>,
        dry_run: bool,
    ) -> Result<ContainerSnapshotsDeleted, Error> {
        self.store().ensure_trusted().await?;
        let seen = host.look().await;
        let here = seen.as_ref().ok().map(|seen| seen.digits.as_str());
        let tenant = &host.tenant;
        let container = host.name_of(container).await;
        let of = container.as_deref();
        let needed = self.needed_to_go_back().await?;
        let mut going: Vec<(FoundContainer, Vec<SnapshotId>)> = Vec::new();
        for one in wanted {
            let found = self.snapshot(tenant, one, of, here).await?;
            ensure_may_go(&found, &needed)?;
            let mut known = going.iter_mut();
            match known.find(|(of, _)| of.subject == found.of.subject) {
                Some((_, ids)) if ids.contains(&found.id) => {}
                Some((_, ids)) => ids.push(found.id),
                None => going.push((found.of, vec![found.id])),
            }
        }
        let mut deleted = ContainerSnapshotsDeleted {
            dry_run,
            ..ContainerSnapshotsDeleted::default()
        };
        for (of, ids) in going {
            if dry_run {
                deleted.deleted.extend(ids);
                continue;
            }
            let gone = self.remove(&of, &ids, seen.as_ref().ok()).await?;
            deleted.deleted.extend(gone.deleted);
            deleted.images_kept.extend(gone.images_kept);
        }
        Ok(deleted)
    }

    /// Lets go of snapshots of a container, all or none, even of what `latest` means; and of their images.
    pub(super) async fn remove(
        self,
        of: &FoundContainer,
        ids: &[SnapshotId],
        seen: Option<&SeenEngine>,
    ) -> Result<ContainerSnapshotsDeleted, Error> {
        let root = of.root();
        let (op_id, now) = (self.rng.op_id(), self.lineages.now());
        let rule = |index: &SnapshotIndex| -> Result<SnapshotIndex, IndexRefusal> {
            let mut pinned = index.snapshots.iter().filter(|one| one.pinned);
            if let Some(pinned) = pinned.find(|one| ids.contains(&one.id)) {
                return Err(IndexRefusal::Pinned(pinned.id.clone()));
            }
            let back = StepBack {
                gone: ids.to_vec(),
                newest: index.active_without(ids),
                unpublished: Vec::new(),
            };
            index.step_back(&back, now, op_id)
        };
        let changed = root.change(op_id, rule).await;
        let operations = of.engine.operations();
        operations
            .known(IndexOperation::Forget, &root, changed)
            .await?;
        let mut deleted = ContainerSnapshotsDeleted {
            deleted: ids.to_vec(),
            ..ContainerSnapshotsDeleted::default()
        };
        for id in ids {
            self.remove_rest(&of.tenant, root.layout(), id).await;
            let is_here = |seen: &&SeenEngine| seen.digits == of.subject.engine();
            let Some(seen) = seen.filter(is_here) else {
                continue;
            };
            if let Some(kept) = remove_image(seen, id).await {
                let remembered = self.remember_image(seen, of, id).await;
                deleted.images_kept.push(kept);
                // The snapshot is gone, whatever becomes of its image.
                if let Err(error) = remembered {
                    let said = format!("{}: {}", image_name(id), error_chain(&error));
                    deleted.images_kept.push(said);
                }
            }
        }
        Ok(deleted)
    }

    /// Writes down that an image is left which does not say itself that it is of this store, because it was imported.
    async fn remember_image(
        self,
        seen: &SeenEngine,
        of: &FoundContainer,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        let image = seen.docker.image(&image_name(id)).await;
        let is_other = |labels: &BTreeMap<String, String>| {
            labels.get(SNAPSHOT_LABEL).map(String::as_str) != Some(id.as_str())
        };
        // One that cannot be looked at may be one of those.
        let is_left = image.map_or(true, |image| {
            image.is_some_and(|image| is_other(&image.labels))
        });
        if is_left {
            let (subject, of) = (&of.subject, (&of.tenant, id));
            let _ = self.begin_import(seen, subject, of, None).await?;
        }
        Ok(())
    }

    /// Removes what lies beside a snapshot that is gone. What stays does no harm, and goes with the next cleanup.
    async fn remove_rest(self, tenant: &TenantId, root: &ChunkRoot, id: &SnapshotId) {
        if let Err(error) = remove_restorations(&*self.bucket, root, id).await {
            let error = error_chain(&error);
            tracing::info!(%id, error, "the record of its restores was not removed");
        }
        if let Err(error) = self.remove_layers(tenant, id).await {
            let error = error_chain(&error);
            tracing::warn!(%id, error, "the layers of its image were not removed yet");
        }
    }
}

/// Refuses to let go of a snapshot that somebody wants to keep, or that is the way back.
fn ensure_may_go(found: &FoundSnapshot, needed: &BTreeSet<SnapshotId>) -> Result<(), Error> {
    let name = found.of.subject.container();
    let (said, hint) = if needed.contains(&found.id) {
        let said = format!(
            "snapshot `{}` is needed: a replacement of `{name}` was interrupted, and this is what it was",
            found.id
        );
        let hint = "`stasis container cleanup` brings it back; then nothing needs it";
        (said, hint.to_owned())
    } else if found.of.index.find(&found.id).is_some_and(|one| one.pinned) {
        let hint = format!(
            "`stasis pin container:{name} {} --off` takes the pin away",
            found.id
        );
        (format!("snapshot `{}` is pinned", found.id), hint)
    } else {
        return Ok(());
    };
    Err(failure(ErrorKind::Conflict, said).with_hint(hint).into())
}

/// Removes the image of a snapshot; says which it is and why, if that cannot be now.
async fn remove_image(seen: &SeenEngine, id: &SnapshotId) -> Option<String> {
    let name = image_name(id);
    let removed = seen.docker.remove_image(&name).await;
    let error = removed.err()?;
    Some(format!("{name}: {}", error_chain(&error)))
}
