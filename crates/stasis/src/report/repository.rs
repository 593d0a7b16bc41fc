//! Hints for what goes wrong with repositories and restores.

use super::{bucket_hint, read_hint};
use stasis_engine::error::{
    BucketError, ChangeError, ChunkError, Error, PlaceError, RestoreError, SaveError,
};
use stasis_engine::model::manifest::IndexRefusal;

/// What to do now.
pub(super) fn hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Index(error) => return index(error),
        Error::Chunk(error)
        | Error::Save(SaveError::Chunk(error))
        | Error::RestoreTree(RestoreError::Chunk(error)) => {
            return chunk(error);
        }
        Error::Restore(error) => return place(error),
        Error::RestoreTree(RestoreError::NoSuchEntry(_)) | Error::NoSuchEntry { .. } => {
            "look for it with `stasis repo ls SNAPSHOT`"
        }
        Error::Copy(error) => match error.bucket_kind() {
            Some(kind) => return bucket_hint(kind),
            None => {
                "copy into an empty store, or into an earlier copy of the same one; run it again to go on"
            }
        },
        Error::NoRepo(_) => "make one with `stasis repo init --repo URL`, or check the address",
        Error::RepoExists(_) => "use it as it is, or choose another address",
        Error::NoSuchSnapshot { .. } => "`stasis repo snapshots` lists what there is",
        Error::Ambiguous { .. } => {
            "give more digits of the id; `stasis repo snapshots` lists them in full"
        }
        Error::LostManifest(_) | Error::WrongTree(_) => {
            "`stasis repo check` shows what is damaged; older snapshots may be whole"
        }
        Error::Shrunk { .. } => {
            "look whether everything is there; if this is meant, save with --allow-shrink"
        }
        Error::UnfitRepo(_) => "use a newer build of stasis",
        _ => return None,
    };
    Some(text.to_owned())
}

fn index(error: &ChangeError) -> Option<String> {
    let text = match error {
        ChangeError::Refused(IndexRefusal::Diverged { .. }) => {
            "nothing was lost: their snapshot stands; save again to add yours after it"
        }
        ChangeError::Refused(IndexRefusal::Active(_)) => "save something newer first",
        ChangeError::Refused(IndexRefusal::Pinned(_)) => "unpin it first with `stasis repo unpin`",
        ChangeError::Refused(_) => "`stasis repo snapshots` lists what there is",
        ChangeError::Read(error) => return read_hint(error),
        ChangeError::Write(error) => return bucket_hint(error.kind),
        ChangeError::Unknown { .. } => {
            "nothing was cleaned up; `stasis repo snapshots` shows whether the snapshot is there"
        }
        _ => "try again in a moment",
    };
    Some(text.to_owned())
}

fn chunk(error: &ChunkError) -> Option<String> {
    match error {
        ChunkError::Moving { source, .. } => bucket_hint(source.downcast_ref::<BucketError>()?.kind),
        _ => Some(
            "`stasis repo check --read-data` names what is hurt; a save from where the bytes still are makes it whole again"
                .to_owned(),
        ),
    }
}

fn place(error: &PlaceError) -> Option<String> {
    let text = match error {
        PlaceError::NotEmpty(_) => {
            "choose another place, or say --replace (the old tree is kept) or --in-place (the directory stays)"
        }
        PlaceError::TargetIsMount(_) | PlaceError::CannotExchange { .. } => {
            "restore with --in-place"
        }
        PlaceError::MountInside(_) => "unmount it first",
        PlaceError::HalfDone { .. } => {
            "run the same restore again: it brings this one to its end first"
        }
        PlaceError::Busy(_) => "wait for it to end",
        _ => return None,
    };
    Some(text.to_owned())
}
