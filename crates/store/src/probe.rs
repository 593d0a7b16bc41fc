//! Asks a store whether it keeps its word.
//!
//! Some stores accept conditional writes and ignore the condition; two writers then both believe that they won. No
//! header tells, so the probe tries: in a scratch space of its own, which it removes afterwards, it does what writers
//! do and looks at what became of it.
//!
//! *Always true:* only an answer condemns. A store that breaks a promise is refused; one that does not answer, answers that it
//! cannot now, or takes too long is an error, and nothing is known of it: whoever asked may ask again.

mod checks;

use crate::bucket::{Bucket, BucketError, BucketErrorKind};
use crate::layout::Prefix;
use checks::ProbeScratch;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use stasis_model::format::document::Document;
use stasis_model::rng::Rng;
use stasis_model::time::Timestamp;
use std::error::Error;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::timeout;

/// How long a probe may take; a healthy store answers within a few seconds.
const DEADLINE: Duration = Duration::from_mins(1);
const CLEANING: Duration = Duration::from_secs(15);

/// What a probe found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeReport {
    /// Always 1.
    pub version: u64,
    /// Which store was asked, so that a report that was copied elsewhere is not believed there.
    #[serde(default)]
    pub store: String,
    /// When the probe began.
    pub checked_at_ms: Timestamp,
    /// What the store may be used for.
    pub verdict: ProbeVerdict,
    /// Every check, in the order in which they were made.
    pub checks: Vec<ProbeCheck>,
}

impl Document for ProbeReport {
    const NAME: &'static str = "probe.json";
}

/// What a store may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProbeVerdict {
    /// Any number of writers are safe.
    MultiWriter,
    /// Two writers could both believe that they won, or what was written could be missed.
    Refused,
}

/// One thing that was asked of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeCheck {
    /// What was asked.
    pub name: CheckName,
    /// Whether a store that does not do this is refused.
    pub required: bool,
    /// What came of it.
    pub verdict: CheckVerdict,
    /// The same in words, with what was seen.
    pub detail: String,
}

/// What is asked of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// A second create of the same object is lost.
    CreateTwice,
    /// Of several creates at once one wins.
    RacingCreates,
    /// A swap that names an older version is lost.
    StaleSwap,
    /// A swap of a missing object is lost and creates nothing.
    SwapOfMissing,
    /// A read sees the write before it.
    ReadAfterWrite,
    /// A listing sees the writes and deletes before it.
    ListAfterWrite,
    /// Parts of objects can be read.
    Ranges,
    /// Writers that add up by read and swap lose nothing.
    ConcurrentIncrements,
    /// A listing goes on after any directory, in the order in which it lists, whatever order that is.
    ListGoesOn,
    /// The store's clock and ours agree within 30 seconds.
    Clock,
}

impl CheckName {
    const ALL: [Self; 10] = [
        Self::CreateTwice,
        Self::StaleSwap,
        Self::SwapOfMissing,
        Self::ReadAfterWrite,
        Self::ListAfterWrite,
        Self::Ranges,
        Self::RacingCreates,
        Self::ConcurrentIncrements,
        Self::ListGoesOn,
        Self::Clock,
    ];

    fn is_required(self) -> bool {
        !matches!(self, Self::ListGoesOn | Self::Clock)
    }

    fn words(self) -> &'static str {
        match self {
            Self::CreateTwice => "a second create is refused",
            Self::RacingCreates => "one of racing creates wins",
            Self::StaleSwap => "a stale swap is refused",
            Self::SwapOfMissing => "a swap of a missing object is refused",
            Self::ReadAfterWrite => "a read sees the write before it",
            Self::ListAfterWrite => "a listing sees the writes before it",
            Self::Ranges => "parts of objects can be read",
            Self::ConcurrentIncrements => "concurrent increments lose nothing",
            Self::ListGoesOn => "a listing goes on where it is asked to",
            Self::Clock => "the clocks agree",
        }
    }
}

/// What came of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The store does it.
    Honoured,
    /// The store accepts the request and does something else.
    Ignored,
    /// The store answered with an error, or with nonsense.
    Failed,
    /// Not asked, or not finished in time.
    Unknown,
}

impl ProbeReport {
    /// Whether the store was seen to do it; not known if it was not asked.
    pub fn says(&self, name: CheckName) -> Option<bool> {
        let check = self.checks.iter().find(|check| check.name == name)?;
        (check.verdict != CheckVerdict::Unknown).then_some(check.verdict == CheckVerdict::Honoured)
    }
}

