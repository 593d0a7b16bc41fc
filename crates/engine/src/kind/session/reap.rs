//! Puts every sandbox to sleep that nobody uses.
//!
//! One run at a time on each host: a lock says whose. It spares work and keeps order, and nothing is safe because of it: what is done
//! to a session is decided by its own document. One session's failure never stops another's sleep.

use super::capture::SnapshotSession;
use super::memory::is_known_here;
use super::sleep::{SessionSlept, SleepSession, SleptState};
use super::{SessionHost, failure};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use crate::job_lease::JobLease;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::{Failure, Kinded as _};
use stasis_model::format::job::{JobLane, JobName};
use stasis_model::format::lease::Holder;
use stasis_model::id::{Epoch, SandboxName, SessionRef, TenantId};
use stasis_model::protocol::job::JobRefusal;
use stasis_model::session::document::{SessionDocument, SessionState};
use stasis_store::documents::jobs::{self, JobError};
use stasis_store::documents::lineages::ReadError;
use stasis_store::documents::sessions;
use stasis_store::part::Part;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many sandboxes are put to sleep at once.
const TOGETHER: usize = 4;

/// Which sessions, and how.
#[derive(Clone, Debug, Default)]
pub struct ReapSessions {
    /// Of which tenant; without, of all.
    pub tenant: Option<TenantId>,
    /// Only says what would be done.
    pub dry_run: bool,
    /// Whether workspaces of other hosts can be reached from here as well.
    pub any_host: bool,
    /// How each is put to sleep.
    pub how: SleepSession,
    /// Saves running sessions too, whose last snapshot is so old; not at all when not given.
    pub background: Option<Duration>,
    /// Holds their sandboxes still meanwhile, for so long at most.
    pub freeze: Option<Duration>,
}

/// What became of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", untagged)]
pub enum SessionFate {
    /// What came of putting it to sleep.
    Slept(SleptState),
    /// It was left alone.
    Left(LeftBecause),
}

/// Why a session was left alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftBecause {
    /// It is idle, and would be put to sleep.
    WouldSleep,
    /// Another session of its sandbox is in use.
    SandboxInUse,
    /// It lies on another host.
    Elsewhere,
    /// The store says that it lies here, and nobody registered it so on this host.
    NotRegisteredHere,
}

/// One session that was looked at and not simply passed by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ReapedSession {
    /// What was done.
    #[serde(flatten)]
    pub slept: SessionSlept,
    /// What became of it.
    pub fate: SessionFate,
    /// Its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxName>,
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what could not be saved is said only here"]
pub struct ReapedSessions {
    /// How many sessions there are.
    pub scanned: u64,
    /// How many are in use.
    pub in_use: u64,
    /// How many sleep already, or have no sandbox.
    pub asleep: u64,
    /// How many sandboxes were ended.
    pub sandboxes_ended: u64,
    /// Those that were looked at more closely.
    pub items: Vec<ReapedSession>,
    /// Sessions whose documents cannot be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

impl ReapedSessions {
    /// Whether something should be looked at.
    pub fn has_trouble(&self) -> bool {
        let is_trouble = |one: &ReapedSession| {
            let state = SessionFate::Slept;
            [
                state(SleptState::SnapshotFailed),
                state(SleptState::TerminateFailed),
                state(SleptState::Terminated),
                state(SleptState::Ended),
            ]
            .contains(&one.fate)
        };
        !self.unreadable.is_empty() || self.items.iter().any(is_trouble)
    }
}

/// Sessions that end together.
type SandboxGroup = Vec<SessionDocument>;

impl Sessions<'_> {
    /// Puts every sandbox to sleep whose sessions are all idle.
    #[tracing::instrument(skip_all, err(level = "info"))]
    pub async fn reap(
        self,
        host: &SessionHost,
        command: &ReapSessions,
    ) -> Result<ReapedSessions, Error> {
        self.store().ensure_trusted().await?;
        if command.dry_run {
            return self.reap_held(host, command).await;
        }
        let lease = self.take_reap(host, command).await?;
        let reaped = lease.keep_while(self.reap_held(host, command)).await;
        lease.release().await;
        let lost = || not_ours(&JobError::Refused(JobRefusal::Lost));
        reaped.ok_or_else(lost)?
    }

