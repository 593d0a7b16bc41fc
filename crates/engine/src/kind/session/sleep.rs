//! Puts the sessions of one sandbox to sleep: save each, then claim each, then end the sandbox, then write down that they sleep.
//!
//! *Fail closed.* A session that could not be saved keeps its sandbox up, with everybody in it, as long as that is healthy. One whose
//! sandbox does not answer is ended and said to be lost. A heartbeat that comes before the claim keeps the sandbox up.
//! Whoever dies on the way leaves snapshots, and claims that expire: the next one begins anew, and nothing is done that does harm twice.

use super::capture::{SessionCaptured, SnapshotSession};
use super::memory::{self, HostLock, LockWait, is_known_here};
use super::sandbox::{LiveSandbox, SandboxHealth};
use super::{LEASE_TTL, SessionHost, failed, refused};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::Kinded as _;
use stasis_model::format::event::EventKind;
use stasis_model::id::SessionRef;
use stasis_model::session::document::{
    Sandbox, SessionDocument, SessionProblem, SessionState, SessionTrouble,
};
use stasis_model::session::step::{ClaimRequest, SessionRefusal, SleepEnding, SleepReason};
use stasis_store::documents::sessions::SessionError;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Of the time for which a sandbox that is being ended is nobody else's, the part after which nothing is ended any more: one of so many.
const LAST: u32 = 8;

/// Puts a session to sleep.
#[derive(Clone, Debug)]
pub struct SleepSession {
    /// How it is saved.
    pub snapshot: SnapshotSession,
    /// Whether commands of its sandbox are run that nobody typed on this host.
    pub trust_commands: bool,
    /// Whether the other sessions of its sandbox are put to sleep with it.
    pub with_others: bool,
    /// For how long others leave what this one does alone when it is not heard of any more.
    pub lease_ttl: Duration,
}

impl Default for SleepSession {
    fn default() -> Self {
        Self {
            snapshot: SnapshotSession::default(),
            trust_commands: false,
            with_others: false,
            lease_ttl: LEASE_TTL,
        }
    }
}

/// What became of a session that was to be put to sleep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SleptState {
    /// It sleeps, and everything is in its snapshot.
    Sleeping,
    /// Its sandbox did not answer and was ended; what was done since its last snapshot is lost.
    Terminated,
    /// It could not be saved, and goes on.
    SnapshotFailed,
    /// Its sandbox could not be ended, and goes on.
    TerminateFailed,
    /// Somebody used it meanwhile, or somebody else acts on it: it goes on.
    InUse,
    /// It was saved, and goes on, because its sandbox does.
    Saved,
    /// Its sandbox has ended, and it is not said to sleep: what it wrote last could not be saved, or the store could not be written. What
    /// it has is in its workspace, and the next run goes on with it.
    Ended,
}

/// A session that was to be put to sleep.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "a session that goes on is said only here"]
pub struct SessionSlept {
    /// Which.
    pub session: SessionRef,
    /// What became of it.
    pub state: SleptState,
    /// What was saved of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<SessionCaptured>,
    /// Why it goes on, or what is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Sessions that keep its sandbox running.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox_kept_for: Vec<SessionRef>,
    /// Sessions of its sandbox that sleep with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slept_with: Vec<SessionRef>,
}

impl SessionSlept {
    pub(super) fn new(session: &SessionRef, state: SleptState) -> Self {
        Self {
            session: session.clone(),
            state,
            saved: None,
            problem: None,
            sandbox_kept_for: Vec::new(),
            slept_with: Vec::new(),
        }
    }

    fn because(self, problem: impl Into<String>) -> Self {
        Self {
            problem: Some(problem.into()),
            ..self
        }
    }
}

/// One session of a sandbox, on its way to sleep.
struct Sleeper {
    document: SessionDocument,
    saved: Option<SessionCaptured>,
    /// Why it could not be saved.
    trouble: Option<String>,
    /// Whether that may be over the next time, and says nothing of the session.
    may_pass: bool,
    attempt: Option<u64>,
}

impl Sleeper {
    fn slept(&self, state: SleptState) -> SessionSlept {
        SessionSlept {
            saved: self.saved.clone(),
            problem: self.trouble.clone(),
            ..SessionSlept::new(&self.document.session, state)
        }
    }
}

/// A sandbox that has ended.
#[derive(Default)]
struct EndedSandbox {
    /// Whether there was anything to end.
    something: bool,
    /// The sessions for which something runs all the same, and why.
    left: BTreeMap<SessionRef, String>,
}

