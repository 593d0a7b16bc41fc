//! What made somebody take a snapshot of a container.

use crate::display_as_serialized;
use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What made somebody take a snapshot.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SnapshotTrigger {
    /// A user asked for it.
    #[default]
    Manual,
    /// A run of an agent begins.
    RunStart,
    /// A run has ended.
    RunEnd,
    /// An agent is about to act.
    BeforeAction,
    /// An agent has acted.
    AfterAction,
    /// Something failed.
    OnError,
    /// It was time.
    Periodic,
}

display_as_serialized!(SnapshotTrigger);

impl SnapshotTrigger {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Manual,
        Self::RunStart,
        Self::RunEnd,
        Self::BeforeAction,
        Self::AfterAction,
        Self::OnError,
        Self::Periodic,
    ];
}

impl FromStr for SnapshotTrigger {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // Both spellings are met: in documents, and as words of an option.
        let text = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(|one| one.to_string()).join(", ");
            Invalid::new(format!("`{text}` is no trigger; there are {all}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_is_read_as_it_is_written() {
        for trigger in SnapshotTrigger::ALL {
            assert_eq!(trigger.to_string().parse(), Ok(trigger));
        }
        assert_eq!("run-start".parse(), Ok(SnapshotTrigger::RunStart));
        assert!("sometimes".parse::<SnapshotTrigger>().is_err());
    }
}
