//! Damage as people read it, and the commands against it: the same for `check`, `repair` and `list`.

use super::output::{plural, printable};
use stasis_engine::address::{SubjectAddress, shell_word};
use stasis_engine::check::{Remedy, RepoDamage};
use stasis_engine::model::id::SnapshotId;
use stasis_engine::subjects::SubjectError;
use std::collections::BTreeSet;

/// How many hurt files are shown to people for one damaged chunk.
const SHOWN: usize = 10;
/// For how many subjects the command is spelled out, and with how many snapshots.
const NAMED: usize = 3;

/// Something that is wrong, as far as it matters for what to do now.
#[derive(Clone, Copy)]
pub(super) struct Ailment<'a> {
    remedy: Remedy,
    subject: Option<&'a SubjectAddress>,
    snapshots: &'a [SnapshotId],
}

impl<'a> From<&'a RepoDamage> for Ailment<'a> {
    fn from(damage: &'a RepoDamage) -> Self {
        Self {
            remedy: damage.remedy,
            subject: damage.address.as_ref(),
            snapshots: &damage.snapshots,
        }
    }
}

impl<'a> From<&'a SubjectError> for Ailment<'a> {
    fn from(error: &'a SubjectError) -> Self {
        Self {
            remedy: error.remedy,
            subject: Some(&error.address),
            snapshots: &[],
        }
    }
}

/// Where the commands are typed.
pub(super) struct DamageHints {
    /// The store, if it is neither the usual one nor given on the command line.
    pub(super) store: Option<String>,
    /// Whether damaged chunks are entered in the quarantine.
    pub(super) has_marked: bool,
}

impl DamageHints {
    /// What to do now, a line each.
    pub(super) fn against<'a>(&self, all: impl Iterator<Item = Ailment<'a>>) -> Vec<String> {
        let lines = self.lines(&all.collect::<Vec<_>>());
        let hint = |line: String| format!("hint: {}", printable(&line));
        lines.into_iter().map(hint).collect()
    }

    fn lines(&self, all: &[Ailment<'_>]) -> Vec<String> {
        let remedies: BTreeSet<Remedy> = all.iter().map(|one| one.remedy).collect();
        let mut lines = Vec::new();
        for remedy in remedies {
            let ailing = all.iter().filter(|one| one.remedy == remedy);
            let is_of_one = matches!(
                remedy,
                Remedy::Repair | Remedy::AcceptRollback | Remedy::StrayKey
            );
            if !is_of_one {
                let snapshots: BTreeSet<_> = ailing.flat_map(|one| one.snapshots).collect();
                lines.push(self.for_all(remedy, &snapshots));
                continue;
            }
            let subjects: BTreeSet<_> = ailing.filter_map(|one| one.subject).collect();
            let named = subjects.iter().take(NAMED);
            lines.extend(named.map(|subject| self.for_one(remedy, subject)));
            let more = subjects.len().saturating_sub(NAMED) as u64;
            if more > 0 {
                let subjects = plural(more, "more subject");
                lines.push(format!("the same for {subjects}; --json names all of them"));
            }
        }
        lines
    }

    fn store(&self) -> String {
        let store = self.store.as_deref();
        let option = store.map(|store| format!(" --store {}", shell_word(store)));
        option.unwrap_or_default()
    }

    fn for_one(&self, remedy: Remedy, subject: &SubjectAddress) -> String {
        let repair = format!("stasis{} repair {subject}", self.store());
        match remedy {
            Remedy::Repair => format!(
                "`{repair}` shows what it makes anew from the snapshots, and does it with --confirm"
            ),
            Remedy::StrayKey => format!(
                "if nothing was ever encrypted here, a first save with a key was interrupted: then `key.json` encrypts nothing, and may be \
                 removed; hosts that have seen it, as this one has now, go on after `{repair} --accept-rollback`. If something was, use \
                 nothing of what is here now, and bring `repo.json` back from a copy of the store"
            ),
            _ => format!(
                "`{repair} --accept-rollback` goes on from what is there, if that is meant: if the store was restored from a backup, \
                 where what was saved since then is not in it, or if a key was removed that encrypted nothing"
            ),
        }
    }

    fn for_all(&self, remedy: Remedy, snapshots: &BTreeSet<&SnapshotId>) -> String {
        let text = match remedy {
            Remedy::SaveAgain if self.has_marked => {
                "damaged chunks are marked: save again from where their bytes still are, which repairs them; then check again"
            }
            Remedy::SaveAgain => {
                "save again from where the bytes of damaged chunks still are, which repairs them; then check again"
            }
            Remedy::Forget => {
                let ids: Vec<String> = snapshots
                    .iter()
                    .take(NAMED)
                    .map(ToString::to_string)
                    .collect();
                let more = match snapshots.len().saturating_sub(NAMED) as u64 {
                    0 => String::new(),
                    more => format!(
                        ", and so can {}; --json names all of them",
                        plural(more, "more snapshot")
                    ),
                };
                return format!(
                    "bring metadata and lists back from a copy of the store; what is lost for good can be forgotten with `stasis{} repo \
                     forget {} --damaged`{more}",
                    self.store(),
                    ids.join(" ")
                );
            }
            Remedy::OtherBuild => "use the version of Stasis that wrote it",
            _ => "bring back from a copy of the store what nothing in this one tells",
        };
        text.to_owned()
    }
}

/// Where something lies, before what is said of it.
pub(super) fn at(root: &str) -> String {
    if root.is_empty() {
        String::new()
    } else {
        format!("{}: ", printable(root))
    }
}

/// What is wrong, and what it hurts.
pub(super) fn text(damage: &RepoDamage) -> String {
    let files = damage
        .files
        .iter()
        .take(SHOWN)
        .map(|file| format!("\n    {file}"));
    let more = damage.files.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!("\n    and {more} more")
    } else {
        String::new()
    };
    let snapshots: Vec<String> = damage.snapshots.iter().map(ToString::to_string).collect();
    let hurt = match snapshots.len() {
        0 => String::new(),
        _ => format!("\n  needed by {}", snapshots.join(", ")),
    };
    format!(
        "{}{}: {}{hurt}{}{more}",
        at(&damage.root),
        damage.what,
        printable(&damage.why),
        files.collect::<String>()
    )
}
