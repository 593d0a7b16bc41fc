//! Hints for what operators ask of profiles.

use stasis_engine::kind::profile::OperatorError;

/// What to do now.
pub(super) fn hint(error: &OperatorError) -> Option<String> {
    let text = match error {
        OperatorError::NoProfile { subject, majors } => match majors.first() {
            Some(major) => return Some(format!("did you mean `{}`?", subject.lineage(*major))),
            None => "`stasis profile list` shows what there is; names are case-sensitive",
        },
        OperatorError::SeveralMajors { subject, majors } => {
            let major = majors.last()?;
            return Some(format!("say which, as in `{}`", subject.lineage(*major)));
        }
        OperatorError::NoSnapshot { subject, .. } | OperatorError::NoActive(subject) => {
            return Some(format!(
                "`stasis profile list {subject}` shows what there is"
            ));
        }
        OperatorError::AmbiguousSha { .. } => "give more digits",
        OperatorError::Gone { .. } => "choose another one; what was deleted does not come back",
        OperatorError::NotWhole { .. } | OperatorError::Manifest(_) => {
            "nothing was changed; choose another snapshot, or restore the object from the bucket's versions"
        }
        OperatorError::OtherTenant { .. } => "an identity stays within its tenant",
        OperatorError::OtherMajor { .. } => "leave the major out: the new profile has the source's",
        OperatorError::ProfileExists(_) => "choose a name that is not taken",
        OperatorError::Encrypted { .. } => {
            "load it with the tenant's key, and save it as the new profile"
        }
        _ => return None,
    };
    Some(text.to_owned())
}
