//! Which snapshots were really restored, and when: one document for each subject, as soon as one of its snapshots was tried.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::changing::{ChangingError, Recorded, change};
use crate::documents::lineages::{ReadError, read};
use crate::layout::{self, Key, Prefix, ProofSubject};
use futures_util::TryStreamExt;
use stasis_model::failure::Failure;
use stasis_model::format::proof::{ProofDocument, SnapshotProof};
use stasis_model::id::OpId;
use std::collections::BTreeSet;

impl Recorded for ProofDocument {
    fn was_written_by(&self, op_id: OpId) -> bool {
        self.op_id == op_id
    }
}

/// What is known of a subject.
pub async fn of(
    bucket: &dyn Bucket,
    subject: &ProofSubject,
) -> Result<Option<ProofDocument>, ReadError> {
    let found = read(bucket, &layout::proofs(subject)).await?;
    Ok(found.map(|found| found.value))
}

/// Where anything is known.
pub async fn all(bucket: &dyn Bucket) -> Result<BTreeSet<Key>, BucketError> {
    let prefix = Prefix::proofs();
    let listed = objects(bucket, &prefix);
    listed.map_ok(|row| row.key).try_collect().await
}

/// Where it is known of a subject.
pub fn key(subject: &ProofSubject) -> Key {
    layout::proofs(subject)
}

/// Writes down what became of an attempt. `all` are the snapshots that there are.
pub async fn record(
    bucket: &dyn Bucket,
    subject: &ProofSubject,
    (snapshot, proof): (&str, &SnapshotProof),
    all: &[String],
    op_id: OpId,
) -> Result<ProofDocument, ChangingError<Failure>> {
    let rule = |found: Option<&ProofDocument>| {
        let empty = || ProofDocument::empty(op_id);
        let found = found.cloned().unwrap_or_else(empty);
        Ok(found.with(snapshot, proof.clone(), all, op_id))
    };
    change(bucket, &layout::proofs(subject), op_id, rule).await
}
