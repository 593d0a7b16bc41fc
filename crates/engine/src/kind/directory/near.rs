//! What somebody may have meant who named a snapshot that a directory does not have.

use super::Directory;
use crate::error::{Error, ErrorKind};
use crate::kind::project::ProjectSnapshot;
use crate::near::did_you_mean;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::SaveReason;
use stasis_model::nearest::nearest;
use stasis_model::snapshot_ref::SnapshotRef;

/// The shortest beginning of an id that is compared with others.
const ID: usize = 4;

impl Directory {
    /// Snapshots and checkpoints whose names are near to one that there is not.
    pub async fn near_snapshots(&self, wanted: &SnapshotRef) -> Vec<String> {
        let typed = wanted.text();
        let mut names: Vec<(String, String)> = Vec::new();
        if let Some(project) = &self.project
            && let Ok(rows) = project.list().await
        {
            names.extend(stored_names(&rows, &typed));
        }
        if let Some(workspace) = &self.workspace
            && let Ok(listed) = workspace.list(false).await
        {
            for row in listed.snapshots {
                let name = row.name.map(|name| (name, row.checkpoint.clone()));
                names.extend(name);
                names.push((row.checkpoint.clone(), row.checkpoint));
            }
        }
        nearest(&typed, names)
    }

    /// Says with an error what may have been meant.
    pub(super) async fn or_near(&self, wanted: &SnapshotRef, error: Error) -> Error {
        let is_name = !matches!(wanted, SnapshotRef::Latest | SnapshotRef::Time(_));
        if error.kind() != ErrorKind::NotFound || !is_name {
            return error;
        }
        match did_you_mean(&self.near_snapshots(wanted).await) {
            None => error,
            Some(question) => Failure::of(ErrorKind::NotFound, error.to_string())
                .with_hint(format!("{question} `stasis log` lists what there is"))
                .into(),
        }
    }
}

/// The names of snapshots in the store, the newest first, and what is shown of them.
fn stored_names(rows: &[ProjectSnapshot], typed: &str) -> Vec<(String, String)> {
    let mut names = Vec::new();
    let both = |name: &str| (name.to_owned(), name.to_owned());
    if rows.iter().any(|row| row.active) {
        names.push(both("latest"));
    }
    let latest = rows.iter().find(|row| row.active);
    let is_earlier = |row: &&ProjectSnapshot| {
        let is_before = |latest: &ProjectSnapshot| row.timestamp_ms < latest.timestamp_ms;
        row.reason == SaveReason::Manual && latest.is_some_and(is_before)
    };
    let earlier = (1..=rows.iter().filter(is_earlier).count()).rev();
    names.extend(earlier.map(|back| both(&format!("latest~{back}"))));
    for row in rows.iter().rev() {
        let id = row.snapshot_id.to_string();
        let short: String = id.chars().take(8).collect();
        let begins: String = id.chars().take(typed.chars().count()).collect();
        if begins.len() >= ID {
            names.push((begins, short.clone()));
        }
        for (key, value) in &row.labels {
            names.push((value.to_string(), value.to_string()));
            names.push((format!("{key}={value}"), format!("{key}={value}")));
        }
    }
    names
}
