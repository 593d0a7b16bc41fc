//! Hints for what goes wrong with profiles.

use stasis_engine::kind::profile::ProfileError;
use stasis_engine::model::id::Lineage;
use stasis_engine::model::upgrade::UpgradeRefusal;

/// What to do now.
pub(super) fn hint(error: &ProfileError) -> Option<String> {
    let text = match error {
        ProfileError::TooLarge { .. } => {
            "prune it: save without --include-caches, clear site data in the browser, or remove the directories named; \
             `stasis tenant policy set TENANT max_profile_bytes=N` allows more"
        }
        ProfileError::InUse { pid, .. } => {
            return Some(format!(
                "close that browser, or save what it holds: `stasis profile save SUBJECT --dir DIR` closes it first with --pid {pid} \
                 or --stop; if a run that died holds the lease, `stasis profile force-unlock` frees it"
            ));
        }
        ProfileError::NoMajor(subject) => {
            return Some(format!(
                "say which Chrome it is for: {subject}@MAJOR or --chrome-major MAJOR"
            ));
        }
        ProfileError::OtherMajor { found, .. } => {
            return Some(format!("save it as @{found}, or leave the major out"));
        }
        ProfileError::HotNotAllowed(lineage) => {
            return Some(format!(
                "save it cold; what a hot snapshot may lack stands in docs/guides/profile.md, and \
                 `stasis tenant policy set {} allow_hot=true` allows it",
                lineage.tenant
            ));
        }
        ProfileError::HotRefused(_) => {
            "`stasis tenant policy set TENANT accept_hot=true`, or load without --policy cold-only"
        }
        ProfileError::LeaseLost { .. } => {
            "somebody else may own the profile now; nothing was published: start again"
        }
        ProfileError::OnlyOtherMajors { others, why, asked } => {
            return other_majors_hint(*why, others, asked);
        }
        ProfileError::Sha { .. }
        | ProfileError::Integrity { .. }
        | ProfileError::NoArchive(_)
        | ProfileError::Manifest(_) => {
            "`stasis profile list SUBJECT` shows older snapshots, `stasis profile rollback` chooses one; \
             --on-failure fresh starts without it"
        }
        ProfileError::FreezeBudget { .. } => {
            "nothing was captured, and the browser runs on; without --include-caches it is shorter"
        }
        ProfileError::NoSuchBase { .. } => "`stasis profile list SUBJECT` shows the snapshots",
        ProfileError::Version(_) => "say the major yourself: @MAJOR or --chrome-major MAJOR",
        ProfileError::Asked(_) | ProfileError::StateNotSet(_) | ProfileError::BrowserEnded(_) => {
            "flags go to the browser one by one, as in --browser chromium --browser=--no-sandbox, which Chromium needs as root"
        }
        ProfileError::NotAProfile(_) => "check --dir; --force saves it all the same",
        ProfileError::NotReplaced(_) => "give a new directory to --dir, or an empty one",
        ProfileError::NotUnsaved(_) => "`stasis profile list --local` shows what there is",
        ProfileError::NoBrowser => {
            "name the browser with --browser PATH or $STASIS_BROWSER, or say its major: SUBJECT@MAJOR"
        }
        _ => return operator_hint(error),
    };
    Some(text.to_owned())
}

/// How to get at a snapshot of another major.
fn other_majors_hint(why: UpgradeRefusal, others: &[Lineage], asked: &Lineage) -> Option<String> {
    let newest = others.last()?;
    Some(match why {
        UpgradeRefusal::Policy => format!(
            "`stasis tenant policy set {} on_major_upgrade=carry` lets it be carried; or run the Chrome that wrote it",
            asked.tenant
        ),
        UpgradeRefusal::Wish => "leave --no-upgrade out to carry it".to_owned(),
        _ => format!(
            "run the Chrome that wrote it, or start a fresh profile with --on-failure fresh; \
             `stasis profile show {newest}` shows it"
        ),
    })
}

/// Hints for what operators ask of profiles.
fn operator_hint(error: &ProfileError) -> Option<String> {
    let text = match error {
        ProfileError::NoProfile { subject, majors } => match majors.first() {
            Some(major) => return Some(format!("did you mean `{}`?", subject.lineage(*major))),
            None => "`stasis profile list` shows what there is; names are case-sensitive",
        },
        ProfileError::SeveralMajors { subject, majors } => {
            let major = majors.last()?;
            return Some(format!("say which, as in `{}`", subject.lineage(*major)));
        }
        ProfileError::NoSnapshot { subject, .. } | ProfileError::NoActive(subject) => {
            return Some(format!(
                "`stasis profile list {subject}` shows what there is"
            ));
        }
        ProfileError::AmbiguousSha { .. } => "give more digits",
        ProfileError::Gone { .. } => "choose another one; what was deleted does not come back",
        ProfileError::NotWhole { .. } | ProfileError::UnusableManifest(_) => {
            "nothing was changed; choose another snapshot, or restore the object from the bucket's versions"
        }
        ProfileError::OtherTenant { .. } => "an identity stays within its tenant",
        ProfileError::ForkedMajor { .. } => "leave the major out: the new profile has the source's",
        ProfileError::ProfileExists(_) => "choose a name that is not taken",
        _ => return None,
    };
    Some(text.to_owned())
}
