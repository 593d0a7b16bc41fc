//! The rules of `session.json`: register, beat, sleep, wake, delete. Pure: what is, and what is asked, give what becomes, or why not.
//!
//! **Sleep.** snapshot → [`note_snapshot`](SessionDocument::note_snapshot) → [`claim_sleep`](SessionDocument::claim_sleep) → terminate the
//! sandbox → [`slept`](SessionDocument::slept). The claim is a conditional write like every other, so that a heartbeat that came since the
//! session was looked at refuses it, and one that comes after it is refused itself: no heartbeat that was acknowledged is followed by the
//! end of the sandbox. A claim expires, and who made it ends nothing after that; then a heartbeat takes it back.
//!
//! **Wake.** [`begin_wake`](SessionDocument::begin_wake) → restore → start the sandbox → [`woken`](SessionDocument::woken), or
//! [`wake_failed`](SessionDocument::wake_failed). Attempts are numbered: one that was superseded, because its claim expired and another
//! came, changes nothing any more.
//!
//! *Always true:* a session whose snapshot is known never forgets it, except by being deleted; and a session that is registered over one
//! which sleeps with a snapshot is refused, because its workspace may be empty.

use super::document::{
    DurableSnapshot, IDLE_TIMEOUT, RECENT, Sandbox, SessionAct, SessionClaim, SessionDocument,
    SessionPlace, SessionProblem, SessionState, SessionTrouble,
};
use super::roots::SessionRoots;
use crate::failure::{ErrorKind, Kinded};
use crate::format::document::Document as _;
use crate::id::{Generation, Label, OpId, SessionRef, SnapshotId};
use crate::time::Timestamp;
use serde_json::Map;
use std::time::Duration;

/// What a session is registered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// Which.
    pub session: SessionRef,
    /// Where its workspace lies.
    pub place: SessionPlace,
    /// What of that is saved; as it was, or the usual ones, when not said.
    pub roots: Option<SessionRoots>,
    /// What runs it; what ran it before, when not said.
    pub sandbox: Option<Sandbox>,
    /// After how long without a heartbeat it is idle; as it was, or an hour, when not said.
    pub idle_timeout: Option<Duration>,
}

/// Who asks for a session, at which moment, and for how long nobody else may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRequest {
    /// Who.
    pub by: Label,
    /// When.
    pub now: Timestamp,
    /// For how long.
    pub ttl: Duration,
}

/// Why a session is not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionRefusal {
    /// Nobody registered it.
    #[error("there is no session `{0}`")]
    Absent(SessionRef),
    /// It is deleted.
    #[error("the session `{0}` was deleted")]
    Deleted(SessionRef),
    /// It does not run.
    #[error("the session `{session}` is {}", .state.words())]
    NotRunning {
        /// Which.
        session: SessionRef,
        /// Where it stands.
        state: SessionState,
    },
    /// It runs already.
    #[error("the session `{session}` runs already, in `{}` on {}", .place.dir, .place.host)]
    Running {
        /// Which.
        session: SessionRef,
        /// Where.
        place: SessionPlace,
    },
    /// Somebody is doing something to it.
    #[error("the session `{session}` is being {} by {}", .claim.act.words(), .claim.by)]
    Claimed {
        /// Which.
        session: SessionRef,
        /// Who, and what.
        claim: SessionClaim,
    },
    /// It is in use.
    #[error("the session `{session}` is in use: the last heartbeat was at {heartbeat}")]
    InUse {
        /// Which.
        session: SessionRef,
        /// When it was last said to be.
        heartbeat: Timestamp,
    },
    /// Another attempt came after this one.
    #[error("attempt {attempt} at the session `{session}` was superseded by attempt {by}")]
    Superseded {
        /// Which.
        session: SessionRef,
        /// Whose attempt this is.
        attempt: u64,
        /// Which one came after it.
        by: u64,
    },
    /// It has a snapshot, which a workspace that is not woken from it would replace.
    #[error("the session `{session}` is {} and has a snapshot", .state.words())]
    HasSnapshot {
        /// Which.
        session: SessionRef,
        /// Where it stands.
        state: SessionState,
    },
}

impl Kinded for SessionRefusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Absent(_) | Self::Deleted(_) => ErrorKind::NotFound,
            Self::Superseded { .. } => ErrorKind::Fenced,
            _ => ErrorKind::Conflict,
        }
    }
}

impl SessionState {
    fn words(self) -> &'static str {
        match self {
            Self::Provisioning => "being woken",
            Self::Running => "running",
            Self::Sleeping => "asleep",
            Self::Terminated => "terminated",
            Self::Failed => "not awake: waking it failed",
        }
    }
}

