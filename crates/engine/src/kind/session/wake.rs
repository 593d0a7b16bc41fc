//! Wakes a session: its workspace becomes what its snapshot has, and its sandbox is started.
//!
//! 1. claim it   2. restore, beside what is there, and put that in its place   3. start the sandbox   4. write down that it runs
//!
//! *Always true:* "fresh" is said of a session that never had a snapshot, and of no other; one whose snapshot cannot be restored stays
//! asleep. A wake that fails leaves no half of a workspace; what it replaced is kept beside it. An attempt that was superseded, because it
//! took so long that another one began, changes nothing any more.

use super::capture::unreadable;
use super::memory::{self, is_known_here};
use super::register::whole;
use super::sandbox::{LiveSandbox, SandboxRequest};
use super::start::Started;
use super::{LEASE_TTL, SessionHost, failed, failure, millis, name_of, refused};
use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use crate::restore::{Placement, RepoRestore, RepoRestored};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_disk::tree::ownership;
use stasis_model::failure::AtPath;
use stasis_model::id::{SessionRef, SnapshotId};
use stasis_model::session::document::{
    Sandbox, SessionDocument, SessionPlace, SessionProblem, SessionState, SessionTrouble,
};
use stasis_model::session::step::{ClaimRequest, SessionRefusal};
use stasis_model::snapshot_ref::SnapshotRef;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Wakes a session.
#[derive(Clone, Debug)]
pub struct WakeSession {
    /// Which.
    pub session: SessionRef,
    /// Where its workspace shall lie; where it lay when not given.
    pub dir: Option<PathBuf>,
    /// Who shall own it: user and group.
    pub owner: Option<(u32, u32)>,
    /// What runs it from now on; what ran it before when not given.
    pub sandbox: Option<SandboxRequest>,
    /// Whether nothing is started: somebody runs a command in it.
    pub without_sandbox: bool,
    /// Whether one that runs on another host, which is gone, is woken here.
    pub take_over: bool,
    /// Whether commands of its sandbox are run that nobody typed on this host.
    pub trust_commands: bool,
    /// For how long others leave it alone when this one is not heard of any more.
    pub lease_ttl: Duration,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl WakeSession {
    /// Wakes a session where it lay.
    pub fn new(session: SessionRef) -> Self {
        Self {
            session,
            dir: None,
            owner: None,
            sandbox: None,
            without_sandbox: false,
            take_over: false,
            trust_commands: false,
            lease_ttl: LEASE_TTL,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// What a session woke up to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeOutcome {
    /// What its snapshot has.
    Restored,
    /// Nothing: it never had a snapshot.
    Fresh,
    /// It was awake, and its workspace is there.
    Present,
}

/// A session that is awake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was restored is said only here"]
pub struct SessionWoken {
    /// Which.
    pub session: SessionRef,
    /// What it woke up to.
    pub outcome: WakeOutcome,
    /// Its workspace.
    pub dir: String,
    /// What was restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// Regular files.
    pub files: u64,
    /// The length of all files.
    pub bytes: u64,
    /// Bytes that were on this host already.
    pub bytes_reused: u64,
    /// Chunks that were fetched.
    pub chunks_fetched: u64,
    /// Where that is kept which was replaced, for seven days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// What was lost with the sandbox that it had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// How often something was done to it.
    pub attempt: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A wake that has the claim.
struct Waking<'w> {
    host: &'w SessionHost,
    command: &'w WakeSession,
    /// As it was claimed, and where it will lie.
    document: SessionDocument,
    dir: String,
    /// What somebody said that runs it from now on.
    sandbox: Option<Sandbox>,
    /// When the claim was sent.
    begun: Duration,
    /// Until when it is surely ours, in milliseconds of this machine's running time.
    held_until: Arc<AtomicU64>,
}

impl Waking<'_> {
    /// The claim was sent, or renewed, at this moment; in its last eighth nothing takes its place any more.
    fn hold_since(&self, asked: Duration) {
        let ttl = self.command.lease_ttl;
        let until = asked + ttl.saturating_sub(ttl / 8);
        self.held_until.store(millis(until), Ordering::Relaxed);
    }
}

impl Sessions<'_> {
    /// Wakes a session.
    #[tracing::instrument(skip_all, err(level = "info"), fields(session = %command.session))]
    pub async fn wake(
        self,
        host: &SessionHost,
        command: &WakeSession,
    ) -> Result<SessionWoken, Error> {
        self.store().ensure_trusted().await?;
        let started = self.clock.uptime();
        let mut document = self.read(&command.session).await?;
        if document.state == SessionState::Running {
            if let Some(present) = self.present(host, command, &document).await? {
                return Ok(present);
            }
            // Whoever is refused changes nothing.
            self.ensure_wakeable(host, command, &document).await?;
            document = self.give_up_sandbox(host, command, &document).await?;
        }
        let lost = document
            .problem
            .as_ref()
            .filter(|_| document.state == SessionState::Terminated);
        let lost = lost.map(|problem| problem.message.to_string());
        let waking = self.begin(host, command, &document).await?;
        let attempt = waking.document.attempt;
        let woken = Box::pin(self.while_claimed(&waking, attempt)).await;
        let mut woken = match woken {
            Ok(woken) => woken,
            Err(error) => {
                self.note_failed(&command.session, attempt, &error).await;
                return Err(error);
            }
        };
        woken.lost = lost;
        woken.elapsed_ms = millis(self.clock.uptime().saturating_sub(started));
        Ok(woken)
    }

    /// Brings a session back for as long as it is ours: renews the claim, and gives up before it can have expired, so that nothing takes the
    /// place of what another one has woken meanwhile.
    async fn while_claimed(self, waking: &Waking<'_>, attempt: u64) -> Result<SessionWoken, Error> {
        let command = waking.command;
        waking.hold_since(waking.begun);
        let work = self.bring_back(waking);
        tokio::pin!(work);
        loop {
            tokio::select! {
                // What has expired while we were stopped is seen before anything goes on.
                biased;
                () = tokio::time::sleep(command.lease_ttl / 8) => {
                    let asked = self.clock.uptime();
                    if self.renew_wake(command, attempt).await {
                        waking.hold_since(asked);
                    }
                    if millis(self.clock.uptime()) > waking.held_until.load(Ordering::Relaxed) {
                        command.cancel.store(true, Ordering::Relaxed);
                    }
                }
                done = &mut work => return done,
            }
        }
    }

    pub(super) fn who(self, host: &SessionHost, command: &WakeSession) -> ClaimRequest {
        ClaimRequest {
            by: host.by.clone(),
            now: self.now(),
            ttl: command.lease_ttl,
        }
    }

    /// Claims a session that sleeps.
    async fn begin<'w>(
        self,
        host: &'w SessionHost,
        command: &'w WakeSession,
        document: &SessionDocument,
    ) -> Result<Waking<'w>, Error> {
        let (dir, sandbox) = self.ensure_wakeable(host, command, document).await?;
        let (who, begun) = (self.who(host, command), self.clock.uptime());
        let claimed = self.change(&command.session, |found, op_id| {
            found.begin_wake(&who, op_id)
        });
        let mut document = claimed.await.map_err(failed)?;
        // Nobody else puts anything there meanwhile.
        let noted = memory::remember_workspace(host, &command.session, &dir).await;
        if let Err(error) = noted {
            self.note_failed(&command.session, document.attempt, &error)
                .await;
            return Err(error);
        }
        document.place = SessionPlace {
            host: host.name.clone(),
            dir: dir.clone(),
        };
        Ok(Waking {
            host,
            command,
            document,
            dir,
            sandbox,
            begun,
            held_until: Arc::default(),
        })
    }

    /// Where it will lie and in which sandbox, where one is named, if nothing stands against waking it on this host.
    async fn ensure_wakeable(
        self,
        host: &SessionHost,
        command: &WakeSession,
        document: &SessionDocument,
    ) -> Result<(String, Option<Sandbox>), Error> {
        let session = &command.session;
        let dir = self.target(host, command, document).await?;
        self.ensure_free(host, &dir, session).await?;
        let sandbox = match &command.sandbox {
            Some(request) => Some(request.resolve(host, session).await?),
            None => None,
        };
        if sandbox.is_some() {
            let mut will_be = document.running_in(sandbox.clone());
            will_be.place.host = host.name.clone();
            self.ensure_one_sandbox(host, &will_be).await?;
        } else if !command.without_sandbox {
            let live = LiveSandbox::of(host, document).trusting(command.trust_commands);
            live.ensure_may_start().await?;
        }
        let path = PathBuf::from(&dir);
        let is_used = bridge::blocking(move || {
            let mut entries = path.read_dir().into_iter().flatten();
            entries.next().is_some()
        });
        // What the store says is enough for whoever trusts it.
        let is_there = document.place.host == host.name && document.place.dir == dir;
        let is_its = command.trust_commands && is_there
            || memory::is_workspace_of(host, session, &dir).await;
        if is_used.await && !is_its {
            let said = format!(
                "`{dir}` is not empty, and this host does not know it as the workspace of `{session}`"
            );
            let hint = if is_there {
                "the store says that it is: `--trust-commands` believes it; what is in it is replaced by the snapshot, and kept beside it"
            } else {
                "what is in it would be replaced: name a directory that is empty or not there yet"
            };
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        Ok((dir, sandbox))
    }

    /// Where it shall lie: where somebody says, or where it lay on this host. What the store alone says is not written to.
    async fn target(
        self,
        host: &SessionHost,
        command: &WakeSession,
        document: &SessionDocument,
    ) -> Result<String, Error> {
        if let Some(dir) = &command.dir {
            return absolute(dir);
        }
        let is_known = command.trust_commands || is_known_here(host, document).await;
        if is_known && !document.place.dir.is_empty() {
            return Ok(document.place.dir.clone());
        }
        let session = &document.session;
        let said = format!("where `{session}` shall lie on this host is not said");
        let hint = format!("say `stasis session wake {session} --dir DIR`");
        Err(failure(ErrorKind::Invalid, said).with_hint(hint).into())
    }

    /// Says that it is still ours; whether that was heard.
    async fn renew_wake(self, command: &WakeSession, attempt: u64) -> bool {
        let (session, ttl) = (&command.session, command.lease_ttl);
        let renewed = self.change(session, |found, op_id| {
            found.renew(attempt, self.now(), ttl, op_id)
        });
        match renewed.await {
            Ok(_) => true,
            Err(error) => {
                tracing::info!(%session, %error, "the claim of a wake was not renewed");
                false
            }
        }
    }

    async fn note_failed(self, session: &SessionRef, attempt: u64, error: &Error) {
        let said = error_chain(error);
        let problem = SessionProblem::new(SessionTrouble::WakeFailed, &said, self.now());
        let noted = self.change(session, |found, op_id| {
            found.wake_failed(attempt, &problem, op_id)
        });
        if let Err(error) = noted.await {
            tracing::info!(%session, %error, "that a wake failed was not written down; its claim expires");
        }
    }

    async fn bring_back(self, waking: &Waking<'_>) -> Result<SessionWoken, Error> {
        // Whoever takes an earlier wake back is waited for.
        let (host, command) = (waking.host, waking.command);
        let _lock = memory::lock(host, &command.session, command.lock_wait()).await?;
        let restored = self.restore_latest(waking).await?;
        let backup = restored.as_ref().and_then(|one| one.changes.as_ref());
        if let Some(backup) = backup.and_then(|changes| changes.backup.as_ref()) {
            let (session, dir) = (&waking.command.session, &waking.dir);
            memory::remember_woken(waking.host, session, dir, backup).await?;
        } else {
            // An older one is not what `undo` means.
            memory::forget_woken(waking.host, &waking.command.session).await?;
        }
        if let Some(owner) = waking.command.owner {
            own(&waking.dir, owner).await?;
        }
        let session = &waking.command.session;
        // Whoever was superseded starts nothing.
        let now = self.read(session).await?;
        if now.claim.as_ref().map(|claim| claim.attempt) != Some(waking.document.attempt) {
            return Err(refused(SessionRefusal::Superseded {
                session: session.clone(),
                attempt: waking.document.attempt,
                by: now.attempt,
            }));
        }
        let mut asked = waking.document.clone();
        asked.sandbox = waking.sandbox.clone().or(asked.sandbox);
        let _sandbox_lock = self.lock_sandbox(host, command, &asked).await?;
        let started = self.start_sandbox(waking, &asked).await?;
        let (attempt, place) = (waking.document.attempt, &waking.document.place);
        let woken = self.change(session, |found, op_id| {
            found.woken(attempt, (place, started.sandbox()), self.now(), op_id)
        });
        let on = (host, command.trust_commands);
        let woken = self.runs_from_now_on(on, (&waking.document, &started), woken);
        let document = woken.await?;
        let outcome = match &restored {
            Some(_) => WakeOutcome::Restored,
            None => WakeOutcome::Fresh,
        };
        let woken = SessionWoken::at(&document, outcome);
        Ok(match restored {
            Some(restored) => woken.with(restored),
            None => woken,
        })
    }

    /// Makes the workspace what the published snapshot has; nothing where there never was one.
    async fn restore_latest(self, waking: &Waking<'_>) -> Result<Option<RepoRestored>, Error> {
        let session = &waking.command.session;
        let engine = self.of(session);
        // What was published and not written down is not known to be whole.
        let known = waking.document.snapshot.as_ref();
        let Some(latest) = known.map(|known| known.snapshot_id.clone()) else {
            let dir = PathBuf::from(&waking.dir);
            let made = bridge::blocking(move || {
                std::fs::create_dir_all(&dir).at("make the directory", &dir)
            });
            made.await?;
            return Ok(None);
        };
        let dir = PathBuf::from(&waking.dir);
        let parent = dir.parent().map(Path::to_owned);
        let made = bridge::blocking(move || match parent {
            Some(parent) => std::fs::create_dir_all(&parent).at("make the directory", &parent),
            None => Ok(()),
        });
        made.await?;
        let wanted = SnapshotSelector {
            snapshot: SnapshotRef::Text(latest.to_string()),
            name: Some(name_of(session)),
        };
        let restore = RepoRestore {
            placement: Placement::InPlace,
            owner: waking.command.owner.is_none(),
            cancel: waking.command.cancel.clone(),
            swap_until: Some(waking.held_until.clone()),
            progress: waking.command.progress.clone(),
            ..RepoRestore::new(wanted, dir)
        };
        Ok(Some(engine.dirs().restore(restore).await?))
    }

    /// What runs it from now on.
    async fn start_sandbox(
        self,
        waking: &Waking<'_>,
        document: &SessionDocument,
    ) -> Result<Started, Error> {
        let (host, command) = (waking.host, waking.command);
        let on = (host, command.trust_commands);
        let held = document.sandbox.as_ref().map(|sandbox| &sandbox.name);
        let held = held.filter(|_| !command.without_sandbox);
        self.end_left_over(on, &document.session, held).await?;
        if command.without_sandbox {
            return Ok(Started::elsewhere(None));
        }
        let is_stale = document.sandbox.as_ref().is_some_and(Sandbox::cannot_start);
        if is_stale && waking.sandbox.is_none() {
            // The process that it was is gone, and nobody says how another one is started.
            let running = self.sandbox_of_others(on, document).await?;
            return Ok(Started::elsewhere(running));
        }
        self.join_or_start(host, command, document).await
    }
}

