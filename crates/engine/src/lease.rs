//! Owning a lineage, for people and shell scripts: acquire, renew, release, show, force-unlock.

mod list;
mod wait;

pub use list::{LeaseList, LeaseRow, UnreadableLease};
pub use wait::LeaseWait;

use crate::address::as_typed;
use crate::error::Error;
use crate::handle::Leases;
use crate::operation::COURTESY;
use crate::seen::Memory;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::format::lease::{Fence, Holder, Lock, LockState};
use stasis_model::id::{Epoch, Generation, Label, Lineage, OpId};
use stasis_model::policy::tenant::LONGEST;
use stasis_model::protocol::step::{Lost, Refusal};
use stasis_model::time::Timestamp;
use stasis_store::documents::leases::Lease;
use stasis_store::documents::lineages::LineageError;
use stasis_store::location::StoreLocation;
use std::time::Duration;

/// Asks for a lease.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// Of what.
    pub lineage: Lineage,
    /// For whom.
    pub holder: Holder,
    /// For how long without a renewal; the tenant's policy when not given.
    pub ttl: Option<Duration>,
}

/// A lease that was given.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Acquired {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// What `renew` and `release` need.
    pub token: String,
    /// The lease's number.
    pub epoch: Epoch,
    /// For whom.
    #[serde(flatten)]
    pub holder: Holder,
    /// How long it lasts without a renewal.
    pub ttl_ms: u64,
    /// The snapshot to start from.
    pub base_sha256: Option<ArchiveDigest>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
    /// The lease itself, for callers in this process.
    #[serde(skip)]
    pub lease: Lease,
}

/// The times of a lock as text, beside the milliseconds that the document has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LockTimes {
    /// When the holder became the holder.
    pub acquired_at: String,
    /// When the holder last renewed.
    pub renewed_at: String,
    /// The last moment at which it is certainly held.
    pub expires_at: String,
}

impl From<&Lock> for LockTimes {
    fn from(lock: &Lock) -> Self {
        Self {
            acquired_at: lock.acquired_at.to_string(),
            renewed_at: lock.renewed_at.to_string(),
            expires_at: lock.expires_at.to_string(),
        }
    }
}

/// A lock as it is now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Shown {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Whether somebody must be assumed to hold it.
    pub live: bool,
    /// Milliseconds until it expires; negative when it has.
    pub expires_in_ms: i64,
    /// The document.
    #[serde(flatten)]
    pub lock: Lock,
    /// Its times for people.
    #[serde(flatten)]
    pub times: LockTimes,
    /// The generation of `latest.json`, when there is one.
    pub pointer_generation: Option<Generation>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// A lock after it was renewed or released.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Changed {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The document.
    #[serde(flatten)]
    pub lock: Lock,
    /// Its times for people.
    #[serde(flatten)]
    pub times: LockTimes,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// Throws the holder out.
#[derive(Clone, Debug)]
pub struct ForceUnlock {
    /// Of what.
    pub lineage: Lineage,
    /// The lease the operator saw; the one found first when not given.
    pub seen: Option<Fence>,
    /// Why, in the operator's words.
    pub reason: Label,
    /// Who does it.
    pub actor: Label,
}

