//! Takes back what a wake replaced in a workspace: what it had left beside it comes back, and what is there is kept instead.

use super::{SessionHost, failure, refused};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::handle::Sessions;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::restore::{self, Backup, OpenBackup, RestoreOrigin, Returned};
use stasis_model::id::SessionRef;
use stasis_model::session::document::{SessionDocument, SessionState};
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
    /// Takes the last wake of a session that runs here back, or only says what that would do. Once more takes that back in turn.
    pub async fn undo_wake(
        self,
        host: &SessionHost,
        session: &SessionRef,
        dry_run: bool,
    ) -> Result<WakeUndone, Error> {
        let document = self.read(session).await?;
        Self::ensure_here(host, &document, false).await?;
        if document.state != SessionState::Running {
            return Err(refused(SessionRefusal::NotRunning {
                session: session.clone(),
                state: document.state,
            }));
        }
        let origin = RestoreOrigin {
            at: self.clock.now(),
            from: format!("the undo of a wake of {session}"),
        };
        bridge::blocking(move || undo(&document, &origin, dry_run)).await
    }

    /// What wakes have left beside a workspace of this host, the newest first.
    pub(super) async fn kept_beside(
        self,
        host: &SessionHost,
        document: &SessionDocument,
    ) -> Vec<PathBuf> {
        if document.place.host != host.name {
            return Vec::new();
        }
        let dir = PathBuf::from(&document.place.dir);
        let kept = bridge::blocking(move || restore::backups(&dir)).await;
        let kept = kept.unwrap_or_default().into_iter().rev();
        kept.map(|one| one.path).collect()
    }
}

fn undo(
    document: &SessionDocument,
    origin: &RestoreOrigin,
    dry_run: bool,
) -> Result<WakeUndone, Error> {
    let (session, dir) = (&document.session, Path::new(&document.place.dir));
    let Some(last) = restore::backups(dir)?.pop() else {
        let said = format!(
            "no wake of `{session}` has replaced anything in `{}`, or that is no longer kept",
            dir.display()
        );
        return Err(failure(ErrorKind::NotFound, said).into());
    };
    let (mut back, mut away) = (Vec::new(), Vec::new());
    for one in OpenBackup::open(&last.path)?.returned() {
        match one {
            Returned::Back(path) if back.len() < NAMED => back.push(path.to_string()),
            Returned::Away(path) if away.len() < NAMED => away.push(path.to_string()),
            _ => {}
        }
    }
    let undone = WakeUndone::of(document, &last, (back, away));
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
        document: &SessionDocument,
        last: &Backup,
        (back, away): (Vec<String>, Vec<String>),
    ) -> Self {
        Self {
            session: document.session.clone(),
            dir: document.place.dir.clone(),
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
