//! What automatic snapshots lack that earlier ones have.
//!
//! Nobody looks at an automatic snapshot when it is made. A database that is gone, or a directory that is nearly empty, is saved like anything
//! else: what is there now may be needed too. But the loss is shown after every save, and the last snapshot before it stays, until somebody saves by hand
//! or what was lost is there again.

use super::Project;
use crate::catalog::references::is_damage;
use crate::error::Error;
use stasis_model::format::manifest::{Indexed, SaveReason, SnapshotIndex, SnapshotManifest};
use stasis_model::id::SnapshotId;
use stasis_model::policy::loss;

/// With how many snapshots the last one is compared: each is a document to read.
const MOST_COMPARED: usize = 64;

impl Project {
    /// What the last snapshot lacks that an earlier one has, in words; nothing where that is one that somebody asked for.
    pub(super) async fn losses(&self) -> Result<Vec<String>, Error> {
        let index = self.index().await?;
        let mut newest = index.finished().rev();
        let Some(latest) = newest.next().filter(|one| is_automatic(one)) else {
            return Ok(Vec::new());
        };
        let Some(now) = self.manifest(&index, &latest.id).await? else {
            return Ok(Vec::new());
        };
        let earlier = newest.take_while(|one| is_automatic(one));
        let earlier = earlier.take(MOST_COMPARED).chain(index.latest());
        for one in earlier {
            let Some(before) = self.manifest(&index, &one.id).await? else {
                continue;
            };
            let lost = loss::since(&before, &now);
            if !lost.is_empty() {
                let since = format!("which snapshot `{}` has", one.id);
                let lost = lost.into_iter().map(|lost| format!("{lost}, {since}"));
                return Ok(lost.collect());
            }
        }
        Ok(Vec::new())
    }

    /// Of snapshots that may go, those that have nothing which the next one has lost.
    pub(super) async fn without_those_before_a_loss(
        &self,
        going: Vec<SnapshotId>,
    ) -> Result<Vec<SnapshotId>, Error> {
        if going.is_empty() {
            return Ok(going);
        }
        let index = self.index().await?;
        let all: Vec<&Indexed> = index.finished().collect();
        let mut left = Vec::with_capacity(going.len());
        for pair in all.windows(2) {
            let [one, next] = [pair[0], pair[1]];
            if !going.contains(&one.id) {
                continue;
            }
            // Whoever saved by hand has seen what there was. What the store does not say now may be that something was lost.
            let stays = is_automatic(next)
                && self
                    .is_lost_between(&index, &one.id, &next.id)
                    .await
                    .unwrap_or(true);
            if stays {
                continue;
            }
            left.push(one.id.clone());
        }
        Ok(left)
    }

    /// Whether the second snapshot lacks what the first one has. Of one that is damaged nobody knows.
    async fn is_lost_between(
        &self,
        index: &SnapshotIndex,
        one: &SnapshotId,
        next: &SnapshotId,
    ) -> Result<bool, Error> {
        let Some(before) = self.manifest(index, one).await? else {
            return Ok(false);
        };
        let now = self.manifest(index, next).await?;
        Ok(now.is_none_or(|now| !loss::since(&before, &now).is_empty()))
    }

    /// What a snapshot says of itself; none where that is damaged.
    async fn manifest(
        &self,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<Option<SnapshotManifest>, Error> {
        let (dirs, root) = (self.engine.dirs(), self.engine.dirs().root());
        match dirs.open_snapshot(&root, index, id).await {
            Ok(opened) => Ok(Some(opened.manifest)),
            Err(error) if is_damage(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_automatic(one: &Indexed) -> bool {
    one.reason == SaveReason::Autosave
}
