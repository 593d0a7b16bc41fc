//! What a container does.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// What a container does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContainerStatus {
    /// It was never started.
    Created,
    /// It runs.
    Running,
    /// It stands still.
    Paused,
    /// It ran, and ended.
    Exited,
    /// Something else, by the engine's name: `restarting`, `removing`, `dead`.
    Other(String),
}

impl ContainerStatus {
    /// The state that the engine calls so.
    pub fn of(name: &str) -> Self {
        match name {
            "created" => Self::Created,
            "running" => Self::Running,
            "paused" => Self::Paused,
            "exited" => Self::Exited,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Whether its programs are there, running or held still.
    pub fn is_alive(&self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// The name of a state in which a container cannot be captured; nothing if it can.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Other(name) => Some(name),
            _ => None,
        }
    }
}

impl Display for ContainerStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Exited => "exited",
            Self::Other(name) => name,
        })
    }
}
