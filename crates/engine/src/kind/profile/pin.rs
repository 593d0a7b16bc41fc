//! Protects a snapshot from retention and from `delete`, or stops doing so.

use super::subject::ShaPrefix;
use crate::address::as_typed;
use crate::error::Error;
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Generation, Lineage};

/// What becomes of a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinning {
    /// The snapshot is kept.
    Pin,
    /// It is kept no longer than others.
    Unpin,
}

/// A snapshot that is pinned, or is not any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Pinned {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Which.
    pub sha256: ArchiveDigest,
    /// Whether it is pinned now.
    pub pinned: bool,
    /// The generation of the pointer that says so.
    pub generation: Generation,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Profiles<'_> {
    /// Pins a snapshot that is whole, or takes a pin away from whatever has one.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %lineage, snapshot = %sha))]
    pub async fn pin(
        self,
        lineage: &Lineage,
        sha: &ShaPrefix,
        pinning: Pinning,
    ) -> Result<Pinned, Error> {
        self.store().ensure_trusted().await?;
        let inventory = self.sound_inventory(lineage).await?;
        let target = match pinning {
            Pinning::Pin => inventory.choose_whole(sha)?.active.archive,
            Pinning::Unpin => {
                let stored = inventory
                    .stored
                    .snapshots
                    .iter()
                    .map(|one| one.active.archive);
                let pins = inventory.pointer.iter().flat_map(pins);
                sha.choose(stored.chain(pins), &inventory.subject())?
            }
        };
        let pinned = pinning == Pinning::Pin;
        let result = self.lineages.pin(lineage, target, pinned).await;
        let moved = self.operations().settled(result).await?;
        Ok(Pinned {
            subject: lineage.clone(),
            sha256: target,
            pinned,
            generation: moved.pointer.generation,
            warnings: self.clock_warnings(),
        })
    }
}

fn pins(pointer: &Pointer) -> impl Iterator<Item = ArchiveDigest> {
    pointer.pins.iter().map(|mark| mark.sha256)
}