/// Whether a failure is of the moment: somebody wants us to stop, or the store is out of reach.
fn may_pass(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Cancelled | ErrorKind::Unreachable | ErrorKind::Retry | ErrorKind::Unknown
    )
}

/// How a sandbox ends, and why.
#[derive(Clone, Copy)]
struct SleepWay<'w> {
    host: &'w SessionHost,
    how: &'w SleepSession,
    why: SleepReason,
}

impl Sessions<'_> {
    /// Puts a session to sleep, whether it is in use or not. Where it shares its sandbox with sessions that are awake, that goes on for them.
    pub async fn sleep(
        self,
        host: &SessionHost,
        session: &SessionRef,
        how: &SleepSession,
    ) -> Result<SessionSlept, Error> {
        self.store().ensure_trusted().await?;
        let document = self.read(session).await?;
        if document.state == SessionState::Sleeping {
            return Ok(SessionSlept::new(session, SleptState::Sleeping));
        }
        if document.state != SessionState::Running {
            return Err(refused(SessionRefusal::NotRunning {
                session: session.clone(),
                state: document.state,
            }));
        }
        Self::ensure_here(host, &document, how.trust_commands).await?;
        let way = SleepWay {
            host,
            how,
            why: SleepReason::Asked,
        };
        let others = self.sharing(&document).await?;
        let names: Vec<SessionRef> = others.iter().map(|one| one.session.clone()).collect();
        if !others.is_empty() && !how.with_others {
            // Whatever runs for the others may write to its workspace: it does not sleep.
            let mut saved = self.save_each(vec![document], way).await;
            let mut one = saved.remove(0);
            if let Some(trouble) = &one.trouble {
                self.note_unsaved(session, trouble).await;
                return Ok(one.slept(SleptState::SnapshotFailed));
            }
            one.trouble = None;
            return Ok(SessionSlept {
                sandbox_kept_for: names,
                ..one.slept(SleptState::Saved)
            });
        }
        for other in &others {
            Self::ensure_here(host, other, how.trust_commands).await?;
        }
        let all = std::iter::once(document).chain(others).collect();
        let mut slept = self.put_to_sleep(all, way).await;
        let at = slept.iter().position(|one| one.session == *session);
        let mut one = slept.remove(at.unwrap_or_default());
        one.slept_with = slept
            .into_iter()
            .filter(|one| one.state == SleptState::Sleeping)
            .map(|one| one.session)
            .collect();
        Ok(one)
    }

    /// Puts all sessions of one sandbox to sleep that is ended with them, if it is idle.
    pub(super) async fn sleep_idle(
        self,
        host: &SessionHost,
        sandbox: Vec<SessionDocument>,
        how: &SleepSession,
    ) -> Vec<SessionSlept> {
        let way = SleepWay {
            host,
            how,
            why: SleepReason::Idle,
        };
        self.put_to_sleep(sandbox, way).await
    }

    async fn save_each(self, sessions: Vec<SessionDocument>, way: SleepWay<'_>) -> Vec<Sleeper> {
        let mut sleepers = Vec::new();
        for document in sessions {
            let saved = Box::pin(self.capture(&document, &way.how.snapshot)).await;
            let (saved, trouble, may_pass) = match saved {
                Ok(saved) => (Some(saved), None, false),
                Err(error) => (None, Some(error_chain(&error)), may_pass(error.kind())),
            };
            sleepers.push(Sleeper {
                document,
                saved,
                trouble,
                may_pass,
                attempt: None,
            });
        }
        sleepers
    }

    async fn put_to_sleep(
        self,
        sessions: Vec<SessionDocument>,
        way: SleepWay<'_>,
    ) -> Vec<SessionSlept> {
        let mut sleepers = self.save_each(sessions, way).await;
        let is_lost = sleepers.iter().any(|one| one.trouble.is_some());
        if is_lost && self.stays_up(&sleepers, way).await {
            return self.keep_up(sleepers).await;
        }
        // The first claim counts from before it was sent.
        let claimed_at = self.clock.uptime();
        if let Err(stopped) = self.claim_all(&mut sleepers, way).await {
            return stopped;
        }
        let lock = self.lock_commands(&sleepers, way).await;
        let against = match &lock {
            Ok(_) => self.speaks_against(&sleepers, way).await,
            Err(error) => Some((SleptState::InUse, error_chain(error))),
        };
        if let Some((state, why)) = against {
            self.release(&sleepers, None).await;
            let all = sleepers.iter();
            return all.map(|one| one.slept(state).because(&*why)).collect();
        }
        match self.end_sandbox(&sleepers, way, claimed_at).await {
            Ok(ended) => {
                let claimed = (claimed_at, ended.something);
                let (durable, mut all) = self.save_the_last(sleepers, way, claimed).await;
                let (left, durable): (Vec<_>, Vec<_>) = durable
                    .into_iter()
                    .partition(|one| ended.left.contains_key(&one.document.session));
                all.extend(self.not_ended(left, &ended.left).await);
                all.extend(self.write_down(durable).await);
                all
            }
            Err(error) => self.wake_up_again(sleepers, &error_chain(&error)).await,
        }
    }

    /// Whatever commands reach is ended under the lock of whoever starts it: of two that come at once one sees the other.
    async fn lock_commands(
        self,
        sleepers: &[Sleeper],
        way: SleepWay<'_>,
    ) -> Result<Option<HostLock>, Error> {
        let first = sleepers.first().map(|one| &one.document);
        let sandbox = first.and_then(|first| first.sandbox.as_ref().zip(Some(&first.session)));
        let Some((sandbox, session)) = sandbox else {
            return Ok(None);
        };
        if !sandbox.driver.is_lasting() {
            return Ok(None);
        }
        let wait = LockWait {
            longest: way.how.lease_ttl / 4,
            cancel: Some(&way.how.snapshot.cancel),
        };
        let name = (&session.tenant, &sandbox.name);
        let locked = memory::try_lock_sandbox(way.host, name, wait).await?;
        locked.map(Some).ok_or_else(|| {
            let said = format!("another process starts or ends `{}`", sandbox.name);
            wait.refusal(said).into()
        })
    }

    /// Says of sessions that something still runs for them, which is not their sandbox: that is ended, and what it wrote is saved.
    async fn not_ended(
        self,
        sleepers: Vec<Sleeper>,
        left: &BTreeMap<SessionRef, String>,
    ) -> Vec<SessionSlept> {
        let mut all = Vec::new();
        for one in sleepers {
            let why = left.get(&one.document.session).cloned().unwrap_or_default();
            let problem = SessionProblem::new(SessionTrouble::TerminateFailed, &why, self.now());
            self.release(std::slice::from_ref(&one), Some(&problem))
                .await;
            all.push(one.slept(SleptState::Ended).because(why));
        }
        all
    }

    /// Why a sandbox whose sessions are all claimed is not ended all the same: somebody gave up, or another session has begun to use it.
    async fn speaks_against(
        self,
        sleepers: &[Sleeper],
        way: SleepWay<'_>,
    ) -> Option<(SleptState, String)> {
        if way.how.snapshot.cancel.load(Ordering::Relaxed) {
            let why = "it was given up before its sandbox was ended".to_owned();
            return Some((SleptState::TerminateFailed, why));
        }
        let first = sleepers.first()?;
        for one in sleepers {
            // What was claimed may be another document than the one that was looked at.
            let is_known = is_known_here(way.host, &one.document).await;
            if !is_known && !way.how.trust_commands {
                let why = format!(
                    "`{}` is not what was registered on this host any more",
                    one.document.session
                );
                return Some((SleptState::InUse, why));
            }
        }
        let identity = first.document.sandbox_identity();
        let is_moved = |one: &&Sleeper| one.document.sandbox_identity() != identity;
        if let Some(moved) = sleepers.iter().find(is_moved) {
            let why = format!(
                "`{}` runs in another sandbox by now",
                moved.document.session
            );
            return Some((SleptState::InUse, why));
        }
        let others = self.sharing(&first.document).await;
        let others = match others {
            Ok(others) => others,
            Err(error) => return Some((SleptState::TerminateFailed, error_chain(&error))),
        };
        let is_new = |other: &&SessionDocument| {
            let mut all = sleepers.iter();
            !all.any(|one| one.document.session == other.session)
        };
        let other = others.iter().find(is_new)?;
        let why = format!("its sandbox runs `{}`, too", other.session);
        Some((SleptState::InUse, why))
    }

    /// Saves what was written between the snapshot and the end of the sandbox, also of those that could not be saved while it ran: it was
    /// asked to end, and may have written what it had. Gives back the claims of those of which that cannot be saved: their work is in their
    /// workspaces, and the next one tries again. Of what was lost before, and is still, it is said.
    async fn save_the_last(
        self,
        sleepers: Vec<Sleeper>,
        way: SleepWay<'_>,
        (claimed_at, something_ended): (Duration, bool),
    ) -> (Vec<Sleeper>, Vec<SessionSlept>) {
        let mut renewed_at = claimed_at;
        let held: Vec<(SessionRef, u64)> = sleepers
            .iter()
            .filter_map(|one| Some((one.document.session.clone(), one.attempt?)))
            .collect();
        let (mut durable, mut unsaved) = (Vec::new(), Vec::new());
        for mut one in sleepers {
            if !something_ended {
                durable.push(one);
                continue;
            }
            let capture = Box::pin(self.capture(&one.document, &way.how.snapshot));
            match self
                .renewing((&held, &mut renewed_at), way.how.lease_ttl, capture)
                .await
            {
                Ok(saved) => {
                    let is_new = !saved.unchanged || one.saved.is_none();
                    one.saved = Some(saved).filter(|_| is_new).or(one.saved);
                    one.trouble = None;
                    durable.push(one);
                }
                Err(_) if one.trouble.is_some() => durable.push(one),
                Err(error) => {
                    let error = error_chain(&error);
                    let why = format!(
                        "what was written while its sandbox ended could not be saved: {error}"
                    );
                    let trouble = SessionTrouble::SnapshotFailed;
                    let problem = SessionProblem::new(trouble, &why, self.now());
                    let slept = one.slept(SleptState::Ended).because(why);
                    self.release(std::slice::from_ref(&one), Some(&problem))
                        .await;
                    unsaved.push(slept);
                }
            }
        }
        (durable, unsaved)
    }

    /// Does something that may take longer than a claim lasts.
    async fn renewing<T>(
        self,
        (held, renewed_at): (&[(SessionRef, u64)], &mut Duration),
        ttl: Duration,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        loop {
            let since = self.clock.uptime().saturating_sub(*renewed_at);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep((ttl / 4).saturating_sub(since)) => {
                    *renewed_at = self.clock.uptime();
                    for (session, attempt) in held {
                        let renewed = self.change(session, |found, op_id| {
                            found.renew(*attempt, self.now(), ttl, op_id)
                        });
                        if let Err(error) = renewed.await {
                            tracing::info!(%session, %error, "a claim was not renewed");
                        }
                    }
                }
            }
        }
    }

    /// Whether a sandbox with sessions that could not be saved is left alone: unless it does not answer.
    async fn stays_up(self, sleepers: &[Sleeper], way: SleepWay<'_>) -> bool {
        let Some(first) = sleepers.first() else {
            return true;
        };
        if sleepers.iter().any(|one| one.may_pass) {
            return true;
        }
        let live = LiveSandbox::of(way.host, &first.document).trusting(way.how.trust_commands);
        // What we cannot tell is not taken for dead; and of what has ended by itself nothing is gained by giving its work up.
        !matches!(live.health().await, Ok(SandboxHealth::Unreachable { .. }))
    }

    /// Says of sessions that could not be saved why; the others were saved, and go on with them.
    async fn keep_up(self, sleepers: Vec<Sleeper>) -> Vec<SessionSlept> {
        let mut all = Vec::new();
        for one in sleepers {
            let Some(trouble) = one.trouble.clone() else {
                all.push(one.slept(SleptState::Saved));
                continue;
            };
            self.note_unsaved(&one.document.session, &trouble).await;
            all.push(one.slept(SleptState::SnapshotFailed));
        }
        all
    }

    /// Writes down why a session that goes on could not be saved.
    pub(super) async fn note_unsaved(self, session: &SessionRef, trouble: &str) {
        let problem = SessionProblem::new(SessionTrouble::SnapshotFailed, trouble, self.now());
        let noted = self.change(session, |found, op_id| found.note_problem(&problem, op_id));
        if let Err(error) = noted.await {
            let error = error_chain(&error);
            tracing::warn!(%session, error, "could not write down that it was not saved");
        }
    }

    /// Claims all sessions of a sandbox, or none: what is in use keeps it up.
    async fn claim_all(
        self,
        sleepers: &mut [Sleeper],
        way: SleepWay<'_>,
    ) -> Result<(), Vec<SessionSlept>> {
        for at in 0..sleepers.len() {
            let who = ClaimRequest {
                by: way.host.by.clone(),
                now: self.now(),
                ttl: way.how.lease_ttl,
            };
            let session = sleepers[at].document.session.clone();
            let claimed = self.change(&session, |found, op_id| {
                found.claim_sleep(&who, way.why, op_id)
            });
            match claimed.await {
                Ok(document) => {
                    sleepers[at].attempt = Some(document.attempt);
                    sleepers[at].document = document;
                }
                Err(error) => {
                    let state = match &error {
                        SessionError::Refused(_) => SleptState::InUse,
                        _ => SleptState::TerminateFailed,
                    };
                    let why = error_chain(&failed(error));
                    self.release(sleepers, None).await;
                    let stopped = sleepers.iter();
                    let stopped = stopped.map(|one| one.slept(state).because(why.clone()));
                    return Err(stopped.collect());
                }
            }
        }
        Ok(())
    }

    /// Gives claims back.
    async fn release(self, sleepers: &[Sleeper], problem: Option<&SessionProblem>) {
        for one in sleepers {
            let Some(attempt) = one.attempt else { continue };
            let session = &one.document.session;
            let released = self.change(session, |found, op_id| {
                found.sleep_given_up(attempt, problem, op_id)
            });
            if let Err(error) = released.await {
                let error = error_chain(&error);
                tracing::info!(%session, error, "a claim was not given back; it expires");
            }
        }
    }

    /// Ends a sandbox whose sessions are all claimed, and what runs for any of them unknown to the store.
    async fn end_sandbox(
        self,
        sleepers: &[Sleeper],
        way: SleepWay<'_>,
        claimed_at: Duration,
    ) -> Result<EndedSandbox, Error> {
        let mut all = EndedSandbox::default();
        let Some(first) = sleepers.first() else {
            return Ok(all);
        };
        let held_for = self.clock.uptime().saturating_sub(claimed_at);
        let ttl = way.how.lease_ttl;
        if held_for > ttl.saturating_sub(ttl / LAST) {
            let said = "the claim is about to expire: nothing is ended any more";
            return Err(super::failure(ErrorKind::Retry, said).into());
        }
        let live = LiveSandbox::of(way.host, &first.document).trusting(way.how.trust_commands);
        let until = claimed_at + ttl.saturating_sub(ttl / LAST);
        let live = live.until(&*self.clock, until);
        let left = ttl.saturating_sub(held_for);
        let Ok(ended) = tokio::time::timeout(left, live.terminate()).await else {
            let said = "the sandbox did not end in time";
            return Err(super::failure(ErrorKind::Failed, said).into());
        };
        ended?;
        let is_over = || self.clock.uptime() > until;
        all.something = first.document.sandbox.is_some();
        let on = (way.host, way.how.trust_commands);
        let is_command = |one: &&Sandbox| one.driver.is_lasting();
        let locked = first.document.sandbox.as_ref().filter(is_command);
        let held = locked.map(|sandbox| &sandbox.name);
        for one in sleepers {
            let session = &one.document.session;
            if let Some(ended) = &one.document.sandbox
                && let Err(error) = memory::forget_ended(way.host, session, ended).await
            {
                let error = error_chain(&error);
                tracing::warn!(%session, error, "that its sandbox has ended was not noted here");
            }
            match self.end_unknown(on, (&one.document, held), is_over).await {
                Ok(ended) => all.something |= ended,
                Err(error) => {
                    let why = format!(
                        "its sandbox has ended, and something else still runs for it: {}",
                        error_chain(&error)
                    );
                    all.left.insert(session.clone(), why);
                }
            }
        }
        Ok(all)
    }

    /// Writes down that sessions sleep, or are lost.
    async fn write_down(self, sleepers: Vec<Sleeper>) -> Vec<SessionSlept> {
        let mut all = Vec::new();
        for one in sleepers {
            let (session, attempt) = (&one.document.session, one.attempt.unwrap_or_default());
            let (ending, state) = match &one.trouble {
                None => (SleepEnding::Asleep, SleptState::Sleeping),
                Some(trouble) => {
                    let trouble =
                        SessionProblem::new(SessionTrouble::Unreachable, trouble, self.now());
                    (SleepEnding::Lost(trouble), SleptState::Terminated)
                }
            };
            let written = self.change(session, |found, op_id| found.slept(attempt, &ending, op_id));
            if let Err(error) = written.await {
                // Its claim expires, and whoever comes next finds the sandbox gone.
                let why = format!(
                    "its sandbox was ended, but that could not be written down: {}",
                    error_chain(&error)
                );
                tracing::warn!(%session, kind = ?error.kind(), why);
                all.push(one.slept(SleptState::Ended).because(why));
                continue;
            }
            self.leave_process(&one.document).await;
            if let (SleptState::Terminated, Some(trouble)) = (state, &one.trouble) {
                self.note_event(EventKind::SessionLost, session, trouble)
                    .await;
            }
            all.push(one.slept(state));
        }
        all
    }

    /// The sandbox could not be ended: its sessions go on.
    async fn wake_up_again(self, sleepers: Vec<Sleeper>, why: &str) -> Vec<SessionSlept> {
        let problem = SessionProblem::new(SessionTrouble::TerminateFailed, why, self.now());
        self.release(&sleepers, Some(&problem)).await;
        let state = SleptState::TerminateFailed;
        let all = sleepers.iter().map(|one| one.slept(state).because(why));
        all.collect()
    }
}
