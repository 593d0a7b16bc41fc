//! How many snapshots of containers there are, and what they take.

use super::ContainerHost;
use super::list::{ContainerSnapshotStatus, KnownImages};
use crate::error::Error;
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::container::trigger::SnapshotTrigger;
use stasis_model::format::manifest::SaveReason;
use stasis_model::policy::retention::AgeCountBytes;
use std::collections::BTreeMap;

/// What one container takes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerStats {
    /// Which.
    pub container_name: String,
    /// Its engine.
    pub engine: String,
    /// How many snapshots it has.
    pub snapshots: u64,
    /// Bytes of their images that the containers' own images do not have.
    pub image_bytes: u64,
    /// Stored bytes of their chunks; what two snapshots share is counted for the newer one.
    pub chunk_bytes: u64,
    /// When the newest was made.
    pub newest: String,
    /// The same in milliseconds.
    pub newest_ms: u64,
}

/// What all snapshots of containers take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainersStats {
    /// One row for each container.
    pub items: Vec<ContainerStats>,
    /// How many snapshots there are.
    pub snapshots: u64,
    /// Those that a restore made of what it replaced.
    pub before_restore: u64,
    /// How many of the others have each trigger.
    pub triggers: BTreeMap<SnapshotTrigger, u64>,
    /// Those of which no container can be made.
    pub broken: u64,
    /// Bytes of images that the containers' own images do not have.
    pub image_bytes: u64,
    /// Stored bytes of chunks, each counted once.
    pub chunk_bytes: u64,
    /// How many snapshots one container may have.
    pub max_per_container: u64,
    /// How many there may be in all.
    pub max_snapshots: u64,
    /// How many bytes there may be.
    pub max_bytes: u64,
    /// How old one may be, in seconds.
    pub max_age_s: u64,
    /// Containers whose snapshots could not be counted, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

impl Containers<'_> {
    /// How many snapshots there are, and what they take.
    pub async fn stats(
        self,
        host: &ContainerHost,
        limits: &AgeCountBytes,
    ) -> Result<ContainersStats, Error> {
        let found = self.found(Some(&host.tenant)).await?;
        let all = &found.readable;
        // Never enough: what is shown is exact.
        let sizes = self.sizes(&all.iter().collect::<Vec<_>>(), 0).await?;
        let images = KnownImages::ask(host).await;
        let mut stats = ContainersStats {
            items: Vec::new(),
            snapshots: 0,
            before_restore: 0,
            triggers: BTreeMap::new(),
            broken: 0,
            image_bytes: 0,
            chunk_bytes: 0,
            max_per_container: limits.per_group,
            max_snapshots: limits.in_all,
            max_bytes: limits.max_bytes,
            max_age_s: limits.max_age.as_secs(),
            unreadable: found.unreadable_lines(),
        };
        for of in all {
            let Some(newest) = of.index.finished().max_by_key(|one| one.at_ms) else {
                continue;
            };
            let mut row = ContainerStats {
                container_name: of.subject.container().to_owned(),
                engine: of.subject.engine().to_owned(),
                snapshots: of.index.finished().count() as u64,
                image_bytes: 0,
                chunk_bytes: 0,
                newest: newest.at_ms.to_string(),
                newest_ms: newest.at_ms.millis(),
            };
            for one in of.index.finished() {
                let size = sizes.get(&one.id).copied().unwrap_or_default();
                row.image_bytes += size.image;
                row.chunk_bytes += size.chunks;
                let shown = of.row(one, &images).await?;
                if one.reason == SaveReason::BeforeRestore {
                    stats.before_restore += 1;
                } else {
                    *stats.triggers.entry(shown.trigger).or_default() += 1;
                }
                stats.broken += u64::from(shown.status == ContainerSnapshotStatus::Broken);
            }
            stats.snapshots += row.snapshots;
            stats.image_bytes += row.image_bytes;
            stats.chunk_bytes += row.chunk_bytes;
            stats.items.push(row);
        }
        Ok(stats)
    }
}