    /// One run at a time on each host; one that also reaches workspaces of other hosts is the only one of its kind.
    async fn take_reap(
        self,
        host: &SessionHost,
        command: &ReapSessions,
    ) -> Result<JobLease, Error> {
        let holder = Holder {
            run_id: "session-reap".parse().expect("a constant that is a label"),
            host: host.name.clone(),
            host_run_id: host.by.clone(),
        };
        let (reap, ttl) = (JobName::SessionReap, command.how.lease_ttl);
        let lane = if command.any_host {
            JobLane::of_store(reap)
        } else {
            JobLane::at(reap, host.name.as_str())
        };
        let last = jobs::last(&*self.bucket, lane).await?;
        let seen = last.map_or(Epoch(0), |last| last.fence.epoch);
        let taken = self.take_job(lane, (&holder, seen), ttl).await;
        Ok(taken.map_err(|error| not_ours(&error))?)
    }

    /// The same for whoever has the lease of the job.
    pub(crate) async fn reap_held(
        self,
        host: &SessionHost,
        command: &ReapSessions,
    ) -> Result<ReapedSessions, Error> {
        self.engine.thaw_left().await;
        let (documents, unreadable) = self.documents(command.tenant.as_ref()).await?;
        let mut reaped = ReapedSessions {
            scanned: documents.len() as u64 + unreadable.len() as u64,
            unreadable,
            ..ReapedSessions::default()
        };
        let left: Vec<SessionDocument> = documents
            .iter()
            .filter(|one| one.to_prune)
            .cloned()
            .collect();
        let asleep = documents.iter();
        let runs_here = |one: &&SessionDocument| {
            one.state == SessionState::Running && one.place.host == host.name
        };
        let asleep = asleep.filter(|one| !runs_here(one));
        let asleep: Vec<SessionRef> = asleep.map(|one| one.session.clone()).collect();
        let mut waiting = self.judged(host, command, documents, &mut reaped).await;
        let mut working = JoinSet::new();
        loop {
            while working.len() < TOGETHER
                && let Some(group) = waiting.pop()
            {
                let (engine, host, how) = (self.engine.clone(), host.clone(), command.how.clone());
                working.spawn(async move {
                    let name = group.first().and_then(sandbox_name);
                    let slept = engine.sessions().sleep_idle(&host, group, &how).await;
                    let named = slept.into_iter().map(|one| (one, name.clone()));
                    named.collect::<Vec<_>>()
                });
            }
            let Some(done) = working.join_next().await else {
                break;
            };
            let done = done.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
            reaped.add(done);
        }
        if !command.dry_run {
            let on = (host, command.how.trust_commands);
            self.end_left_overs(on, &asleep).await;
        }
        // Of those that sleep for long, too.
        for one in left.iter().filter(|_| !command.dry_run) {
            self.prune_noted(one).await;
        }
        if let Some(age) = command.background.filter(|_| !command.dry_run) {
            self.save_running(host, command, age, &mut reaped).await?;
        }
        reaped
            .items
            .sort_by(|a, b| a.slept.session.cmp(&b.slept.session));
        Ok(reaped)
    }

    /// Which sandboxes are idle; the others are counted.
    async fn judged(
        self,
        host: &SessionHost,
        command: &ReapSessions,
        documents: Vec<SessionDocument>,
        reaped: &mut ReapedSessions,
    ) -> Vec<SandboxGroup> {
        let now = self.now();
        let mut idle = Vec::new();
        for group in grouped(documents, &mut reaped.asleep) {
            let is_here = command.any_host || group.iter().all(|one| one.place.host == host.name);
            let is_idle = |one: &SessionDocument| one.is_idle(now) && one.claimed(now).is_none();
            let in_use = group.iter().filter(|one| !is_idle(one)).count();
            let left = if in_use > 0 {
                reaped.in_use += in_use as u64;
                Some(LeftBecause::SandboxInUse)
            } else if !is_here {
                Some(LeftBecause::Elsewhere)
            } else if !are_known(host, command, &group).await {
                Some(LeftBecause::NotRegisteredHere)
            } else if command.dry_run {
                Some(LeftBecause::WouldSleep)
            } else {
                None
            };
            match left {
                None => idle.push(group),
                Some(why) => {
                    let left = group.into_iter().filter(is_idle);
                    reaped
                        .items
                        .extend(left.map(|one| ReapedSession::left(&one, why)));
                }
            }
        }
        idle
    }

