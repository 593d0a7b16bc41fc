//! The turns of agents: which prompt an event belongs to, and which checkpoint holds the tree before each prompt.

use super::agent::{AgentCall, AgentEvent, AgentEventKind, MOST_EVENTS};
use super::metadata::{Occupant, SlotMetadata};
use std::collections::BTreeMap;

/// Numbers a call: a prompt gets the next number, everything else that of the last prompt of its conversation.
pub fn numbered(call: AgentCall, occupants: &[Occupant], at_ms: u64) -> AgentEvent {
    let known = occupants.iter().filter_map(Occupant::known);
    let prompts = known.flat_map(|one| &one.agent_events);
    let prompts = prompts.filter_map(|event| Some((event.prompt()?, event)));
    let turn = match call.kind {
        AgentEventKind::Prompt => {
            let last = prompts.map(|(turn, _)| turn).max();
            Some(last.map_or(1, |last| last.saturating_add(1)))
        }
        AgentEventKind::Command | AgentEventKind::Edit => {
            let own = prompts.filter(|(_, event)| {
                event.call.agent == call.agent && event.call.session == call.session
            });
            own.map(|(turn, _)| turn).max()
        }
    };
    AgentEvent {
        call,
        turn,
        at_ms,
        late_ms: None,
    }
}

/// The prompts that can be gone back to, the last one first, each with the checkpoint that holds the tree as it was before it.
pub fn prompts(occupants: &[Occupant]) -> Vec<(&AgentEvent, &SlotMetadata)> {
    let mut found: BTreeMap<u64, (&AgentEvent, &SlotMetadata)> = BTreeMap::new();
    for one in occupants.iter().filter_map(Occupant::known) {
        for event in &one.agent_events {
            let Some(turn) = event.prompt() else {
                continue;
            };
            let first = found.entry(turn).or_insert((event, one));
            if one.age_key() < first.1.age_key() {
                *first = (event, one);
            }
        }
    }
    found.into_values().rev().collect()
}

impl SlotMetadata {
    /// Adds what an agent was about to do while the tree was what this checkpoint holds; `false` when that is known already.
    ///
    /// The event that it was made for stays the first. Of more than [`MOST_EVENTS`] the oldest that is no prompt is dropped, or
    /// else the oldest prompt: all of them have the same tree.
    pub fn note(&mut self, event: AgentEvent) -> bool {
        let events = &mut self.agent_events;
        if events.last().is_some_and(|last| event.is_repeat_of(last)) {
            return false;
        }
        events.push(event);
        if events.len() > MOST_EVENTS {
            let plain = events.iter().skip(1).position(|one| one.prompt().is_none());
            events.remove(plain.map_or(1, |at| at + 1));
        }
        true
    }

    /// The last prompt that began with this tree, if any did.
    pub fn last_prompt(&self) -> Option<&AgentEvent> {
        let prompts = self
            .agent_events
            .iter()
            .filter(|one| one.prompt().is_some());
        prompts.max_by_key(|one| one.prompt())
    }
}