/// A holder that was thrown out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Unlocked {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// By which operation.
    pub op_id: OpId,
    /// Who was thrown out.
    #[serde(flatten)]
    pub evicted: Holder,
    /// Nobody below this epoch can write any more.
    pub epoch: Epoch,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Leases<'_> {
    /// A name for a run that has none: the time and eight random digits.
    pub fn new_run_id(self) -> Label {
        let time: String = self
            .clock
            .now()
            .to_string()
            .chars()
            .filter(char::is_ascii_digit)
            .take(14)
            .collect();
        let nonce = self.rng.below(1 << 32);
        let (day, hour) = time.split_at(8);
        format!("{day}_{hour}_{nonce:08x}")
            .parse()
            .expect("digits and underscores are a label")
    }

    /// Makes the holder the owner of the lineage.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.lineage))]
    pub async fn acquire(self, cmd: Acquire) -> Result<Acquired, Error> {
        self.store().ensure_trusted().await?;
        let ttl = self.ttl(&cmd.lineage, cmd.ttl).await?;
        let memory = self.memory_of_pointer(&cmd.lineage).await;
        let result = self
            .lineages
            .acquire(&cmd.lineage, cmd.holder.clone(), ttl)
            .await;
        let lease = self.operations().settled(result).await?;
        if let Some(error) = self.found_earlier(&lease, memory).await {
            // What we wrote is our fence only; whoever accepts that it went back goes on from there.
            self.note_refused(&cmd.lineage).await;
            if let Err(error) = self.release_lease(&lease).await {
                tracing::warn!(%error, "the lease was not given back");
            }
            return Err(error);
        }
        let mut warnings = self.clock_warnings();
        if matches!(self.location, StoreLocation::Memory) {
            warnings.push(Warning::Ephemeral);
        }
        let unreturned = lease
            .took_over
            .as_ref()
            .filter(|lock| lock.state == LockState::Held);
        if let Some(lock) = unreturned {
            let event = self
                .events()
                .event(
                    EventKind::LockTakenOver,
                    Severity::Warning,
                    &cmd.holder.run_id,
                )
                .about(cmd.lineage.clone(), lease.fence.op_id)
                .with("holder_run_id", lock.holder.run_id.as_str());
            warnings.push(Warning::TookOver {
                holder_run_id: lock.holder.run_id.to_string(),
            });
            warnings.extend(self.events().record(&cmd.lineage.tenant, event).await);
        }
        Ok(Acquired {
            subject: cmd.lineage,
            token: lease.fence.to_string(),
            epoch: lease.fence.epoch,
            holder: cmd.holder,
            ttl_ms: millis(ttl),
            base_sha256: lease.base.as_ref().map(|base| base.archive),
            warnings,
            lease,
        })
    }

    /// Why the pointer that a new owner found is not to be believed, if this host has seen a later one.
    async fn found_earlier(self, lease: &Lease, memory: Memory) -> Option<Error> {
        let pointer = lease.last_pointer()?;
        // Owning has written it once.
        let found = Generation(pointer.generation.0.saturating_sub(1));
        if let Some(back) = memory.pointer_went_back(found).await {
            return Some(self.profiles().not_believed(&lease.lineage, &back).await);
        }
        self.note_pointer(&lease.lineage, &pointer).await;
        None
    }

    /// What was asked for, else what the tenant's policy says.
    async fn ttl(self, lineage: &Lineage, asked: Option<Duration>) -> Result<Duration, Error> {
        match asked {
            Some(ttl) if ttl > LONGEST => Err(Error::lease_too_long(ttl)),
            Some(ttl) => Ok(ttl),
            None => Ok(self.tenants().policy(&lineage.tenant).await?.lease_ttl()),
        }
    }

    /// Prolongs a lease.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %lineage))]
    pub async fn renew(
        self,
        lineage: &Lineage,
        token: Fence,
        ttl: Option<Duration>,
    ) -> Result<Changed, Error> {
        self.store().ensure_trusted().await?;
        let ttl = self.ttl(lineage, ttl).await?;
        let result = self.lineages.renew(lineage, token, ttl).await;
        never_locked(&result, lineage)?;
        self.note_loss(&result, lineage, token).await;
        let (lock, _) = self.operations().settled(result).await?;
        Ok(Changed {
            subject: lineage.clone(),
            times: LockTimes::from(&lock),
            lock,
            warnings: self.clock_warnings(),
        })
    }

    /// Renews the lease whose token is shown, and takes it up.
    pub(crate) async fn adopt(
        self,
        lineage: &Lineage,
        token: Fence,
        ttl: Duration,
    ) -> Result<Lease, Error> {
        self.store().ensure_trusted().await?;
        let result = self.lineages.adopt(lineage, token, ttl).await;
        never_locked(&result, lineage)?;
        self.note_loss(&result, lineage, token).await;
        self.operations().settled(result).await
    }

    /// Gives back a lease of this process.
    pub(crate) async fn release_lease(self, lease: &Lease) -> Result<Lock, Error> {
        let result = self.lineages.release_lease(lease).await;
        never_locked(&result, &lease.lineage)?;
        self.operations().settled(result).await
    }

    /// Writes down that a lease is lost, if that is why it was not renewed.
    async fn note_loss<T>(self, result: &Result<T, LineageError>, lineage: &Lineage, token: Fence) {
        if let Err(LineageError::Refused {
            refusal: Refusal::LockLost(how),
            ..
        }) = result
        {
            self.record_lost(lineage, token, &how.to_string()).await;
        }
    }

    /// Gives a lease back.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %lineage))]
    pub async fn release(self, lineage: &Lineage, token: Fence) -> Result<Changed, Error> {
        self.store().ensure_trusted().await?;
        let result = self.lineages.release(lineage, token).await;
        never_locked(&result, lineage)?;
        let lock = self.operations().settled(result).await?;
        Ok(Changed {
            subject: lineage.clone(),
            times: LockTimes::from(&lock),
            lock,
            warnings: self.clock_warnings(),
        })
    }

    /// Tells who holds the lineage.
    pub async fn show(self, lineage: &Lineage) -> Result<Shown, Error> {
        let found = self.lineages.lock(lineage).await?;
        let lock = found.ok_or_else(|| Error::never_locked(lineage))?.value;
        let pointer = self.lineages.pointer(lineage).await?;
        let now = self.lineages.now();
        Ok(Shown {
            subject: lineage.clone(),
            live: lock.is_live(now),
            expires_in_ms: left(lock.expires_at, now),
            times: LockTimes::from(&lock),
            lock,
            pointer_generation: pointer.map(|pointer| pointer.value.generation),
            warnings: self.clock_warnings(),
        })
    }

    /// Throws the holder out, at once: the pointer is fenced before the lock is told.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.lineage))]
    pub async fn force_unlock(self, cmd: ForceUnlock) -> Result<Unlocked, Error> {
        self.store().ensure_trusted().await?;
        let found = self.lineages.lock(&cmd.lineage).await?;
        let lock = found
            .ok_or_else(|| Error::never_locked(&cmd.lineage))?
            .value;
        let seen = cmd.seen.unwrap_or_else(|| lock.fence());
        let result = self
            .lineages
            .force_unlock(&cmd.lineage, seen, cmd.reason.clone())
            .await;
        let moved = self.operations().settled(result).await?;
        let event = self
            .events()
            .event(EventKind::ForceUnlock, Severity::Warning, &cmd.actor)
            .about(cmd.lineage.clone(), moved.op_id)
            .with("reason", cmd.reason.as_str())
            .with("holder_run_id", lock.holder.run_id.as_str());
        let mut warnings = self.clock_warnings();
        warnings.extend((!moved.lock_marked).then_some(Warning::LockNotTold));
        warnings.extend(self.events().record(&cmd.lineage.tenant, event).await);
        Ok(Unlocked {
            subject: cmd.lineage,
            op_id: moved.op_id,
            evicted: lock.holder,
            epoch: moved.pointer.fence.epoch,
            warnings,
        })
    }

    pub(crate) async fn record_lost(self, lineage: &Lineage, token: Fence, how: &str) {
        let nobody = Label::nobody();
        let event: AuditEvent = self
            .events()
            .event(EventKind::LockLost, Severity::Warning, &nobody)
            .about(lineage.clone(), token.op_id)
            .with("how", how);
        // The caller is told of the loss itself; a log line more or less must not hide it.
        let _ = tokio::time::timeout(COURTESY, self.events().record(&lineage.tenant, event)).await;
    }
}

/// A lease of something that never had one is a mistake in the name, not a loss.
fn never_locked<T>(result: &Result<T, LineageError>, lineage: &Lineage) -> Result<(), Error> {
    match result {
        Err(LineageError::Refused {
            refusal: Refusal::LockLost(Lost::NoLock),
            ..
        }) => Err(Error::never_locked(lineage)),
        _ => Ok(()),
    }
}

/// Milliseconds until `then`; negative when it has passed.
fn left(then: Timestamp, now: Timestamp) -> i64 {
    let left = i128::from(then.millis()) - i128::from(now.millis());
    i64::try_from(left).unwrap_or(if left > 0 { i64::MAX } else { i64::MIN })
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
