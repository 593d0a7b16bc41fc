//! Hooks as entries of a JSON file: event → groups with a matcher → commands.

use super::agent::{HookEvent, HookFormat};
use super::edit;
use super::json_text::{Fault, Member, Node, Value};
use super::program::Program;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// The key under which all three agents keep their hooks.
const HOOKS: &str = "hooks";
/// What switches all hooks off, and with which word.
const SWITCHES: [(&[&str], &str); 2] = [
    (&["disableAllHooks"], "true"),
    (&["hooksConfig", "enabled"], "false"),
];

/// How things are with the hooks of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// There are none of ours.
    Absent,
    /// There are some of ours, but not as they would be installed now.
    Outdated,
    /// All are there.
    Installed,
}

#[derive(Serialize)]
struct Group {
    #[serde(skip_serializing_if = "Option::is_none")]
    matcher: Option<&'static str>,
    hooks: [Handler; 1],
}

#[derive(Serialize)]
struct Handler {
    r#type: &'static str,
    command: String,
    timeout: u32,
}

impl HookFormat {
    pub(super) fn state(&self, text: &str, program: &Program) -> Result<State, Fault> {
        let root = Node::read(text, self.dialect)?;
        let ours = ours(&root, program);
        let at = |event: &HookEvent| {
            let here = ours.iter().filter(|one| one.event.key == event.name);
            here.filter(|one| one.matcher() == event.matcher).count()
        };
        let as_now = ours.iter().all(|one| program.would_write(one.command));
        Ok(if ours.is_empty() {
            State::Absent
        } else if as_now && ours.len() == 2 && self.events.iter().all(|event| at(event) == 1) {
            State::Installed
        } else {
            State::Outdated
        })
    }

    /// The text with our hooks in it, and nothing else changed.
    pub(super) fn installed(&self, text: Option<&str>, program: &Program) -> Result<String, Fault> {
        let before = match text {
            Some(text) if self.state(text, program)? == State::Installed => {
                return Ok(text.to_owned());
            }
            Some(text) => self.uninstalled(text, program)?,
            None => None,
        };
        let command = self.command(text, program)?;
        let mut text = before.unwrap_or_default();
        for event in self.events {
            text = self.with(&text, event, &command)?;
        }
        match self.state(&text, program)? {
            State::Installed => Ok(text),
            _ => Err(Fault::at(
                &text,
                0,
                "it is written in a way that we cannot add to",
            )),
        }
    }

    /// The text without our hooks; `None` when nothing that somebody else wrote would be left.
    pub(super) fn uninstalled(
        &self,
        text: &str,
        program: &Program,
    ) -> Result<Option<String>, Fault> {
        let mut text = text.to_owned();
        loop {
            let root = Node::read(&text, self.dialect)?;
            let found = ours(&root, program);
            let Some(one) = found.first() else {
                return Ok(Some(text));
            };
            let Some((container, span)) = one.goes(&text, &root) else {
                return Ok(None);
            };
            text = edit::without(&text, container, &span);
        }
    }

    /// The command to write: arguments that a user added to an earlier one stay.
    fn command(&self, text: Option<&str>, program: &Program) -> Result<String, Fault> {
        let Some(text) = text else {
            return Ok(program.command());
        };
        let root = Node::read(text, self.dialect)?;
        let ours = ours(&root, program);
        let added = ours.iter().map(|one| program.added_to(one.command));
        let added = added.into_iter().find(|added| !added.is_empty());
        Ok(program.command_with(added.unwrap_or_default()))
    }

    /// The commands of ours that a file has, with the event each is for.
    pub(super) fn commands(
        &self,
        text: &str,
        program: &Program,
    ) -> Result<Vec<(HookEvent, String)>, Fault> {
        let root = Node::read(text, self.dialect)?;
        let of_event = |one: &Found| {
            let event = self.events.iter().find(|event| one.event.key == event.name);
            event.map(|event| (*event, one.command.to_owned()))
        };
        Ok(ours(&root, program).iter().filter_map(of_event).collect())
    }

