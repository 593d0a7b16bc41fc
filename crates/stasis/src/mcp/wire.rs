//! What a client may send: the parameters of every tool. What is not here is refused, never dropped.

use serde::Deserialize;

/// How long an answer in words is, unless somebody says.
const TEXT_LENGTH: usize = 5_000;
/// How long an answer in JSON is, unless somebody says.
const JSON_LENGTH: usize = 20_000;
/// The shortest that somebody may ask for.
pub(super) const SHORTEST: usize = 200;
/// The longest answer there is.
pub(super) const LONGEST: usize = 100_000;

/// In which form an answer is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// Lines.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// Which part of an answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Paging {
    pub(super) format: Format,
    pub(super) start: usize,
    pub(super) max_length: usize,
}

impl Paging {
    /// What was asked for, with what is usual for the rest.
    pub(super) fn new(
        format: Option<Format>,
        start: Option<usize>,
        max_length: Option<usize>,
    ) -> Result<Self, String> {
        let format = format.unwrap_or_default();
        let usual = match format {
            Format::Text => TEXT_LENGTH,
            Format::Json => JSON_LENGTH,
        };
        let max_length = max_length.unwrap_or(usual);
        if !(SHORTEST..=LONGEST).contains(&max_length) {
            return Err(format!(
                "`max_length` is {max_length}; give a number from {SHORTEST} to {LONGEST}, and page on with `start_index`"
            ));
        }
        let start = start.unwrap_or_default();
        Ok(Self {
            format,
            start,
            max_length,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    pub(super) name: Option<String>,
    pub(super) dry_run: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    pub(super) format: Option<Format>,
    pub(super) start_index: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) include_changes: Option<bool>,
    pub(super) digests: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    pub(super) format: Option<Format>,
    pub(super) start_index: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) since: Option<String>,
    pub(super) git: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Diff {
    pub(super) path: String,
    pub(super) checkpoint: Option<String>,
    pub(super) digests: Option<bool>,
    pub(super) format: Option<Format>,
    pub(super) start_index: Option<usize>,
    pub(super) max_length: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revert {
    pub(super) path: String,
    pub(super) checkpoint: Option<String>,
    pub(super) dry_run: Option<bool>,
    pub(super) confirm: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    pub(super) checkpoint: String,
    pub(super) except: Option<Vec<String>>,
    pub(super) dry_run: Option<bool>,
    pub(super) confirm: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    pub(super) path: String,
    pub(super) format: Option<Format>,
    pub(super) start_index: Option<usize>,
    pub(super) max_length: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    pub(super) checkpoint: String,
    pub(super) dry_run: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compact {
    pub(super) checkpoints: Vec<String>,
    pub(super) name: Option<String>,
    pub(super) dry_run: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Undo {
    #[serde(rename = "undo")]
    pub(super) which: Option<String>,
    pub(super) except: Option<Vec<String>>,
    pub(super) dry_run: Option<bool>,
    pub(super) confirm: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    pub(super) checkpoint: String,
    pub(super) name: String,
    pub(super) n: Option<u32>,
    pub(super) dry_run: Option<bool>,
}
