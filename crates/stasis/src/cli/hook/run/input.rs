//! What an agent says on standard input when it runs a hook.
//!
//! Claude Code, Codex and Gemini CLI say the same things under the same names, and our plugin for OpenCode does as they do:
//! `cwd`, `session_id`, `hook_event_name`, `prompt`, `tool_name`, `tool_input` with `command` or `file_path`; Codex `turn_id`
//! besides. What is missing, of another type or cut off is not known; everything before it still is.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use stasis_engine::model::workspace::{AgentCall, AgentEventKind, EventText};
use std::path::PathBuf;

/// What agents call the moment before they work on a prompt.
const PROMPTS: [&str; 2] = ["UserPromptSubmit", "BeforeAgent"];
/// What agents call their own tools that change files.
const EDITS: [&str; 10] = [
    "Edit",
    "Write",
    "MultiEdit",
    "NotebookEdit",
    "apply_patch",
    "replace",
    "write_file",
    "edit",
    "write",
    "patch",
];
/// Where in a tool's input the file is named that it changes.
const PATHS: [&str; 4] = ["file_path", "notebook_path", "filePath", "path"];
/// What a patch says before the name of a file.
const PATCHED: [&str; 3] = ["*** Update File: ", "*** Add File: ", "*** Delete File: "];

/// What an agent said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Input {
    cwd: Option<String>,
    session: Option<String>,
    turn: Option<String>,
    event: Option<String>,
    prompt: Option<String>,
    tool: Option<String>,
    command: Option<String>,
    path: Option<String>,
}

impl Input {
    /// Reads it, even if its end is missing.
    pub(super) fn parse(said: &[u8]) -> Self {
        let mut input = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(said);
        // What comes after something that makes no sense, or is cut off, is not known.
        let _ = reader.deserialize_map(Top(&mut input));
        input
    }

    /// The directory that the agent works in.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        let directory = self.cwd.as_ref().map(PathBuf::from);
        directory.filter(|path| path.is_absolute())
    }

    fn kind(&self) -> AgentEventKind {
        let is_prompt = match (&self.event, &self.tool) {
            (Some(event), _) => PROMPTS.contains(&event.as_str()),
            (None, Some(_)) => false,
            (None, None) => self.prompt.is_some(),
        };
        let is_edit = match &self.tool {
            Some(tool) => EDITS.contains(&tool.as_str()),
            None => self.path.is_some() && self.command.is_none(),
        };
        match (is_prompt, is_edit) {
            (true, _) => AgentEventKind::Prompt,
            (false, true) => AgentEventKind::Edit,
            (false, false) => AgentEventKind::Command,
        }
    }

    /// What the agent is about to do.
    pub(super) fn call(&self, agent: &str) -> Option<AgentCall> {
        let line = |text: &Option<String>| EventText::first_line(text.as_deref()?);
        let kind = self.kind();
        let text = match kind {
            AgentEventKind::Prompt => line(&self.prompt),
            AgentEventKind::Command => line(&self.command),
            AgentEventKind::Edit => line(&self.path).or_else(|| self.patched()),
        };
        Some(AgentCall {
            kind,
            agent: EventText::first_line(agent)?,
            session: line(&self.session),
            turn_id: line(&self.turn),
            text,
        })
    }

    /// The first file that a patch names, which is all that a patch says of its place.
    fn patched(&self) -> Option<EventText> {
        let patch = self.command.as_deref()?;
        let named = patch
            .lines()
            .find_map(|line| PATCHED.iter().find_map(|head| line.strip_prefix(head)));
        named.and_then(EventText::first_line)
    }
}

/// The object itself.
struct Top<'a>(&'a mut Input);

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let input = self.0;
        while let Some(key) = map.next_key::<String>()? {
            let place = match key.as_str() {
                "cwd" => &mut input.cwd,
                "session_id" | "sessionID" | "sessionId" => &mut input.session,
                "turn_id" | "prompt_id" => &mut input.turn,
                "hook_event_name" => &mut input.event,
                "prompt" => &mut input.prompt,
                "tool_name" => &mut input.tool,
                "tool_input" => {
                    map.next_value_seed(Tool(input))?;
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Value::String(text) = map.next_value()? {
                *place = Some(text);
            }
        }
        Ok(())
    }
}

/// What a tool is given: an object, or something that says nothing to us.
struct Tool<'a>(&'a mut Input);

impl<'de> DeserializeSeed<'de> for Tool<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tool<'_> {
    type Value = ();

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("what a tool is given")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let input = self.0;
        while let Some(key) = map.next_key::<String>()? {
            let place = match key.as_str() {
                "command" | "input" | "patch" => &mut input.command,
                path if PATHS.contains(&path) => &mut input.path,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            match map.next_value()? {
                Value::String(text) => *place = Some(text),
                // The words of a command.
                Value::Array(words) => {
                    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                    *place = Some(words.join(" "));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.command = Some(text.to_owned());
        Ok(())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}
