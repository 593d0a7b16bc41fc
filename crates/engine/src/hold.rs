//! Runs a command for as long as a lease is ours.
//!
//! acquire → start → renew every so often → the command ends, and with it all it started → release
//!
//! *Always true:* the command does not outlive our right to the lineage knowingly. The lease is counted from the moment
//! its last acknowledged write was *sent*, on a clock that counts sleep. Before it can run out the whole process group is
//! asked to stop, and when it runs out nobody asks any more. Only if we ourselves are killed does the command go on; what
//! it then publishes is refused, because the next owner fences it.

use crate::address::as_typed;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Leases;
use crate::lease::{Acquire, LeaseWait};
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::Lineage;
use stasis_model::protocol::step::{Lost, Refusal};
pub use stasis_quiesce::group::Signal;
use stasis_quiesce::group::{CommandExit, ProcessGroup};
use stasis_store::documents::leases::Lease;
use stasis_store::documents::lineages::LineageError;
use std::ffi::OsString;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a command may take, at most, to end when it is asked to.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// Runs a command under a lease.
#[derive(Debug)]
pub struct HoldLease {
    /// The lease to ask for.
    pub acquire: Acquire,
    /// How long to wait for another holder; not at all when not given.
    pub wait: Option<LeaseWait>,
    /// How often it is renewed; the tenant's policy when not given, but at least three times per lease.
    pub renew_every: Option<Duration>,
    /// The command, program first.
    pub command: Vec<OsString>,
    /// Signals to pass on to the command. One that comes before it runs ends us instead; the second one stops the whole
    /// group, whether it wants to or not.
    pub signals: mpsc::UnboundedReceiver<Signal>,
}

/// How a lease was lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
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

impl LeaseLost {
    /// How, in words.
    pub fn detail(&self) -> &str {
        match self {
            Self::TakenAway { detail } | Self::RanOut { detail } => detail,
        }
    }
}

/// A command that ran under a lease.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct HoldResult {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The command's exit code as a shell gives it.
    pub exit_code: i32,
    /// How the lease was lost, if it was; a command that still ran was stopped then.
    pub lost: Option<LeaseLost>,
    /// Whether the lease was given back; if not, others wait until it expires.
    pub released: bool,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

enum HoldEvent {
    Ended(CommandExit),
    Lost(LeaseLost),
    Signalled(Signal),
}

/// How long before a lease runs out its command is asked to stop.
fn margin(ttl: Duration) -> Duration {
    STOP_TIMEOUT.min(ttl / 4)
}