impl SessionAct {
    fn words(self) -> &'static str {
        match self {
            Self::Sleep => "put to sleep",
            Self::Wake => "woken",
        }
    }
}

impl SessionProblem {
    /// What somebody is told, made fit to be kept: one line, and not too long.
    pub fn new(trouble: SessionTrouble, said: &str, at: Timestamp) -> Self {
        const LONGEST: usize = 240;
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let mut text: String = said.chars().map(plain).take(LONGEST).collect();
        let message = loop {
            match text.parse() {
                Ok(message) => break message,
                // Something in it cannot be seen.
                Err(_) => text.retain(|c| c.is_ascii_graphic() || c == ' '),
            }
        };
        Self {
            trouble,
            message,
            at,
        }
    }
}

type Changed = Result<SessionDocument, SessionRefusal>;

impl SessionDocument {
    /// A session that runs from now on: a new one, one that runs in the same place and is told anew what runs it, or one of which nothing
    /// was ever saved.
    pub fn register(
        found: Option<&Self>,
        new: &Registration,
        now: Timestamp,
        op_id: OpId,
    ) -> Changed {
        let mut next = match found {
            None => Self::first(new, now),
            Some(found) if !found.is_alive() => {
                let first = Self::first(new, now);
                Self {
                    generation: found.generation,
                    attempt: found.attempt,
                    recent: found.recent.clone(),
                    ..first
                }
            }
            Some(found) => {
                found.ensure_unclaimed(now)?;
                found.ensure_registrable(new)?;
                found.clone()
            }
        };
        next.state = SessionState::Running;
        next.claim = None;
        next.place = new.place.clone();
        if let Some(roots) = &new.roots {
            next.roots = roots.clone();
        }
        if let Some(sandbox) = &new.sandbox {
            next.sandbox = Some(sandbox.clone());
        }
        if let Some(timeout) = new.idle_timeout {
            next.idle_timeout_ms = millis(timeout);
        }
        next.registered_at = now;
        next.heartbeat_at = now;
        Ok(next.written(op_id))
    }

    fn first(new: &Registration, now: Timestamp) -> Self {
        Self {
            version: Self::VERSION,
            session: new.session.clone(),
            generation: Generation::default(),
            op_id: OpId::default(),
            state: SessionState::Running,
            attempt: 0,
            claim: None,
            place: new.place.clone(),
            roots: new.roots.clone().unwrap_or_default(),
            sandbox: new.sandbox.clone(),
            idle_timeout_ms: millis(new.idle_timeout.unwrap_or(IDLE_TIMEOUT)),
            registered_at: now,
            heartbeat_at: now,
            snapshot: None,
            to_prune: false,
            problem: None,
            forked_from: None,
            deleted_at: None,
            recent: Vec::new(),
            extra: Map::new(),
        }
    }

    /// A session that begins with the snapshot of another: asleep, to be woken.
    pub fn forked(
        found: Option<&Self>,
        source: &Self,
        (session, snapshot): (&SessionRef, &DurableSnapshot),
        now: Timestamp,
        op_id: OpId,
    ) -> Changed {
        if let Some(found) = found.filter(|found| found.is_alive()) {
            return Err(SessionRefusal::Running {
                session: session.clone(),
                place: found.place.clone(),
            });
        }
        let new = Registration {
            session: session.clone(),
            // It lies nowhere yet, and least of all where the other one works.
            place: SessionPlace {
                dir: String::new(),
                ..source.place.clone()
            },
            roots: Some(source.roots.clone()),
            sandbox: None,
            idle_timeout: Some(Duration::from_millis(source.idle_timeout_ms)),
        };
        let mut next = Self::register(found, &new, now, op_id)?;
        next.state = SessionState::Sleeping;
        next.snapshot = Some(snapshot.clone());
        next.forked_from = Some(source.session.clone());
        Ok(next)
    }

