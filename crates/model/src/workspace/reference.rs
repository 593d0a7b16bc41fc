//! How users and agents name a checkpoint: `cp-N`, or the name it was given.

use super::Slot;
use crate::invalid::Invalid;
use crate::snapshot_ref::{CHECKPOINT as RESERVED, SnapshotRef};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name of a checkpoint, in bytes.
pub const LONGEST_CHECKPOINT_NAME: usize = 100;
/// What the number of an undo checkpoint stands behind.
const UNDO: &str = "u-";

/// A name that a user gave to a checkpoint.
///
/// *Always true:* it is not empty, can be shown as it is, and is never taken for `cp-N`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckpointName(String);

impl CheckpointName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Characters that take no room, or reorder what stands beside them.
pub(super) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

impl FromStr for CheckpointName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.trim().is_empty() {
            return Err(Invalid::new("the name of a checkpoint is empty"));
        }
        if text.len() > LONGEST_CHECKPOINT_NAME {
            return Err(Invalid::new(format!(
                "the name of a checkpoint has at most {LONGEST_CHECKPOINT_NAME} bytes, this one has {}",
                text.len()
            )));
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| is_invisible(*c)) {
            return Err(Invalid::new(format!(
                "the name of a checkpoint has a control or invisible character at byte {at}"
            )));
        }
        if text.trim() != text {
            return Err(Invalid::new(
                "the name of a checkpoint begins or ends with a blank",
            ));
        }
        let number = text.strip_prefix(UNDO).unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Invalid::new(
                "`u-` and a number is what takes a change back, as in `u-3`; it is no name",
            ));
        }
        let start = text.get(..RESERVED.len());
        if start.is_some_and(|start| start.eq_ignore_ascii_case(RESERVED)) {
            return Err(Invalid::new(
                "`cp-` stands before the number of a slot, as in `cp-3`; a name does not begin with it",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for CheckpointName {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<CheckpointName> for String {
    fn from(name: CheckpointName) -> Self {
        name.0
    }
}

impl fmt::Display for CheckpointName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Which checkpoint is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckpointRef {
    /// `cp-N`
    Slot(Slot),
    /// The one with this name.
    Name(CheckpointName),
}

impl FromStr for CheckpointRef {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match SnapshotRef::from(text) {
            SnapshotRef::Checkpoint(number) => Ok(Self::Slot(Slot::new(number))),
            _ => text.parse().map(Self::Name),
        }
    }
}

impl fmt::Display for CheckpointRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => slot.fmt(out),
            Self::Name(name) => name.fmt(out),
        }
    }
}
