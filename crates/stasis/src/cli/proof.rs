//! What a list says of a snapshot that was restored to prove it, or that could not be.

use stasis_engine::model::time::Timestamp;
use stasis_engine::proofs::ProofShown;

/// `proved 3 h ago`, or `proof failed 3 h ago`; nothing of one that nobody could try.
pub(in crate::cli) fn proved(proof: Option<&ProofShown>, now: Timestamp) -> Option<String> {
    let proof = proof?;
    let age = |ms: u64| Timestamp::from_millis(ms).age(now);
    if proof.broken {
        return Some(format!("proof failed {}", age(proof.tried_at_ms)));
    }
    let restored = proof.restored_at_ms?;
    Some(format!("proved {}", age(restored)))
}