    /// What this becomes by a write.
    fn written(mut self, op_id: OpId) -> Self {
        self.generation = self.generation.next();
        self.op_id = op_id;
        self.recent.push(op_id);
        let old = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..old);
        self
    }

    fn ensure_alive(&self) -> Result<(), SessionRefusal> {
        if self.is_alive() {
            return Ok(());
        }
        Err(SessionRefusal::Deleted(self.session.clone()))
    }

    fn ensure_unclaimed(&self, now: Timestamp) -> Result<(), SessionRefusal> {
        match self.claimed(now) {
            None => Ok(()),
            Some(claim) => Err(SessionRefusal::Claimed {
                session: self.session.clone(),
                claim: claim.clone(),
            }),
        }
    }

    /// A workspace takes the place of what is known only where nothing of that can be lost.
    fn ensure_registrable(&self, new: &Registration) -> Result<(), SessionRefusal> {
        let session = || self.session.clone();
        match self.state {
            SessionState::Running if self.place == new.place => Ok(()),
            SessionState::Running => Err(SessionRefusal::Running {
                session: session(),
                place: self.place.clone(),
            }),
            state if self.snapshot.is_some() => Err(SessionRefusal::HasSnapshot {
                session: session(),
                state,
            }),
            _ => Ok(()),
        }
    }

    fn ensure_running(&self) -> Result<(), SessionRefusal> {
        self.ensure_alive()?;
        if self.state == SessionState::Running {
            return Ok(());
        }
        Err(SessionRefusal::NotRunning {
            session: self.session.clone(),
            state: self.state,
        })
    }

    /// Whose attempt it is; one that was superseded changes nothing.
    fn ensure_current(&self, attempt: u64, act: SessionAct) -> Result<(), SessionRefusal> {
        self.ensure_alive()?;
        let claim = self.claim.as_ref();
        if claim.is_some_and(|claim| claim.attempt == attempt && claim.act == act) {
            return Ok(());
        }
        Err(SessionRefusal::Superseded {
            session: self.session.clone(),
            attempt,
            by: self.attempt,
        })
    }

    /// It is in use. Who is about to end its sandbox has passed the point where that could be stopped, until its claim has expired.
    pub fn heartbeat(&self, now: Timestamp, op_id: OpId) -> Changed {
        self.ensure_alive()?;
        // Of one that is being woken, for as long as somebody wakes it.
        let is_being_woken =
            self.state == SessionState::Provisioning && self.claimed(now).is_some();
        if !is_being_woken {
            self.ensure_running()?;
            self.ensure_unclaimed(now)?;
        }
        let mut next = self.clone();
        next.heartbeat_at = self.heartbeat_at.max(now);
        if self.state == SessionState::Running {
            next.claim = None;
        }
        Ok(next.written(op_id))
    }

    /// It is in use, and this runs it from now on, instead of what ran it when it was looked at.
    pub fn runs_in(
        &self,
        sandbox: Option<&Sandbox>,
        instead_of: Option<&Sandbox>,
        now: Timestamp,
        op_id: OpId,
    ) -> Changed {
        if self.sandbox.as_ref() != instead_of {
            return Err(SessionRefusal::Running {
                session: self.session.clone(),
                place: self.place.clone(),
            });
        }
        let mut next = self.heartbeat(now, op_id)?;
        next.sandbox = sandbox.cloned();
        Ok(next)
    }

    /// Everything that it holds is in a snapshot; what that replaces is still there if it is another one than before.
    pub fn note_snapshot(&self, snapshot: &DurableSnapshot, op_id: OpId) -> Changed {
        // Of one that does not run, its workspace may be anything.
        self.ensure_running()?;
        let mut next = self.clone();
        let before = self.snapshot.as_ref().map(|one| &one.snapshot_id);
        next.to_prune |= before != Some(&snapshot.snapshot_id);
        next.snapshot = Some(snapshot.clone());
        next.problem = None;
        Ok(next.written(op_id))
    }

    /// Nothing is left of what this snapshot replaced.
    pub fn pruned(&self, kept: &SnapshotId, op_id: OpId) -> Changed {
        self.ensure_alive()?;
        let mut next = self.clone();
        // Of a newer one others have to say so.
        let is_kept = self
            .snapshot
            .as_ref()
            .is_some_and(|one| one.snapshot_id == *kept);
        next.to_prune &= !is_kept;
        Ok(next.written(op_id))
    }

    /// It has trouble.
    pub fn note_problem(&self, problem: &SessionProblem, op_id: OpId) -> Changed {
        self.ensure_alive()?;
        let mut next = self.clone();
        next.problem = Some(problem.clone());
        Ok(next.written(op_id))
    }

    /// Its sandbox is about to be terminated: because it is idle, or because somebody wants it asleep.
    pub fn claim_sleep(&self, who: &ClaimRequest, why: SleepReason, op_id: OpId) -> Changed {
        self.ensure_running()?;
        self.ensure_unclaimed(who.now)?;
        if why == SleepReason::Idle && !self.is_idle(who.now) {
            return Err(SessionRefusal::InUse {
                session: self.session.clone(),
                heartbeat: self.idle_since(),
            });
        }
        Ok(self.claim_for(SessionAct::Sleep, who, op_id))
    }

    fn claim_for(&self, act: SessionAct, who: &ClaimRequest, op_id: OpId) -> Self {
        let mut next = self.clone();
        next.attempt = self.attempt.saturating_add(1);
        next.claim = Some(SessionClaim {
            attempt: next.attempt,
            act,
            by: who.by.clone(),
            at: who.now,
            expires_at: who.now.plus(who.ttl),
        });
        next.written(op_id)
    }

    /// Its sandbox is gone.
    pub fn slept(&self, attempt: u64, ending: &SleepEnding, op_id: OpId) -> Changed {
        self.ensure_current(attempt, SessionAct::Sleep)?;
        let mut next = self.clone();
        next.claim = None;
        match ending {
            SleepEnding::Asleep => next.state = SessionState::Sleeping,
            SleepEnding::Lost(problem) => {
                next.state = SessionState::Terminated;
                next.problem = Some(problem.clone());
            }
        }
        Ok(next.written(op_id))
    }

    /// Nothing was done to it after all; it goes on as before, with the trouble that was met.
    pub fn sleep_given_up(
        &self,
        attempt: u64,
        problem: Option<&SessionProblem>,
        op_id: OpId,
    ) -> Changed {
        self.ensure_current(attempt, SessionAct::Sleep)?;
        let mut next = self.clone();
        next.claim = None;
        next.problem = problem.cloned().or(next.problem);
        Ok(next.written(op_id))
    }

    /// It is being woken. Where it lies is said once it does.
    pub fn begin_wake(&self, who: &ClaimRequest, op_id: OpId) -> Changed {
        self.ensure_alive()?;
        self.ensure_unclaimed(who.now)?;
        if self.state == SessionState::Running {
            return Err(SessionRefusal::Running {
                session: self.session.clone(),
                place: self.place.clone(),
            });
        }
        let mut next = self.claim_for(SessionAct::Wake, who, op_id);
        next.state = SessionState::Provisioning;
        Ok(next)
    }

    /// Whoever does something to it still does.
    pub fn renew(&self, attempt: u64, now: Timestamp, ttl: Duration, op_id: OpId) -> Changed {
        let act = self.claim.as_ref().map(|claim| claim.act);
        self.ensure_current(attempt, act.unwrap_or(SessionAct::Wake))?;
        let mut next = self.clone();
        if let Some(claim) = &mut next.claim {
            claim.expires_at = claim.expires_at.max(now.plus(ttl));
        }
        Ok(next.written(op_id))
    }

    /// It runs where it left off.
    pub fn woken(
        &self,
        attempt: u64,
        (place, sandbox): (&SessionPlace, Option<&Sandbox>),
        now: Timestamp,
        op_id: OpId,
    ) -> Changed {
        self.ensure_current(attempt, SessionAct::Wake)?;
        let mut next = self.clone();
        next.place = place.clone();
        next.claim = None;
        next.problem = None;
        next.state = SessionState::Running;
        next.sandbox = sandbox.cloned();
        next.registered_at = now;
        next.heartbeat_at = now;
        Ok(next.written(op_id))
    }

    /// It could not be woken; what it is woken from stays.
    pub fn wake_failed(&self, attempt: u64, problem: &SessionProblem, op_id: OpId) -> Changed {
        self.ensure_current(attempt, SessionAct::Wake)?;
        let mut next = self.clone();
        next.claim = None;
        next.state = SessionState::Failed;
        next.problem = Some(problem.clone());
        Ok(next.written(op_id))
    }

    /// It has no snapshot any more: that was deleted on purpose.
    pub fn without_snapshot(&self, now: Timestamp, op_id: OpId) -> Changed {
        self.ensure_alive()?;
        self.ensure_unclaimed(now)?;
        let mut next = self.clone();
        next.snapshot = None;
        Ok(next.written(op_id))
    }

    /// It is no more.
    pub fn delete(&self, now: Timestamp, op_id: OpId) -> Changed {
        self.ensure_alive()?;
        self.ensure_unclaimed(now)?;
        let mut next = self.clone();
        next.claim = None;
        next.snapshot = None;
        next.problem = None;
        next.deleted_at = Some(now);
        Ok(next.written(op_id))
    }
}

/// Why a session is put to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepReason {
    /// Nobody uses it.
    Idle,
    /// Somebody asked for it.
    Asked,
}

/// How a sandbox ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SleepEnding {
    /// With everything in a snapshot.
    Asleep,
    /// With something lost.
    Lost(SessionProblem),
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