    fn with(&self, text: &str, event: HookEvent, command: &str) -> Result<String, Fault> {
        let group = Group {
            matcher: event.matcher,
            hooks: [Handler {
                r#type: "command",
                command: command.to_owned(),
                timeout: self.timeout,
            }],
        };
        if text.is_empty() {
            let hooks = BTreeMap::from([(event.name, [group])]);
            return Ok(edit::document(&BTreeMap::from([(HOOKS, hooks)])));
        }
        let root = Node::read(text, self.dialect)?;
        must(
            text,
            &root,
            matches!(root.value, Value::Object(_)),
            "an object",
        )?;
        let Some(hooks) = root.get(HOOKS) else {
            let hooks = BTreeMap::from([(event.name, [group])]);
            return Ok(edit::added(text, &root, Some(HOOKS), &hooks));
        };
        let hooks = &hooks.value;
        must(
            text,
            hooks,
            matches!(hooks.value, Value::Object(_)),
            "an object",
        )?;
        let Some(groups) = hooks.get(event.name) else {
            return Ok(edit::added(text, hooks, Some(event.name), &[group]));
        };
        let groups = &groups.value;
        must(
            text,
            groups,
            matches!(groups.value, Value::Array(_)),
            "a list",
        )?;
        Ok(edit::added(text, groups, None, &group))
    }

    /// What in a file switches all hooks off.
    pub(super) fn switched_off(&self, text: &str) -> Option<String> {
        let root = Node::read(text, self.dialect).ok()?;
        let is_off = |(path, off): &(&[&str], &str)| {
            let mut node = Some(&root);
            for key in *path {
                node = node
                    .and_then(|node| node.get(key))
                    .map(|member| &member.value);
            }
            node.and_then(|node| text.get(node.span.clone())) == Some(off)
        };
        let (path, off) = SWITCHES.iter().find(|switch| is_off(switch))?;
        Some(format!("{}: {off}", path.join(".")))
    }
}

fn must(text: &str, node: &Node, holds: bool, what: &str) -> Result<(), Fault> {
    if holds {
        return Ok(());
    }
    let what = format!("hooks are kept in {what}, and this is none");
    Err(Fault::at(text, node.span.start, what))
}

/// A command of ours and everything around it.
struct Found<'a> {
    hooks: &'a Member,
    event: &'a Member,
    group: &'a Node,
    handlers: &'a Node,
    handler: &'a Node,
    command: &'a str,
}

impl<'a> Found<'a> {
    fn matcher(&self) -> Option<&'a str> {
        self.group
            .get("matcher")
            .and_then(|matcher| matcher.value.text())
    }

    /// What goes with it, and out of which container; `None` when that is the whole document.
    fn goes(&self, text: &str, root: &'a Node) -> Option<(&'a Node, Range<usize>)> {
        if self.handlers.elements().len() > 1 {
            return Some((self.handlers, self.handler.span.clone()));
        }
        let steps = [
            (&self.event.value, self.group.span.clone()),
            (&self.hooks.value, self.event.span.clone()),
            (root, self.hooks.span.clone()),
        ];
        // A container that would be empty goes too, if we made it.
        let stays =
            |container: &Node| container.inside().len() > 1 || !edit::is_ours(text, container);
        steps.into_iter().find(|(container, _)| stays(container))
    }
}

fn ours<'a>(root: &'a Node, program: &Program) -> Vec<Found<'a>> {
    let Some(hooks) = root.get(HOOKS) else {
        return Vec::new();
    };
    let Value::Object(events) = &hooks.value.value else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for event in events {
        for group in event.value.elements() {
            let Some(handlers) = group.get(HOOKS).map(|member| &member.value) else {
                continue;
            };
            for handler in handlers.elements() {
                let command = handler.get("command").and_then(|m| m.value.text());
                let Some(command) = command.filter(|command| program.wrote(command)) else {
                    continue;
                };
                found.push(Found {
                    hooks,
                    event,
                    group,
                    handlers,
                    handler,
                    command,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
