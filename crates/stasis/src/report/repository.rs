//! Hints for what goes wrong with repositories and restores.

use super::{bucket_hint, read_hint};
use stasis_engine::error::{BucketError, ChangeError, ChunkError, Error, PlaceError};
use stasis_engine::model::format::manifest::IndexRefusal;
use stasis_engine::model::id::SnapshotId;

/// What to do now.
pub(super) fn hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Index(error) => return index(error),
        Error::Restore(error) => return place(error),
        Error::Chunk(ChunkError::NoSuchEntry(_)) | Error::NoSuchEntry { .. } => {
            "a path goes from where you stand in the directory, else from its top, as in `src/main.rs`; `stasis ls SNAPSHOT -r` lists what there is"
        }
        Error::Chunk(error) => return chunk(error),
        Error::NoRepo(_) => "make one with `stasis repo init --repo URL`, or check the address",
        Error::RepoExists(_) => "use it as it is, or choose another address",
        Error::NoSuchSnapshot { .. } => "`stasis repo snapshots` lists what there is",
        Error::Ambiguous { .. } => {
            "give more digits of the id; `stasis repo snapshots` lists them in full"
        }
        Error::Damaged { snapshot, .. } => {
            return Some(format!(
                "bring its metadata back from a copy of the repository, or let go of it: {}",
                forget_command(snapshot)
            ));
        }
        Error::DamagedToo { snapshot, .. } => {
            return Some(format!(
                "name both, if neither can be brought back from a copy: add {snapshot}"
            ));
        }
        Error::NotDamaged(_) => {
            "`stasis repo forget` without --damaged forgets it, unless it is the newest of its name"
        }
        Error::UnknownChange(record) => {
            return Some(format!(
                "nothing was cleaned up; ask what became of it with `stasis --store '{}' operation show {}`",
                record.store, record.op_id
            ));
        }
        Error::LostIndex(_) => {
            "`stasis repair SUBJECT` makes `index.json` anew from the snapshots (SUBJECT: the directory, or `dir:NAME`)"
        }
        Error::LostRepo(_) => {
            "`stasis repair SUBJECT` makes `repo.json` anew (SUBJECT: the directory, or `dir:NAME`)"
        }
        Error::LostManifest(_) | Error::LostReferences(_) | Error::WrongTree(_) => {
            "`stasis repo check` shows what is damaged; older snapshots may be whole"
        }
        Error::Shrunk { .. } => {
            "look whether everything is there; if this is meant, save with --accept-shrink"
        }
        Error::UnfitRepo(_) => "use a newer build of stasis",
        _ => return None,
    };
    Some(text.to_owned())
}

/// The command that forgets a damaged snapshot.
fn forget_command(snapshot: &SnapshotId) -> String {
    format!("`stasis repo forget {snapshot} --damaged --confirm`")
}

fn index(error: &ChangeError) -> Option<String> {
    let text = match error {
        ChangeError::Refused(IndexRefusal::Diverged { .. }) => {
            "nothing was lost: their snapshot stands; save again to add yours after it"
        }
        ChangeError::Refused(IndexRefusal::Active(_)) => {
            "save, or restore another one, first; `stasis repo retire NAME` lets a whole name go"
        }
        ChangeError::Refused(IndexRefusal::Pinned(_)) => "unpin it first with `stasis repo unpin`",
        ChangeError::Refused(_) => "`stasis repo snapshots` lists what there is",
        ChangeError::Read(error) => return read_hint(error),
        ChangeError::Write(error) => return bucket_hint(error.kind),
        _ => "try again in a moment",
    };
    Some(text.to_owned())
}

fn chunk(error: &ChunkError) -> Option<String> {
    match error {
        ChunkError::Moving { source, .. } => bucket_hint(source.downcast_ref::<BucketError>()?.kind),
        ChunkError::Absent(_) | ChunkError::Damaged { .. } | ChunkError::List { .. } => Some(
            "`stasis repo check --read-data` names what is hurt; a save from where the bytes still are makes it whole again"
                .to_owned(),
        ),
        _ => None,
    }
}

/// How many entries are named in a hint.
const NAMED: usize = 5;

fn place(error: &PlaceError) -> Option<String> {
    let text = match error {
        PlaceError::NotEmpty(_) => {
            "choose a place where nothing is; `stasis repo restore` can also replace a directory (--replace; the old one is kept) or change it (--in-place)"
        }
        PlaceError::TargetIsMount(_) | PlaceError::CannotExchange { .. } => {
            "restore with --in-place"
        }
        PlaceError::MountInside(_) => "unmount it first",
        PlaceError::HalfDone { .. } => {
            "run the same restore again: it brings this one to its end first"
        }
        PlaceError::Busy(_) => "wait for it to end",
        PlaceError::NotOurs(all) => {
            let all: Vec<String> = all
                .iter()
                .take(NAMED)
                .map(|one| format!("--except {one}"))
                .collect();
            return Some(format!(
                "nothing was changed; do it as that user or as root, or restore everything else with {}",
                all.join(" ")
            ));
        }
        _ => return None,
    };
    Some(text.to_owned())
}
