//! Takes back what a wake replaced in a workspace: what it had left beside it comes back, and what is there is kept instead.

use super::memory::{self, LockWait};
use super::{SessionHost, failure, refused};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::handle::Sessions;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::restore::{self, Backup, OpenBackup, RestoreOrigin, Returned};
use stasis_model::id::SessionRef;
use stasis_model::session::step::SessionRefusal;
use std::path::{Path, PathBuf};

/// How many entries are named.
const NAMED: usize = 200;

/// What a wake replaced, and is there again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct WakeUndone {
    /// Which session.
    pub session: SessionRef,
    /// Its workspace.
    pub dir: String,
    /// From what the workspace had been woken, and when.
    pub woken_from: String,
    /// The same as text.
    pub woken_at: String,
    /// The same in milliseconds since 1970.
    pub woken_at_ms: u64,
    /// Entries that come back; the first few.
    pub back: Vec<String>,
    /// Entries that go, because nothing was there before; the first few.
    pub away: Vec<String>,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// Where that is kept which is replaced now.
    pub backup: String,
}

impl Sessions<'_> {
    /// Takes the last wake of a session on this host back, whatever came of it, or only says what that would do. Once more takes that back in turn.
    pub async fn undo_wake(
        self,
        host: &SessionHost,
        session: &SessionRef,
        dry_run: bool,
    ) -> Result<WakeUndone, Error> {
        self.ensure_unclaimed(session).await?;
        // A wake on this host waits until this is done; one that is at work is not waited for, because this is not meant for it.
        let _lock = memory::lock(host, session, LockWait::not_at_all()).await?;
        self.ensure_unclaimed(session).await?;
        let Some((dir, kept)) = memory::woken(host, session).await else {
            return Err(nothing_kept(session));
        };
        if !memory::is_workspace_of(host, session, &dir).await {
            return Err(nothing_kept(session));
        }
        let origin = RestoreOrigin {
            at: self.clock.now(),
            from: format!("the undo of a wake of {session}"),
        };
        let (of, at) = (session.clone(), dir.clone());
        let undone = bridge::blocking(move || undo(&of, (&at, &kept), &origin, dry_run)).await?;
        if !dry_run {
            memory::remember_woken(host, session, &dir, &undone.backup).await?;
        }
        Ok(undone)
    }

    async fn ensure_unclaimed(self, session: &SessionRef) -> Result<(), Error> {
        let document = self.read(session).await?;
        match document.claimed(self.now()) {
            None => Ok(()),
            Some(claim) => Err(refused(SessionRefusal::Claimed {
                session: session.clone(),
                claim: claim.clone(),
            })),
        }
    }

    /// What the last wake of a session on this host has replaced, if it is still kept.
    pub(super) async fn kept_of_wake(
        self,
        host: &SessionHost,
        session: &SessionRef,
    ) -> Option<String> {
        let (_, kept) = memory::woken(host, session).await?;
        let path = PathBuf::from(&kept);
        bridge::blocking(move || path.is_dir())
            .await
            .then_some(kept)
    }
}

fn nothing_kept(session: &SessionRef) -> Error {
    let said = format!(
        "no wake of `{session}` has replaced anything on this host, or that is no longer kept"
    );
    failure(ErrorKind::NotFound, said).into()
}

fn undo(
    session: &SessionRef,
    (at, kept): (&str, &str),
    origin: &RestoreOrigin,
    dry_run: bool,
) -> Result<WakeUndone, Error> {
    let dir = Path::new(at);
    let mut all = restore::backups(dir)?.into_iter();
    let Some(last) = all.find(|one| one.path == Path::new(kept)) else {
        return Err(nothing_kept(session));
    };
    let (mut back, mut away) = (Vec::new(), Vec::new());
    for one in OpenBackup::open(&last.path)?.returned() {
        match one {
            Returned::Back(path) if back.len() < NAMED => back.push(path.to_string()),
            Returned::Away(path) if away.len() < NAMED => away.push(path.to_string()),
            _ => {}
        }
    }
    let undone = WakeUndone::of(session, at, &last, (back, away));
    if dry_run {
        return Ok(WakeUndone {
            dry_run: true,
            ..undone
        });
    }
    let changes = restore::take_back(dir, &last.path, origin, &last.label, &[])?;
    let backup = changes.backup.unwrap_or(last.path);
    Ok(WakeUndone {
        backup: backup.display().to_string(),
        ..undone
    })
}

impl WakeUndone {
    fn of(
        session: &SessionRef,
        dir: &str,
        last: &Backup,
        (back, away): (Vec<String>, Vec<String>),
    ) -> Self {
        Self {
            session: session.clone(),
            dir: dir.to_owned(),
            woken_from: last.from.clone(),
            woken_at: last.at.to_string(),
            woken_at_ms: last.at.millis(),
            back,
            away,
            dry_run: false,
            backup: last.path.display().to_string(),
        }
    }
}
