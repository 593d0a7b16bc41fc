//! What a coding agent was about to do when a checkpoint was asked for.
//!
//! Every event is kept with the checkpoint that holds the tree as it was at that moment: the checkpoint that was made for it, or,
//! where nothing had changed, one that was there already. So a prompt is always found together with the tree it began with, and
//! nothing but that checkpoint's own `metadata.json` has to be whole for it.

use super::reference::is_invisible;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest text kept of a prompt, a command or an id, in bytes.
pub const LONGEST_EVENT_TEXT: usize = 160;
/// The most events kept with one checkpoint.
pub const MOST_EVENTS: usize = 40;
/// The same prompt again within this time, on the same tree, is the same prompt: two hooks of one agent reported it.
const REPEAT_MILLIS: u64 = 5_000;

/// What an agent was about to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AgentEventKind {
    /// Work on what the user typed.
    Prompt,
    /// Run a shell command.
    Command,
    /// Change files with a tool of its own.
    Edit,
}

crate::display_as_serialized!(AgentEventKind);

/// One line of text from an agent.
///
/// *Always true:* it is not empty, has at most [`LONGEST_EVENT_TEXT`] bytes, and no control or invisible character.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct EventText(String);

impl EventText {
    /// The first line that has something to show, cut to its limit; `None` when there is none.
    pub fn first_line(text: &str) -> Option<Self> {
        let visible = |line: &str| {
            let kept: String = line.chars().filter(|c| !is_invisible(*c)).collect();
            kept.trim().to_owned()
        };
        let mut lines = text.split(['\n', '\r']).map(visible);
        let line = lines.find(|line| !line.is_empty())?;
        if line.len() <= LONGEST_EVENT_TEXT {
            return Some(Self(line));
        }
        let ellipsis = '…';
        let end = line.floor_char_boundary(LONGEST_EVENT_TEXT - ellipsis.len_utf8());
        let mut cut = line[..end].trim_end().to_owned();
        cut.push(ellipsis);
        Some(Self(cut))
    }

    /// The line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventText {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::first_line(&text).ok_or_else(|| serde::de::Error::custom("the text is empty"))
    }
}

/// Who is about to do something, and what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentCall {
    /// What it is.
    pub kind: AgentEventKind,
    /// The agent: `claude-code`.
    pub agent: EventText,
    /// The agent's own id of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<EventText>,
    /// The agent's own id of the prompt that this belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<EventText>,
    /// The first line of the prompt or the command, or the path of an edit; `None` when it is not to be kept, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<EventText>,
}

/// A call as it is kept with a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentEvent {
    /// Who, and what.
    #[serde(flatten)]
    pub call: AgentCall,
    /// The number of the prompt, counted in this workspace; of a command or an edit, that of the prompt it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How long after that the checkpoint was complete, if the agent did not wait for it: what it did meanwhile may be in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
}

impl AgentEvent {
    /// The number of the prompt, if this is one.
    pub fn prompt(&self) -> Option<u64> {
        self.turn
            .filter(|_| self.call.kind == AgentEventKind::Prompt)
    }

    /// Whether both are one prompt that was reported twice.
    pub(super) fn is_repeat_of(&self, other: &Self) -> bool {
        let is_near = self.at_ms.abs_diff(other.at_ms) <= REPEAT_MILLIS;
        let is_same_turn = self.call.turn_id.is_some() || is_near;
        self.call == other.call && self.call.kind == AgentEventKind::Prompt && is_same_turn
    }
}
