//! Makes damaged or lost documents of a subject anew, from what lies beside them.
//!
//! 1. find the documents that cannot be read, and those that are missing although something tells of them
//! 2. prove every snapshot that a new index would lead to: its metadata, its list, each chunk there and not condemned
//! 3. keep the damaged bytes aside, and put the new documents in their places, by conditional writes
//! 4. write an event down
//! 5. check the subject, and say what is still wrong with it
//!
//! *Always true:* a subject that a check finds damaged is never said to need no repair. What can be read is never replaced, but for an index
//! that went back beside snapshots which it does not lead to; nor what another build may understand, nor what somebody wrote meanwhile.
//! A new index begins another life of its subject, a new pointer fences out every owner: no save that knew the lost document
//! publishes beside the new one. A crash leaves some documents repaired; the next repair finds the others.

mod directories;
mod lineages;
mod rollback;

pub use rollback::AcceptedRollback;

use crate::catalog::references::damage;
use crate::check::{Remedy, RepoDamage};
use crate::error::{Error, ErrorKind, error_chain};
use crate::open::Engine;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::Failure;
use stasis_model::format::document::Document;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::id::{Label, OpId, TenantId};
use stasis_store::bucket::Swap;
use stasis_store::documents::lineages::read;
use stasis_store::documents::repair::DamagedDocument;
use stasis_store::layout::Key;

/// A document that is made anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepairedDocument {
    /// Where it lies in the store.
    pub document: String,
    /// What is wrong with it.
    pub why: String,
    /// Where its damaged bytes are kept, once it was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// A snapshot that a new index does not lead to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnprovenSnapshot {
    /// Which.
    pub snapshot: String,
    /// What is wrong with it.
    pub why: String,
}

/// What repairing a subject means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Repair {
    /// Which subject.
    pub subject: String,
    /// What is made anew. Nothing, if every document can be read.
    pub documents: Vec<RepairedDocument>,
    /// The snapshots that a new index leads to, the oldest first.
    pub snapshots: Vec<String>,
    /// What `latest` means afterwards, if that was found out anew.
    pub latest: Option<String>,
    /// Snapshots that are there and cannot be used.
    pub left_out: Vec<UnprovenSnapshot>,
    /// What is wrong and is not made anew: what a check of the subject finds besides, and after a repair all that it still finds.
    pub remaining: Vec<RepoDamage>,
    /// By which operation; none while nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Repair {
    fn of(subject: String) -> Self {
        Self {
            subject,
            documents: Vec::new(),
            snapshots: Vec::new(),
            latest: None,
            left_out: Vec::new(),
            remaining: Vec::new(),
            op_id: None,
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, damaged: &DamagedDocument, why: &str) {
        let why = if damaged.is_lost() { "is missing" } else { why };
        self.documents.push(RepairedDocument {
            document: damaged.key().to_string(),
            why: why.to_owned(),
            kept: None,
        });
    }

    /// Notes what a check finds. What a plan makes anew is not left over; what nobody is about to make anew is. A check that fails
    /// hides neither a plan nor what was done; where there is neither, nobody knows whether anything is wrong.
    fn leaves_over(&mut self, found: Result<Vec<RepoDamage>, Error>) -> Result<(), Error> {
        let mut found = match found {
            Ok(found) => found,
            Err(error) if self.documents.is_empty() => return Err(error),
            Err(error) => {
                self.warnings.push(Warning::NotChecked {
                    kind: error.kind(),
                    reason: error_chain(&error),
                });
                return Ok(());
            }
        };
        let is_planned = self.op_id.is_none() && !self.documents.is_empty();
        found.retain(|one| !is_planned || one.remedy != Remedy::Repair);
        self.remaining = found;
        Ok(())
    }

    /// Why it is not known what is left over, if it is not.
    pub fn unchecked(&self) -> Option<ErrorKind> {
        self.warnings.iter().find_map(|one| match one {
            Warning::NotChecked { kind, .. } => Some(*kind),
            _ => None,
        })
    }

    fn leave_out(&mut self, snapshot: &impl ToString, why: impl Into<String>) {
        self.left_out.push(UnprovenSnapshot {
            snapshot: snapshot.to_string(),
            why: why.into(),
        });
    }
}

/// A document and what takes its place.
struct NewDocument<D> {
    damaged: DamagedDocument,
    with: D,
}

fn overtaken(key: &Key) -> Error {
    let said = format!("`{key}` was written by somebody else meanwhile");
    let failure = Failure::of(ErrorKind::Retry, said);
    failure
        .with_hint("it was left as it is; run the repair again")
        .into()
}

fn still_damaged(key: &Key) -> Error {
    let said = format!("`{key}` changed while it was made anew, and cannot be read now either");
    let failure = Failure::of(ErrorKind::Retry, said);
    failure
        .with_hint("it was left as it is; run the repair again")
        .into()
}

fn unanswered(key: &Key) -> Error {
    let said =
        format!("the store did not say whether `{key}` was made anew, and it was not so far");
    let failure = Failure::of(ErrorKind::Retry, said);
    failure.with_hint("run the repair again").into()
}

impl Engine {
    /// Puts a document in the place of a damaged one; says where that is kept.
    async fn replaced<D: Document>(
        &self,
        one: &NewDocument<D>,
        op_id: OpId,
        written_by: impl Fn(&D) -> OpId,
    ) -> Result<Option<Key>, Error> {
        let NewDocument { damaged, with } = one;
        let (kept, swap) = damaged.replace(&*self.bucket, op_id, with).await?;
        if matches!(swap, Swap::Won(_)) {
            return Ok(kept);
        }
        // Lost, perhaps to our own request, or without an answer: what is there decides, be it still damaged.
        let now = damage(read::<D>(&*self.bucket, damaged.key()).await)?;
        let now = now.ok().flatten();
        match now {
            Some(now) if written_by(&now.value) == written_by(with) => Ok(kept),
            Some(_) => Err(overtaken(damaged.key())),
            None if swap == Swap::Unknown => Err(unanswered(damaged.key())),
            None => Err(still_damaged(damaged.key())),
        }
    }

    async fn log_repair(&self, repair: &mut Repair, op_id: OpId, tenant: TenantId, actor: &Label) {
        repair.op_id = Some(op_id);
        let events = self.events();
        let mut event: AuditEvent = events.event(EventKind::Repaired, Severity::Warning, actor);
        event.op_id = Some(op_id);
        let documents = serde_json::to_value(&repair.documents).unwrap_or_default();
        let left_out = serde_json::to_value(&repair.left_out).unwrap_or_default();
        let event = event
            .with("subject", repair.subject.clone())
            .with("documents", documents)
            .with("left_out", left_out);
        let warning = events.record(&tenant, event).await;
        repair.warnings.extend(warning);
    }
}

#[cfg(test)]
mod tests;