/// Asks a store whether it keeps its word. Fails when it cannot be asked, unless it has broken a promise before that.
pub async fn probe(
    bucket: &dyn Bucket,
    store: &str,
    rng: &dyn Rng,
    now: Timestamp,
) -> Result<ProbeReport, BucketError> {
    let id = rng.op_id();
    let scratch = ProbeScratch { bucket, rng, id };
    let mut checks = Vec::new();
    let in_time = timeout(DEADLINE, ask_everything(&scratch, &mut checks)).await;
    if timeout(CLEANING, clean(bucket, &Prefix::probe_scratch(id))).await != Ok(true) {
        tracing::warn!(probe = %id, "the probe's scratch objects could not all be removed");
    }
    let (ended, reason) = if let Ok(ended) = in_time {
        let reason = "not asked, because the store could not be asked any more";
        (ended, reason.to_owned())
    } else {
        let reason = format!("not finished within {} seconds", DEADLINE.as_secs());
        let slow = BucketError::new(BucketErrorKind::Unreachable, "probe", store);
        (Err(slow.because(reason.clone())), reason)
    };
    let is_broken = |check: &ProbeCheck| check.required && check.verdict != CheckVerdict::Honoured;
    let is_asked = |name: CheckName| checks.iter().any(|check| check.name == name);
    let mut required = CheckName::ALL.into_iter().filter(|name| name.is_required());
    // What is not required may remain unknown.
    let is_over = required.all(is_asked);
    if !is_over && !checks.iter().any(is_broken) {
        ended?;
    }
    for name in CheckName::ALL.into_iter().skip(checks.len()) {
        checks.push(ProbeCheck {
            name,
            required: name.is_required(),
            verdict: CheckVerdict::Unknown,
            detail: reason.clone(),
        });
    }
    Ok(ProbeReport {
        version: ProbeReport::VERSION,
        store: store.to_owned(),
        checked_at_ms: now,
        verdict: if checks.iter().any(is_broken) {
            ProbeVerdict::Refused
        } else {
            ProbeVerdict::MultiWriter
        },
        checks,
    })
}

/// Makes the checks one after another, until all are made or the store cannot be asked any more.
async fn ask_everything(
    scratch: &ProbeScratch<'_>,
    checks: &mut Vec<ProbeCheck>,
) -> Result<(), BucketError> {
    for name in CheckName::ALL {
        let (verdict, detail) = match scratch.ask(name).await {
            Err(error) if name.is_required() && is_hopeless(&error) => return Err(error),
            asked => asked.unwrap_or_else(|error| (CheckVerdict::Failed, with_causes(&error))),
        };
        checks.push(ProbeCheck {
            name,
            required: name.is_required(),
            verdict,
            detail,
        });
    }
    Ok(())
}

/// Whether an error is about the store and not about what was asked of it.
fn is_hopeless(error: &BucketError) -> bool {
    use BucketErrorKind::{Absent, Denied, Full, Unreachable};
    matches!(error.kind, Absent | Denied | Full | Unreachable)
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").expect("a string can be written to");
        cause = error.source();
    }
    text
}

/// Removes what a probe wrote; whether all of it went.
async fn clean(bucket: &dyn Bucket, prefix: &Prefix) -> bool {
    let Ok(rows) = bucket.list(prefix, None, usize::MAX).await else {
        return false;
    };
    let removals = rows.iter().map(|row| bucket.delete(&row.key));
    join_all(removals).await.iter().all(Result::is_ok)
}

/// The report in one sentence.
pub fn summary(report: &ProbeReport) -> String {
    let required = report.checks.iter().filter(|check| check.required);
    let broken: Vec<String> = required
        .clone()
        .filter(|check| check.verdict != CheckVerdict::Honoured)
        .map(|check| {
            let verdict = match check.verdict {
                CheckVerdict::Honoured => "honoured",
                CheckVerdict::Ignored => "ignored",
                CheckVerdict::Failed => "failed",
                CheckVerdict::Unknown => "unknown",
            };
            format!("{} ({verdict})", check.name.words())
        })
        .collect();
    match report.verdict {
        ProbeVerdict::MultiWriter => format!(
            "the store keeps its word in all {} required checks and may have several writers",
            required.count()
        ),
        ProbeVerdict::Refused => format!(
            "the store is refused for several writers; it must do, and does not: {}",
            broken.join(", ")
        ),
    }
}
