//! `stasis profile list`

use crate::cli::byte_size::size;
use crate::cli::output::{printable, table, word};
use crate::cli::proof::proved;
use crate::cli::{CliContext, system_clock};
use crate::report::Exit;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::kind::profile::{
    DamagedManifest, Orphan, ProfileList, ProfileRow, SnapshotList, SnapshotRow, SnapshotStatus,
    UnsavedCopy, unsaved_in,
};
use stasis_engine::model::id::{ProfileRef, TenantId};
use stasis_engine::model::time::Clock as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileListArgs {
    /// <tenant>/<profile>[@<chrome-major>]; without the major, all of them [default: lists profiles]
    subject: Option<ProfileRef>,
    /// Only this tenant's profiles [default: all tenants]
    #[arg(long, conflicts_with = "subject")]
    tenant: Option<TenantId>,
    /// List what runs on this host left unsaved instead; needs no store
    #[arg(long, conflicts_with_all = ["subject", "tenant"])]
    local: bool,
    /// With --local: look beside this user data directory too
    #[arg(long, requires = "local", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl ProfileListArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        if self.local {
            return self.list_local(context).await;
        }
        let engine = context.engine().await?;
        if let Some(subject) = self.subject {
            let list = engine.profiles().snapshots(&subject).await?;
            context.output.warn(&list.warnings);
            context.output.result(&list, list_text)?;
            return Ok(exit(list.is_damaged()));
        }
        let list = engine.profiles().list(self.tenant.as_ref()).await?;
        context.output.warn(&list.warnings);
        context.output.result(&list, profiles)?;
        let hurt = |row: &ProfileRow| !row.damage.is_empty();
        Ok(exit(list.profiles.iter().any(hurt)))
    }
}

impl ProfileListArgs {
    /// Lists the copies beside the directories that profiles have by default, and beside the one that was named.
    async fn list_local(&self, context: &CliContext) -> anyhow::Result<Exit> {
        let mut parents = Vec::new();
        if let Some(state) = &context.environment.local_dirs.state {
            let tenants = std::fs::read_dir(state.join("profiles"));
            parents.extend(
                tenants
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|tenant| tenant.path()),
            );
        }
        if let Some(dir) = &self.dir {
            let dir = std::path::absolute(dir)?;
            parents.extend(dir.parent().map(Path::to_owned));
        }
        let copies = LocalCopies {
            unsaved: unsaved_in(parents).await,
        };
        context.output.result(&copies, local)?;
        Ok(Exit::Done)
    }
}

/// What runs on this host left.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct LocalCopies {
    unsaved: Vec<UnsavedCopy>,
}

fn local(copies: &LocalCopies) -> String {
    if copies.unsaved.is_empty() {
        return "nothing is left unsaved".to_owned();
    }
    let row = |copy: &UnsavedCopy| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            printable(&copy.path),
            or_dash(copy.subject.as_ref().map(ToString::to_string)),
            or_dash(copy.base_sha256.map(|base| base.prefix())),
            or_dash(copy.began_at_ms.map(|at| at.to_string())),
            size(copy.bytes),
        ]
    };
    let head = ["UNSAVED", "PROFILE", "BASE", "BEGAN", "SIZE"];
    let rows = copies.unsaved.iter().map(row).collect();
    let hint = "save one with `stasis profile save PROFILE --dir PATH`, remove one with `stasis profile discard PATH`";
    format!("{}\n{hint}", table(&head, rows))
}

pub(super) fn exit(is_damaged: bool) -> Exit {
    if is_damaged {
        Exit::Corrupt
    } else {
        Exit::Done
    }
}

fn profiles(list: &ProfileList) -> String {
    let row = |row: &ProfileRow| {
        let active = row.active_sha256.map(|active| active.prefix());
        let at = row.flipped_at_ms.map(|at| at.age(system_clock().now()));
        let holder = row
            .holder_run_id
            .as_ref()
            .filter(|_| word(&row.lock) == "held");
        let lock = match holder {
            Some(holder) => format!("held by {holder}"),
            None => word(&row.lock),
        };
        vec![
            row.subject.to_string(),
            active.unwrap_or_else(|| "-".to_owned()),
            at.unwrap_or_else(|| "-".to_owned()),
            row.snapshots.to_string(),
            size(row.bytes),
            lock,
            row.damage.join("; "),
        ]
    };
    let rows = list.profiles.iter().map(row).collect();
    let head = [
        "PROFILE",
        "ACTIVE",
        "SINCE",
        "SNAPSHOTS",
        "SIZE",
        "LOCK",
        "",
    ];
    table(&head, rows)
}

fn list_text(list: &SnapshotList) -> String {
    snapshots(&list.snapshots, &list.orphans, &list.damaged, &list.damage)
}

/// Some snapshots, and everything else that a list of them says.
pub(super) fn snapshots(
    rows: &[SnapshotRow],
    orphans: &[Orphan],
    damaged: &[DamagedManifest],
    damage: &[String],
) -> String {
    let now = system_clock().now();
    // Where no snapshot was tried there is nothing to say of proofs.
    let has_proofs = rows.iter().any(|row| row.proof.is_some());
    let row = |row: &SnapshotRow| {
        let manifest = &row.manifest;
        let proof = has_proofs.then(|| proved(row.proof.as_ref(), now).unwrap_or_default());
        let mut cells = vec![
            row.sha256_prefix.clone(),
            manifest.captured_at_ms.age(now),
            size(manifest.archive_size_bytes),
            word(&manifest.mode),
            manifest.chrome_major_version.to_string(),
            marks(&row.marks),
        ];
        cells.extend(proof);
        cells.push(row.damage.clone().unwrap_or_default());
        cells
    };
    let mut head = vec!["SHA256", "CAPTURED", "SIZE", "MODE", "CHROME", "MARKS"];
    head.extend(has_proofs.then_some("PROOF"));
    head.push("");
    let mut lines = vec![table(&head, rows.iter().map(row).collect())];
    for orphan in orphans {
        let (key, size) = (printable(&orphan.key), size(orphan.size_bytes));
        lines.push(format!(
            "orphan: {key} ({size}): an archive without a manifest"
        ));
    }
    for damaged in damaged {
        let (key, reason) = (printable(&damaged.key), printable(&damaged.reason));
        lines.push(format!("damaged: {key}: {reason}"));
    }
    for damage in damage {
        lines.push(format!("damaged: {}", printable(damage)));
    }
    lines.join("\n")
}

/// The marks of a snapshot, for people.
pub(super) fn marks(marks: &[SnapshotStatus]) -> String {
    let marks: Vec<String> = marks.iter().map(word).collect();
    if marks.is_empty() {
        return "-".to_owned();
    }
    marks.join(",")
}
