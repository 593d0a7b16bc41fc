//! `lock.json`: who owns a lineage right now.

use crate::format::document::Document;
use crate::id::{Epoch, Generation, Label, OpId};
use crate::invalid::{Invalid, InvalidPart};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// The identity of one lease. An epoch alone is not one: two owners can race to the same number.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Fence {
    /// Grows with every owner.
    pub epoch: Epoch,
    /// The operation that made this owner.
    pub op_id: OpId,
}

impl fmt::Display for Fence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.epoch, self.op_id)
    }
}

impl FromStr for Fence {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("a lease token has the form <epoch>.<operation-id>");
        let (epoch, op_id) = text.split_once('.').ok_or_else(bad)?;
        let epoch = Epoch(epoch.parse().ok().ok_or_else(bad)?);
        let op_id = op_id
            .parse()
            .invalid("the second part of the lease token is wrong")?;
        Ok(Self { epoch, op_id })
    }
}

/// Who asks for, or has, a lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// The run, as the caller knows it.
    #[serde(rename = "holder_run_id")]
    pub run_id: Label,
    /// Where it runs.
    #[serde(rename = "holder_host")]
    pub host: Label,
    /// What that host calls the run.
    #[serde(rename = "holder_host_run_id")]
    pub host_run_id: Label,
}

/// What a lock says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    /// Owned until it expires.
    #[default]
    Held,
    /// Given back by its holder, or taken from a dead one by the reaper.
    Free,
    /// Taken by an operator.
    Forced,
}

/// The document `lock.json`.
///
/// Never deleted: its `generation` and `epoch` only grow, so that no bytes of it ever repeat.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lock {
    version: u64,
    /// The holder, or the last one when the lock is not held.
    #[serde(flatten)]
    pub holder: Holder,
    /// When the holder became the holder.
    #[serde(rename = "acquired_at_ms")]
    pub acquired_at: Timestamp,
    /// When the holder last renewed.
    #[serde(rename = "renewed_at_ms")]
    pub renewed_at: Timestamp,
    /// The last moment at which it is certainly held.
    #[serde(rename = "expires_at_ms")]
    pub expires_at: Timestamp,
    /// How often the holder renewed.
    pub renewal_count: u64,
    /// Grows with every holder.
    #[serde(default)]
    pub epoch: Epoch,
    /// The operation that made this holder; together with `epoch` the lease's identity.
    #[serde(default)]
    pub op_id: OpId,
    /// The operation that wrote these bytes.
    #[serde(default)]
    pub write_id: OpId,
    /// Counts the writes.
    #[serde(default)]
    pub generation: Generation,
    /// Held, free or forced.
    #[serde(default)]
    pub state: LockState,
    /// Whether its holder gave it back itself; then the lease is over, while a reaped one may come back.
    #[serde(default)]
    pub released: bool,
    /// Why it is not held, in words.
    #[serde(default = "Label::nobody")]
    pub reason: Label,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for Lock {
    const NAME: &'static str = "lock.json";
}

impl Lock {
    /// The first lock of a lineage, held by `holder` under `fence`.
    pub fn first(holder: Holder, fence: Fence, now: Timestamp, expires_at: Timestamp) -> Self {
        Self {
            version: Self::VERSION,
            holder,
            acquired_at: now,
            renewed_at: now,
            expires_at,
            renewal_count: 0,
            epoch: fence.epoch,
            op_id: fence.op_id,
            write_id: fence.op_id,
            generation: Generation(1),
            state: LockState::Held,
            released: false,
            reason: Label::nobody(),
            extra: Map::new(),
        }
    }

    /// A lock that nobody holds, where the one that there was is damaged: whoever held it finds out when it renews.
    #[must_use = "a lock that was made anew is not in place yet"]
    pub fn made_anew(fence: Fence, write_id: OpId, now: Timestamp) -> Self {
        let nobody = Holder {
            run_id: Label::nobody(),
            host: Label::nobody(),
            host_run_id: Label::nobody(),
        };
        Self {
            write_id,
            generation: Generation::far_ahead(now),
            state: LockState::Forced,
            reason: "it was damaged, and made anew"
                .parse()
                .expect("a constant that is a label"),
            ..Self::first(nobody, fence, now, now)
        }
    }

    /// The same document, taken over by another holder; unknown fields stay.
    #[must_use = "the lock is not changed in place"]
    pub fn taken_by(
        &self,
        holder: Holder,
        fence: Fence,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            generation: self.generation.next(),
            extra: self.extra.clone(),
            ..Self::first(holder, fence, now, expires_at)
        }
    }

    /// The same document, one write later.
    #[must_use = "the lock is not changed in place"]
    pub fn successor(&self, write_id: OpId) -> Self {
        Self {
            write_id,
            generation: self.generation.next(),
            ..self.clone()
        }
    }

    /// The identity of the lease this lock belongs to.
    pub fn fence(&self) -> Fence {
        Fence {
            epoch: self.epoch,
            op_id: self.op_id,
        }
    }

    /// Whether its last holder will not come back: it gave the lock back itself, or an operator threw it out. One that
    /// was only presumed dead may still renew.
    pub fn is_given_up(&self) -> bool {
        match self.state {
            LockState::Held => false,
            LockState::Free => self.released,
            LockState::Forced => true,
        }
    }

    /// Whether the lineage must have had a `latest.json` when this was written.
    ///
    /// Owning writes the lock first and the pointer second, so a lock alone proves nothing: its holder may have died in
    /// between. But only an owner renews, and gives back; and an operator writes the pointer first.
    pub fn proves_a_pointer(&self) -> bool {
        self.renewal_count > 0 || self.is_given_up()
    }

    /// Whether it must be assumed to be held: the last millisecond still counts.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.state == LockState::Held && self.expires_at >= now
    }
}
