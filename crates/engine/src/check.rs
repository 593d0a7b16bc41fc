//! Whether things are sound: the databases in a directory, the snapshots of a store, and what is damaged of them.

mod damaged;
mod remedy;
mod snapshots;

pub(crate) use damaged::log;
pub use damaged::{DamagedSnapshot, RepoLetGo};
pub use remedy::Remedy;
pub use snapshots::{CheckedRoot, RepoChecked, RepoDamage};

use crate::bridge;
use crate::error::Error;
use crate::result::{DatabaseEngine, DatabaseRecovery, DatabaseVerdict};
use schemars::JsonSchema;
use serde::Serialize;
pub use stasis_disk::check::sqlite::child as sqlite_child;
use stasis_disk::check::{self, CheckSettings, Checked};
pub use stasis_disk::check::{CheckError, CheckReport, Depth, Spawn, Verdict};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::WalkError;
use stasis_model::failure::{AtPath, OPEN_DIRECTORY};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is checked, and how.
#[derive(Clone, Debug)]
pub struct CheckTree {
    /// The directory.
    pub root: PathBuf,
    /// A directory for copies, best on the same filesystem.
    pub scratch: PathBuf,
    /// How thoroughly.
    pub depth: Depth,
    /// How the process that opens SQLite databases is started.
    pub spawn: Spawn,
    /// Set by anybody at any time to end soon.
    pub cancel: Arc<AtomicBool>,
}

/// One database and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckedDatabase {
    /// Which file or directory; bytes that are no text are written as `\xNN`, a backslash is doubled.
    pub path: String,
    /// Whose format it has.
    pub kind: DatabaseEngine,
    /// What the check found.
    pub verdict: DatabaseVerdict,
    /// What was made good first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<DatabaseRecovery>,
    /// What is wrong, or why nothing is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// How many further messages were not kept.
    pub messages_dropped: u64,
    /// Tables that need something that only their own program has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
}

/// What was found in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "a check that nobody reads is no check"]
pub struct CheckedTree {
    /// Whether everything could be read, and every database was found sound.
    pub all_sound: bool,
    /// Every database.
    pub databases: Vec<CheckedDatabase>,
    /// How many entries could not be looked at: vanished, unreadable, or nothing that one reads.
    pub left_out: u64,
}

/// Finds and checks every database in a directory; needs no store.
#[tracing::instrument(skip_all, err(level = "info"), fields(root = %command.root.display()))]
pub async fn check_tree(command: CheckTree) -> Result<CheckedTree, Error> {
    let report = bridge::blocking(move || {
        let root = RootDir::open(&command.root, Mounts::Stay);
        let root = root.at(OPEN_DIRECTORY, &command.root);
        let root = root.map_err(WalkError::from)?;
        let settings = CheckSettings {
            depth: command.depth,
            cancel: command.cancel,
            ..CheckSettings::new(command.scratch)
        };
        check::tree(&root, &settings, &command.spawn)
    });
    Ok(checked(&report.await?))
}

fn checked(report: &CheckReport) -> CheckedTree {
    CheckedTree {
        all_sound: report.is_all_sound(),
        databases: report.databases.iter().map(one).collect(),
        left_out: report.walk.vanished_count + report.walk.skipped_count,
    }
}

fn one(checked: &Checked) -> CheckedDatabase {
    let (mut recovered, mut unchecked) = (None, Vec::new());
    let (mut messages, mut messages_dropped) = (Vec::new(), 0);
    match &checked.verdict {
        Verdict::Sound {
            recovered: what,
            unchecked: tables,
            ..
        } => {
            recovered = DatabaseRecovery::of(*what);
            unchecked = tables.kept().to_vec();
        }
        Verdict::Damaged { messages: all } => {
            (messages, messages_dropped) = (all.kept().to_vec(), all.dropped());
        }
        Verdict::Limit { what: why } | Verdict::Unable { why } => messages.push(why.clone()),
        _ => {}
    }
    CheckedDatabase {
        path: checked.path.to_string(),
        kind: checked.kind.into(),
        verdict: (&checked.verdict).into(),
        recovered,
        messages,
        messages_dropped,
        unchecked,
    }
}
