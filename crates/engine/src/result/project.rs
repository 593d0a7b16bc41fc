//! What results and errors of a project have in common.

use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{Label, ServiceName, SnapshotId};
use std::collections::BTreeMap;

/// When something is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words say what they mean")]
pub enum Moment {
    PreSave,
    PostSave,
    PreRestore,
    PostRestore,
}

/// A command that was run around a save or a restore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ServiceHookRun {
    /// Whose.
    pub service: ServiceName,
    /// When.
    pub moment: Moment,
    /// How it ended: `exited 0`, `signalled 9`, `timed out`, or why it did not start.
    pub ending: String,
    /// Whether that was well.
    pub ok: bool,
    /// What it said.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// One snapshot in a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectSnapshot {
    /// Its id.
    pub snapshot_id: SnapshotId,
    /// When it was made.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// What made somebody save.
    pub reason: SaveReason,
    /// How many entries it has.
    pub entries: u64,
    /// The length of all its files.
    pub bytes: u64,
    /// Whether it is what `latest` means.
    pub active: bool,
    /// Whether it is kept whatever a policy says.
    pub pinned: bool,
    /// Words of the user's.
    pub labels: BTreeMap<String, Label>,
}

/// The word for a reason, as hooks hear it.
pub(crate) fn reason_word(reason: SaveReason) -> &'static str {
    match reason {
        SaveReason::Manual => "manual",
        SaveReason::Autosave => "autosave",
        SaveReason::BeforeUpgrade => "before-upgrade",
        SaveReason::BeforeRestore => "before-restore",
        SaveReason::FirstPass => "first-pass",
    }
}
