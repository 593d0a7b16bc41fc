//! What `project` and `repo` have in common: they save and restore directories.

use super::CliContext;
use super::output::printable;
use crate::report::Exit;
use anyhow::Context as _;
use stasis_engine::clone::LeftOut;
use stasis_engine::model::tree::EntryPath;
use stasis_engine::restore::InPlaceChanges;
use stasis_engine::result::SkipReason;
use stasis_engine::save::RepoSaved;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// How many differences are shown to people.
pub(super) const SHOWN: usize = 50;

/// A path in a snapshot, as people type it: leading `./` and `/` and a trailing slash do not matter.
pub(super) fn entry_path(typed: Option<&OsString>) -> anyhow::Result<EntryPath> {
    let bytes = typed.map(|typed| typed.as_bytes()).unwrap_or_default();
    let components = bytes
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."));
    let joined = components.collect::<Vec<_>>().join(&b'/');
    let path = EntryPath::parse(&joined);
    path.with_context(|| {
        format!(
            "`{}` is not a path in a snapshot",
            printable(&String::from_utf8_lossy(bytes))
        )
    })
}

/// A save that lacks what a user could expect says so to scripts too.
pub(super) fn exit_of(saved: &RepoSaved) -> Exit {
    // A check said no: what was there before is still what `latest` means.
    if !saved.lost_databases.is_empty() && !saved.is_latest {
        return Exit::Failed;
    }
    let is_unreadable = |one: &LeftOut| one.reason == SkipReason::Unreadable;
    if saved.not_consistent.is_empty() && !saved.left_out_entries.iter().any(is_unreadable) {
        return Exit::Done;
    }
    Exit::Incomplete
}

/// Names the databases that no consistent copy was made of.
pub(super) fn name_not_consistent(context: &CliContext, saved: &RepoSaved) {
    for one in &saved.not_consistent {
        context.output.say(&format!(
            "warning: {}: this SQLite database could not be copied consistently ({}); its files were saved as they are",
            printable(&one.path),
            printable(&one.reason)
        ));
    }
}

/// Names the places that are never saved, because they are ours.
pub(super) fn name_own_places(context: &CliContext, saved: &RepoSaved) {
    for path in &saved.own_places {
        let path = printable(path);
        context.output.say(&format!(
            "note: {path} is a store, or what Stasis keeps of workspaces, and is never saved"
        ));
    }
}

/// What a save did about damaged chunks; nothing where there were none.
pub(super) fn repair_text(saved: &RepoSaved) -> String {
    let chunks = |count: u64| if count == 1 { "chunk" } else { "chunks" };
    let repaired = match saved.chunks_healed {
        0 => String::new(),
        count => format!(", repaired {count} damaged {}", chunks(count)),
    };
    let left = match saved.chunks_damaged {
        0 => String::new(),
        count => format!(
            ", found {count} damaged {} of earlier snapshots that could not be repaired",
            chunks(count)
        ),
    };
    repaired + &left
}

/// Lines about what is not as it is in the snapshot.
pub(super) fn stayed(changes: &InPlaceChanges, way_back: &str) -> String {
    let meanwhile = "changed by others meanwhile, and kept as they left it";
    let left = format!("left as they are, because saves leave them out by now{way_back}");
    let barred = "left as they are, because this user may not read or change them";
    [
        named(meanwhile, &changes.changed_meanwhile),
        named(&left, &changes.left_alone),
        named(barred, &changes.not_permitted),
    ]
    .concat()
}

/// A line about some entries, if there are any.
pub(super) fn named(what: &str, paths: &[String]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let shown: Vec<_> = paths
        .iter()
        .take(SHOWN)
        .map(|path| printable(path))
        .collect();
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("\n{what}: {}{more}", shown.join(", "))
}