impl Leases<'_> {
    /// Acquires, runs, renews, releases.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %hold.acquire.lineage))]
    pub async fn hold(self, mut hold: HoldLease) -> Result<HoldResult, Error> {
        let subject = hold.acquire.lineage.clone();
        let renew_every = self.pace(&mut hold).await?;
        let acquired = tokio::select! {
            acquired = self.acquire_within(hold.acquire.clone(), hold.wait.as_ref()) => acquired?,
            Some(_) = hold.signals.recv() => return Err(Error::interrupted(&subject)),
        };
        let (lease, mut warnings) = (acquired.lease, acquired.warnings);
        let variables = [
            ("STASIS_LEASE_SUBJECT", subject.to_string()),
            ("STASIS_LEASE_TOKEN", acquired.token),
            ("STASIS_LEASE_RUN_ID", acquired.holder.run_id.to_string()),
        ];
        let mut group = match ProcessGroup::start(&hold.command, &variables) {
            Ok(group) => group,
            Err(error) => {
                // Nothing ran, so nothing is lost but the wait until it expires.
                let _ = self.release(&subject, lease.fence).await;
                return Err(error.into());
            }
        };
        let watched = self
            .watch(&lease, renew_every, &mut group, &mut hold.signals)
            .await;
        let rest = group.stop(margin(lease.ttl)).await;
        let (ending, lost) = match watched {
            Ok((ending, lost)) => (ending.map_or(rest, Ok)?, lost),
            Err(error) => {
                let _ = self.release(&subject, lease.fence).await;
                return Err(error);
            }
        };
        let (lost, released) = self.give_back(&lease, lost).await;
        warnings.extend(self.clock_warnings());
        warnings.dedup();
        Ok(HoldResult {
            subject,
            exit_code: ending.code(),
            lost,
            released,
            warnings,
        })
    }

    /// Settles how long the lease lasts and how often it is renewed, before anything is asked for.
    async fn pace(self, hold: &mut HoldLease) -> Result<Duration, Error> {
        let policy = self.tenants().policy(&hold.acquire.lineage.tenant).await?;
        let ttl = *hold.acquire.ttl.get_or_insert(policy.lease_ttl());
        match hold.renew_every {
            Some(every) if every > ttl / 2 => Err(Error::renews_too_slowly(every, ttl)),
            Some(every) => Ok(every),
            None => Ok(policy.renew_every().min(ttl / 3)),
        }
    }

    /// Waits for the command's end or the lease's; an end that is not known yet is the whole group's to come.
    async fn watch(
        self,
        lease: &Lease,
        renew_every: Duration,
        group: &mut ProcessGroup,
        signals: &mut mpsc::UnboundedReceiver<Signal>,
    ) -> Result<(Option<CommandExit>, Option<LeaseLost>), Error> {
        let mut keeper = std::pin::pin!(self.keep_alive(lease, renew_every));
        let mut signals_heard = 0;
        loop {
            let happened = tokio::select! {
                biased;
                lost = &mut keeper => HoldEvent::Lost(lost),
                ending = group.wait() => HoldEvent::Ended(ending?),
                Some(signal) = signals.recv() => HoldEvent::Signalled(signal),
            };
            match happened {
                HoldEvent::Ended(ending) => return Ok((Some(ending), None)),
                HoldEvent::Signalled(signal) => {
                    group.signal(signal);
                    signals_heard += 1;
                    if signals_heard > 1 {
                        return Ok((None, None));
                    }
                }
                HoldEvent::Lost(lost) => {
                    tracing::error!(pid = group.pid(), ?lost, "lease lost; stopping the command");
                    return Ok((None, Some(lost)));
                }
            }
        }
    }

    /// Gives the lease back; that it could not be because it is another's is a loss like any other.
    async fn give_back(self, lease: &Lease, lost: Option<LeaseLost>) -> (Option<LeaseLost>, bool) {
        let lost = match lost {
            Some(lost) => lost,
            None => match self.release(&lease.lineage, lease.fence).await {
                Ok(_) => return (None, true),
                Err(error) if error.kind() == ErrorKind::Fenced => LeaseLost::TakenAway {
                    detail: error_chain(&error),
                },
                Err(_) => return (None, false),
            },
        };
        self.record_lost(&lease.lineage, lease.fence, lost.detail())
            .await;
        (Some(lost), false)
    }

    /// Renews a lease for as long as it can be; ends when it is lost, or so shortly before that its user can still stop.
    pub async fn keep_alive(self, lease: &Lease, renew_every: Duration) -> LeaseLost {
        let good_for = lease.ttl.saturating_sub(margin(lease.ttl));
        let mut good_until = lease.sent_at.saturating_add(good_for);
        let mut renew_at = lease.sent_at.saturating_add(renew_every);
        let mut detail = String::from("no renewal was due before it ran out");
        loop {
            self.sleep_until(renew_at.min(good_until)).await;
            if self.clock.uptime() >= good_until {
                return LeaseLost::RanOut { detail };
            }
            let renewal = tokio::select! {
                renewal = self.lineages.renew_lease(lease) => renewal,
                () = self.sleep_until(good_until) => {
                    let detail = String::from("the last renewal was not answered in time");
                    return LeaseLost::RanOut { detail };
                }
            };
            match renewal {
                Ok((lock, sent_at)) => {
                    tracing::debug!(renewal_count = lock.renewal_count, "lease renewed");
                    good_until = sent_at.saturating_add(good_for);
                    renew_at = sent_at.saturating_add(renew_every);
                }
                Err(error) => {
                    if let Some(lost) = taken_away(&error) {
                        return LeaseLost::TakenAway {
                            detail: lost.to_string(),
                        };
                    }
                    detail = error_chain(&error);
                    tracing::warn!(%detail, "renewal failed; trying again");
                    let pause = (renew_every / 4).min(Duration::from_secs(5));
                    renew_at = self.clock.uptime().saturating_add(pause);
                }
            }
        }
    }

    /// Sleeps in short pieces, because the timer stands still while the machine sleeps and `uptime` does not.
    async fn sleep_until(self, uptime: Duration) {
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
