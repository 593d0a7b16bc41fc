//! A session that begins with the snapshot of another.

use super::{failed, failure, name_of, no_snapshot};
use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::error::{Error, ErrorKind};
use crate::handle::Sessions;
use crate::restore::RepoRestore;
use crate::save::RepoSave;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::{SessionRef, SnapshotId};
use stasis_model::session::document::{DurableSnapshot, SessionDocument};
use stasis_model::session::step::SessionRefusal;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::documents::sessions::{self, SessionError};

/// Forks a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForkSession {
    /// Which.
    pub source: SessionRef,
    /// What the new one is called; of the same tenant.
    pub session: SessionRef,
}

/// A session that was forked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionForked {
    /// The new one, which sleeps.
    pub session: SessionRef,
    /// Which it began as.
    pub forked_from: SessionRef,
    /// Its snapshot.
    pub snapshot_id: SnapshotId,
    /// Bytes that had to be stored for it.
    pub bytes_stored: u64,
}

impl Sessions<'_> {
    /// Makes a session that sleeps with what the snapshot of another has. Chunks are shared; the other one is not touched.
    pub async fn fork(self, command: &ForkSession) -> Result<SessionForked, Error> {
        self.store().ensure_trusted().await?;
        let source = self.read(&command.source).await?;
        let none = || no_snapshot(&command.source);
        let known = source.snapshot.as_ref().ok_or_else(none)?;
        let there = sessions::session(&*self.bucket, &command.session).await?;
        if there.is_some_and(|there| there.value.is_alive()) {
            return Err(is_there(&command.session));
        }
        let from = self.of(&command.source);
        let scratch = from.scratch().await?;
        let tree = scratch.root().join("tree");
        let wanted = SnapshotSelector {
            snapshot: SnapshotRef::Text(known.snapshot_id.to_string()),
            name: Some(name_of(&command.source)),
        };
        let mut restore = RepoRestore::new(wanted, &tree);
        restore.owner = true;
        let _restored = from.dirs().restore(restore).await?;
        let to = self.of(&command.session);
        let mut save = RepoSave::new(&tree, name_of(&command.session));
        save.excludes = source.roots.patterns();
        save.strict = true;
        let saved = to.dirs().save(save).await?;
        let snapshot = DurableSnapshot {
            snapshot_id: saved.snapshot_id.clone(),
            state_digest: saved.state_digest,
            at: self.now(),
            ..known.clone()
        };
        let (now, op_id) = (self.now(), self.rng.op_id());
        let new = (&command.session, &snapshot);
        let rule = |found: Option<&SessionDocument>| {
            SessionDocument::forked(found, &source, new, now, op_id)
        };
        let forked = sessions::change(&*self.bucket, &command.session, op_id, rule).await;
        forked.map_err(|error| match error {
            SessionError::Refused(SessionRefusal::Running { session, .. }) => is_there(&session),
            error => failed(error),
        })?;
        bridge::blocking(move || drop(scratch)).await;
        Ok(SessionForked {
            session: command.session.clone(),
            forked_from: command.source.clone(),
            snapshot_id: saved.snapshot_id,
            bytes_stored: saved.bytes_stored,
        })
    }
}

fn is_there(session: &SessionRef) -> Error {
    let said = format!("there is a session `{session}` already");
    let hint = format!(
        "choose another name; `stasis session show {session}` says what that one is, `stasis session delete {session} --confirm` deletes it"
    );
    failure(ErrorKind::Conflict, said).with_hint(hint).into()
}