impl SessionWoken {
    pub(super) fn at(document: &SessionDocument, outcome: WakeOutcome) -> Self {
        let snapshot = document.snapshot.as_ref();
        Self {
            session: document.session.clone(),
            outcome,
            dir: document.place.dir.clone(),
            snapshot_id: snapshot.map(|one| one.snapshot_id.clone()),
            files: 0,
            bytes: 0,
            bytes_reused: 0,
            chunks_fetched: 0,
            backup: None,
            lost: None,
            attempt: document.attempt,
            elapsed_ms: 0,
        }
    }

    fn with(self, restored: RepoRestored) -> Self {
        let backup = restored.changes.and_then(|changes| changes.backup);
        Self {
            snapshot_id: Some(restored.snapshot_id),
            files: restored.files,
            bytes: restored.bytes,
            bytes_reused: restored.bytes_reused,
            chunks_fetched: restored.chunks_fetched,
            backup,
            ..self
        }
    }
}

/// A directory that need not be there, by the one name that it has: links on the way to it are followed.
pub(super) fn absolute(dir: &Path) -> Result<String, Error> {
    let whole = std::path::absolute(dir).at("find", dir)?;
    let mut there = whole.as_path();
    let mut rest = Vec::new();
    while there.symlink_metadata().is_err() {
        let (Some(above), Some(name)) = (there.parent(), there.file_name()) else {
            break;
        };
        rest.push(name);
        there = above;
    }
    let mut whole = there.canonicalize().at("find", dir)?;
    whole.extend(rest.iter().rev());
    let text = whole.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        let said = format!("the name of `{}` is not UTF-8", whole.display());
        failure(ErrorKind::Invalid, said).into()
    })
}

async fn own(dir: &str, (user, group): (u32, u32)) -> Result<(), Error> {
    let whole = whole(Path::new(dir)).await?;
    let given = bridge::blocking(move || ownership::give(Path::new(&whole), user, group));
    given.await.map_err(unreadable)
}
