//! What is known of attempts to restore snapshots into a scratch place, for whoever looks at one and for the metrics.
//!
//! The attempts themselves are the job `proof`, which writes the documents that are read here.

use crate::catalog::references::is_damage;
use crate::error::Error;
use crate::open::Engine;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::proof::SnapshotProof;
use stasis_model::time::Timestamp;
use stasis_store::documents::proofs;
use stasis_store::layout::{Key, ProofSubject};
use std::collections::{BTreeMap, BTreeSet};

/// What became of the last attempt to restore a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProofShown {
    /// When it last came back whole, with sound databases; never, where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<String>,
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored_at_ms: Option<u64>,
    /// When the last attempt was.
    pub tried_at_ms: u64,
    /// Whether it did not come back when somebody could last try it.
    pub broken: bool,
}

impl From<&SnapshotProof> for ProofShown {
    fn from(proof: &SnapshotProof) -> Self {
        Self {
            restored_at: proof.restored_at_ms.map(|at| at.to_string()),
            restored_at_ms: proof.restored_at_ms.map(Timestamp::millis),
            tried_at_ms: proof.tried_at_ms.millis(),
            broken: proof.broken,
        }
    }
}

/// What is known of all snapshots of some subjects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct ProofStats {
    /// How many were tried.
    pub tried: u64,
    /// How many of them came back at some time.
    pub restored: u64,
    /// When one last came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored_at_ms: Option<Timestamp>,
    /// How many there are that did not come back when somebody could last try them.
    pub broken: u64,
}

impl Engine {
    /// What became of the attempts to restore the snapshots of a subject, by the names of those that were tried.
    pub(crate) async fn proofs_of(
        &self,
        subject: &ProofSubject,
    ) -> Result<BTreeMap<String, ProofShown>, Error> {
        let known = proofs::of(&*self.bucket, subject)
            .await
            .map_err(Error::from);
        let known = match known {
            Ok(known) => known.map(|known| known.snapshots).unwrap_or_default(),
            // The snapshots are no worse for it, and the next attempt says what is wrong.
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "what is known of restored snapshots cannot be read");
                BTreeMap::new()
            }
            Err(error) => return Err(error),
        };
        let shown = known
            .iter()
            .map(|(name, proof)| (name.clone(), proof.into()));
        Ok(shown.collect())
    }

    /// Adds what is known of one subject; `tried` are the documents that there are.
    pub(crate) async fn count_proofs(
        &self,
        stats: &mut ProofStats,
        subject: &ProofSubject,
        tried: &BTreeSet<Key>,
    ) -> Result<(), Error> {
        if !tried.contains(&proofs::key(subject)) {
            return Ok(());
        }
        let known = match proofs::of(&*self.bucket, subject)
            .await
            .map_err(Error::from)
        {
            Err(error) if !is_damage(&error) => return Err(error),
            known => known.ok().flatten(),
        };
        let Some(known) = known else {
            return Ok(());
        };
        stats.tried += known.snapshots.len() as u64;
        let restored = known.snapshots.values();
        let restored = restored.filter_map(|one| one.restored_at_ms);
        stats.restored += restored.clone().count() as u64;
        stats.restored_at_ms = stats.restored_at_ms.max(restored.max());
        let broken = known.snapshots.iter().filter(|(_, one)| one.broken);
        let broken: Vec<&String> = broken.map(|(name, _)| name).collect();
        if !broken.is_empty() {
            // One that somebody deleted is nobody's concern any more.
            let all = self.snapshots_to_prove(subject).await?;
            let still = broken.into_iter().filter(|name| all.contains(name));
            stats.broken += still.count() as u64;
        }
        Ok(())
    }
}