    /// Saves sessions that run, whose last snapshot is old.
    async fn save_running(
        self,
        host: &SessionHost,
        command: &ReapSessions,
        age: Duration,
        reaped: &mut ReapedSessions,
    ) -> Result<(), Error> {
        let now = self.now();
        let how = SnapshotSession {
            freeze: command.freeze,
            ..command.how.snapshot.clone()
        };
        for document in self.documents(command.tenant.as_ref()).await?.0 {
            let is_here = command.any_host || document.place.host == host.name;
            let saved = document.snapshot.as_ref().map(|snapshot| snapshot.at);
            let is_due = saved.is_none_or(|at| now.since(at) >= age);
            if document.state != SessionState::Running || !is_here || !is_due {
                continue;
            }
            if !are_known(host, command, &vec![document.clone()]).await {
                continue;
            }
            let mut slept = SessionSlept::new(&document.session, SleptState::Saved);
            match Box::pin(self.capture(&document, &how)).await {
                Ok(saved) => slept.saved = Some(saved),
                Err(error) => {
                    let why = error_chain(&error);
                    self.note_unsaved(&document.session, &why).await;
                    slept.state = SleptState::SnapshotFailed;
                    slept.problem = Some(why);
                }
            }
            reaped.add(vec![(slept, sandbox_name(&document))]);
        }
        Ok(())
    }

    /// What is kept of all sessions of a tenant, or of all; and of which it cannot be read.
    pub(super) async fn documents(
        self,
        tenant: Option<&TenantId>,
    ) -> Result<(Vec<SessionDocument>, Vec<String>), Error> {
        let all = sessions::all(&*self.bucket, tenant, &Part::Whole).await?;
        let (documents, unreadable) = self.documents_of(&all).await?;
        let unreadable = unreadable.into_iter();
        let unreadable =
            unreadable.map(|(session, error)| format!("{session}: {}", error_chain(&error)));
        Ok((documents, unreadable.collect()))
    }

    /// The same of these, with why those that cannot be read cannot.
    pub(crate) async fn documents_of(
        self,
        all: &[SessionRef],
    ) -> Result<(Vec<SessionDocument>, Vec<(SessionRef, ReadError)>), Error> {
        let (mut documents, mut unreadable) = (Vec::new(), Vec::new());
        for some in all.chunks(TOGETHER * 4) {
            let mut reading = JoinSet::new();
            for (at, session) in some.iter().cloned().enumerate() {
                let bucket = self.bucket.clone();
                reading.spawn(async move {
                    let found = sessions::session(&*bucket, &session).await;
                    (at, session, found)
                });
            }
            let mut read = reading.join_all().await;
            read.sort_by_key(|(at, ..)| *at);
            for (_, session, found) in read {
                match found {
                    Ok(found) => {
                        let found = found.map(|found| found.value);
                        documents.extend(found.filter(SessionDocument::is_alive));
                    }
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        unreadable.push((session, error));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok((documents, unreadable))
    }
}

impl ReapedSessions {
    fn add(&mut self, slept: Vec<(SessionSlept, Option<SandboxName>)>) {
        let has_ended = |(one, sandbox): &(SessionSlept, Option<SandboxName>)| {
            let states = [
                SleptState::Sleeping,
                SleptState::Terminated,
                SleptState::Ended,
            ];
            sandbox.is_some() && states.contains(&one.state)
        };
        self.sandboxes_ended += u64::from(slept.iter().any(has_ended));
        let items = slept.into_iter().map(|(slept, sandbox)| ReapedSession {
            fate: SessionFate::Slept(slept.state),
            slept,
            sandbox,
        });
        self.items.extend(items);
    }
}

impl ReapedSession {
    fn left(document: &SessionDocument, why: LeftBecause) -> Self {
        Self {
            slept: SessionSlept::new(&document.session, SleptState::InUse),
            fate: SessionFate::Left(why),
            sandbox: sandbox_name(document),
        }
    }
}

/// Whether all sessions of a sandbox are as they were registered on this host, or the store is trusted.
async fn are_known(host: &SessionHost, command: &ReapSessions, group: &SandboxGroup) -> bool {
    if command.how.trust_commands {
        return true;
    }
    for one in group {
        if !is_known_here(host, one).await {
            return false;
        }
    }
    true
}

fn sandbox_name(document: &SessionDocument) -> Option<SandboxName> {
    document
        .sandbox
        .as_ref()
        .map(|sandbox| sandbox.name.clone())
}

/// Sessions that run, those of one sandbox together; how many do not is counted.
fn grouped(documents: Vec<SessionDocument>, asleep: &mut u64) -> Vec<SandboxGroup> {
    let mut groups: BTreeMap<String, SandboxGroup> = BTreeMap::new();
    for document in documents {
        if document.state != SessionState::Running {
            *asleep += 1;
            continue;
        }
        let alone = || format!("none, {}", document.session);
        let key = document.sandbox_identity().unwrap_or_else(alone);
        groups.entry(key).or_default().push(document);
    }
    groups.into_values().collect()
}

fn not_ours(error: &JobError) -> Failure {
    let said = format!("sessions are not put to sleep now: {}", error_chain(error));
    failure(error.kind(), said).with_hint("nothing was done; the next run goes on")
}
