//! Runs a command for as long as a lease is ours.
//!
//! acquire → start → renew every so often → the command ends → release
//!
//! *Always true:* the command does not outlive our right to the lineage knowingly. The lease is counted from the moment
//! its last acknowledged write was *sent*, on a clock that counts sleep; when it may have run out, or somebody else has
//! it, the whole process group is stopped.

use crate::error::{Error, whole};
use crate::lease::{Acquire, Acquired};
use crate::open::Engine;
use crate::warning::Warning;
use serde::Serialize;
use stasis_model::id::Lineage;
use stasis_model::step::{Lost, Refusal};
pub use stasis_quiesce::group::Signal;
use stasis_quiesce::group::{Ending, Group};
use stasis_store::leases::Lease;
use stasis_store::lineages::LineageError;
use std::ffi::OsString;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a command may take to end when it is asked to.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// Runs a command under a lease.
#[derive(Debug)]
pub struct Hold {
    /// The lease to ask for.
    pub acquire: Acquire,
    /// How often it is renewed; the tenant's policy when not given.
    pub renew_every: Option<Duration>,
    /// The command, program first.
    pub command: Vec<OsString>,
    /// Signals to pass on to the command.
    pub signals: mpsc::UnboundedReceiver<Signal>,
}

/// How a lease was lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum LeaseLost {
    /// Somebody else has it, or an operator took it.
    TakenAway {
        /// In words.
        detail: String,
    },
    /// No renewal was acknowledged in time.
    RanOut {
        /// Why the last one was not.
        detail: String,
    },
}

/// A command that ran under a lease.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// Of what.
    pub subject: Lineage,
    /// The command's exit code as a shell gives it.
    pub exit_code: i32,
    /// How the lease was lost, if it was; the command was stopped then.
    pub lost: Option<LeaseLost>,
    /// Whether the lease was given back; if not, others wait until it expires.
    pub released: bool,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

enum Happened {
    Ended(Ending),
    Lost(LeaseLost),
    Signalled(Signal),
}

impl Engine {
    /// Acquires, runs, renews, releases.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %hold.acquire.lineage))]
    pub async fn hold(&self, mut hold: Hold) -> Result<Held, Error> {
        let subject = hold.acquire.lineage.clone();
        let renew_every = match hold.renew_every {
            Some(every) => every,
            None => self.policy(&subject.tenant).await?.renew_every(),
        };
        let acquired = self.acquire(hold.acquire.clone()).await?;
        let Acquired {
            lease,
            mut warnings,
            ..
        } = acquired;
        let mut group = match Group::start(&hold.command) {
            Ok(group) => group,
            Err(error) => {
                // Nothing ran, so nothing is lost but the wait until it expires.
                let _ = self.release(&subject, lease.fence).await;
                return Err(error.into());
            }
        };
        let (ending, lost) = self
            .watch(&lease, renew_every, &mut group, &mut hold.signals)
            .await?;
        let released = match &lost {
            Some(lost) => {
                self.record_lost(&subject, lease.fence, &format!("{lost:?}"))
                    .await;
                false
            }
            None => self.release(&subject, lease.fence).await.is_ok(),
        };
        warnings.extend(self.clock_warnings());
        warnings.dedup();
        Ok(Held {
            subject,
            exit_code: ending.code(),
            lost,
            released,
            warnings,
        })
    }

    async fn watch(
        &self,
        lease: &Lease,
        renew_every: Duration,
        group: &mut Group,
        signals: &mut mpsc::UnboundedReceiver<Signal>,
    ) -> Result<(Ending, Option<LeaseLost>), Error> {
        let mut keeper = std::pin::pin!(self.keep_alive(lease, renew_every));
        loop {
            let happened = tokio::select! {
                biased;
                ending = group.wait() => Happened::Ended(ending?),
                lost = &mut keeper => Happened::Lost(lost),
                Some(signal) = signals.recv() => Happened::Signalled(signal),
            };
            match happened {
                Happened::Ended(ending) => return Ok((ending, None)),
                Happened::Signalled(signal) => group.signal(signal),
                Happened::Lost(lost) => {
                    tracing::error!(pid = group.pid(), ?lost, "lease lost; stopping the command");
                    return Ok((group.stop(PATIENCE).await?, Some(lost)));
                }
            }
        }
    }

    /// Renews a lease for as long as it can be; ends only when it is lost.
    pub async fn keep_alive(&self, lease: &Lease, renew_every: Duration) -> LeaseLost {
        let mut good_until = lease.sent_at + lease.ttl;
        let mut renew_at = lease.sent_at + renew_every;
        let mut detail = "no renewal was due before it ran out".to_owned();
        loop {
            self.sleep_until(renew_at.min(good_until)).await;
            let now = self.clock.uptime();
            if now >= good_until {
                return LeaseLost::RanOut { detail };
            }
            let renewal = self.lineages.renew(&lease.lineage, lease.fence, lease.ttl);
            match tokio::time::timeout(good_until.saturating_sub(now), renewal).await {
                Ok(Ok((lock, sent_at))) => {
                    tracing::debug!(renewal_count = lock.renewal_count, "lease renewed");
                    good_until = sent_at + lease.ttl;
                    renew_at = sent_at + renew_every;
                }
                Ok(Err(error)) => {
                    if let Some(lost) = taken_away(&error) {
                        return LeaseLost::TakenAway {
                            detail: lost.to_string(),
                        };
                    }
                    detail = whole(&error);
                    tracing::warn!(%detail, "renewal failed; trying again");
                    renew_at = self.clock.uptime() + (renew_every / 4).min(Duration::from_secs(5));
                }
                Err(_) => detail = String::from("the last renewal was not answered in time"),
            }
        }
    }

    /// Sleeps in short pieces, because the timer stands still while the machine sleeps and `uptime` does not.
    async fn sleep_until(&self, uptime: Duration) {
        loop {
            let left = uptime.saturating_sub(self.clock.uptime());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
    }
}

fn taken_away(error: &LineageError) -> Option<&Lost> {
    match error {
        LineageError::Refused {
            refusal: Refusal::LockLost(lost),
            ..
        } => Some(lost),
        _ => None,
    }
}
