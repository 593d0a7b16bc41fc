//! Parameters that several tools take.

use super::super::failure::CallFailure;
use super::super::page::{LONGEST, PageFormat, Paging, SHORTEST};
use schemars::JsonSchema;
use serde::Deserialize;
use stasis_engine::kind::workspace::RunMode;
use stasis_engine::model::invalid::Invalid;
use stasis_engine::model::workspace::{CheckpointName, CheckpointRef};

/// Only show what would be done
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("default" = false))]
pub(super) struct DryRun(bool);

/// Also BLAKE3 digests
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("default" = false))]
pub(super) struct WithDigests(pub(super) bool);

/// Item to begin with; the answer before says which comes next
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("default" = 0))]
pub(super) struct StartIndex(usize);

/// Most characters of the answer: 5000 in text and 20000 in JSON by default; only whole items are shown
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("minimum" = SHORTEST, "maximum" = LONGEST))]
pub(super) struct MaxLength(usize);

/// `plan.digest` of a dry run of the same call; needed when more than 20 files would be deleted
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Confirm(pub(super) String);

/// Path relative to the workspace, as answers write it (`\xNN` for bytes that are no text)
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct EntryText(pub(super) String);

/// Paths that are left as they are, with everything in them
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct ExceptPaths(pub(super) Vec<String>);

pub(super) fn run(dry: Option<DryRun>) -> RunMode {
    match dry {
        Some(DryRun(true)) => RunMode::Dry,
        _ => RunMode::Real,
    }
}

pub(super) fn with_digests(asked: Option<WithDigests>) -> bool {
    asked.is_some_and(|asked| asked.0)
}

pub(super) fn confirmed(digest: Option<Confirm>) -> Option<String> {
    digest.map(|digest| digest.0)
}

pub(super) fn paging(
    format: Option<PageFormat>,
    start: Option<StartIndex>,
    max_length: Option<MaxLength>,
) -> Result<Paging, CallFailure> {
    let (start, max_length) = (start.map(|one| one.0), max_length.map(|one| one.0));
    Paging::new(format, start, max_length).map_err(CallFailure::Params)
}

pub(super) fn name(text: Option<&str>) -> Result<Option<CheckpointName>, CallFailure> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|bad: Invalid| CallFailure::Params(format!("`name` cannot be used: {bad}")))
}

pub(super) fn checkpoint(text: &str) -> Result<CheckpointRef, CallFailure> {
    text.parse().map_err(|bad: Invalid| {
        CallFailure::Params(format!(
            "{bad}; give a checkpoint as `cp-N` or by its name, as snapshots_list shows it"
        ))
    })
}

pub(super) fn optional_checkpoint(
    text: Option<&str>,
) -> Result<Option<CheckpointRef>, CallFailure> {
    text.map(checkpoint).transpose()
}

pub(super) fn undo_number(text: &str) -> Result<u32, CallFailure> {
    let number = text.strip_prefix("u-").and_then(|rest| {
        let number: u32 = rest.parse().ok()?;
        (number.to_string() == rest).then_some(number)
    });
    number.ok_or_else(|| {
        CallFailure::Params(format!(
            "`{text}` is no undo checkpoint; give `u-N` as a revert or restore answered it, or leave it out for the last"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_undo_checkpoint_has_one_spelling() {
        assert_eq!(undo_number("u-4").ok(), Some(4));
        for text in [
            "",
            "4",
            "u-",
            "u-04",
            "u-+4",
            "cp-4",
            "u-4 ",
            "u-99999999999",
        ] {
            assert!(
                matches!(undo_number(text), Err(CallFailure::Params(_))),
                "{text:?}"
            );
        }
    }
}
