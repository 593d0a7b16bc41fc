//! Hints for what goes wrong with projects.

use stasis_engine::address::SESSION_PREFIX;
use stasis_engine::kind::project::ProjectError;

/// What to do now.
#[expect(clippy::too_many_lines, reason = "one hint for each error")]
pub(super) fn hint(error: &ProjectError) -> Option<String> {
    let text = match error {
        ProjectError::NotToml { .. } | ProjectError::Config { .. } => {
            "correct the file; `stasis project init --dry-run` prints one to compare with"
        }
        ProjectError::Plain(_) => {
            "`stasis project init` makes it a project; `stasis save DIR` keeps plain files"
        }
        ProjectError::NoState { path, .. } => {
            return Some(format!(
                "make `{}` and put the state in it: files/ as they are, volumes/NAME for what the file names",
                path.display()
            ));
        }
        ProjectError::InProgress { .. } => "wait until it is done, and try again",
        ProjectError::Sqlite { .. } => {
            "nothing was saved; if a migration or a long transaction is at work, try again when it is over"
        }
        ProjectError::Postgres { .. } | ProjectError::Url { .. } => {
            "nothing was changed; see that the server runs, that the URL is right and that its programs are on the PATH"
        }
        ProjectError::NoVariable { variable, .. } => {
            return Some(format!("set {variable}, or say `url` in stasis.toml"));
        }
        ProjectError::HalfRestored { snapshot, .. } => {
            return Some(format!("do it again: `stasis restore {snapshot}`"));
        }
        ProjectError::Hook(_) => {
            "nothing was saved; correct the hook, or take it out of stasis.toml"
        }
        ProjectError::Start(_) | ProjectError::Stop(_) | ProjectError::Unhealthy(_) => {
            "its log is in `.stasis/` of the state directory; `stasis project status` shows what runs"
        }
        ProjectError::PauseBroken { .. } | ProjectError::Pause(..) => {
            "nothing was saved, and everything runs; a filesystem with reflinks (xfs, btrfs) makes the pause short"
        }
        ProjectError::Integrity { .. } => {
            "nothing was changed; `stasis log` lists older snapshots, `stasis check` proves them"
        }
        ProjectError::NoSnapshot { project, wanted } => {
            return Some(match project.strip_prefix(SESSION_PREFIX) {
                Some(session) if wanted == "latest" => {
                    format!("`stasis session snapshot {session}` makes one")
                }
                Some(_) => format!("`stasis log {project}` lists what there is"),
                None => "`stasis log DIR` lists what there is".to_owned(),
            });
        }
        ProjectError::NoLatest { snapshots, .. } => {
            let newest = snapshots.first()?;
            return Some(format!(
                "name one of them, as in `stasis restore DIR {}`; `stasis log DIR` lists all",
                newest.snapshot_id
            ));
        }
        ProjectError::NoVolume { .. } => {
            "`stasis project show SNAPSHOT` lists the volumes of a snapshot; nothing was changed"
        }
        ProjectError::ServerData { .. } => {
            "let the server keep its data elsewhere: the directory of its volume is only where its dump has its place"
        }
        ProjectError::Mounted(_) => "unmount it, or restore elsewhere with --to DIR",
        ProjectError::NothingInState { .. } => {
            "put its data in there; or remove stasis.toml and run `stasis project init`, which has everything saved where it lies; --accept-shrink saves it empty"
        }
        ProjectError::HidesHistory { .. } => {
            "nothing was written; `stasis project init` without --layout state keeps that history and saves everything where it lies"
        }
        ProjectError::NotDuplicable { .. } => {
            "restore a snapshot elsewhere with `stasis project restore SNAPSHOT --to DIR`, and write a stasis.toml for it"
        }
        _ => return None,
    };
    Some(text.to_owned())
}
