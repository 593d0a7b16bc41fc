use super::*;
use crate::invalid::Invalid;
use crate::time::Timestamp;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

mod agents;

fn checkpoint(slot: u32, origin: CheckpointOrigin, sequence: u64) -> SlotMetadata {
    SlotMetadata::new(
        Slot::new(slot),
        origin,
        Timestamp::from_millis(5_000 + sequence),
        sequence,
    )
}

fn auto(slot: u32, sequence: u64) -> Occupant {
    Occupant::Known(checkpoint(slot, CheckpointOrigin::Auto, sequence))
}

fn manual(slot: u32, name: &str) -> Occupant {
    Occupant::Known(SlotMetadata {
        name: Some(name.parse().unwrap()),
        ..checkpoint(slot, CheckpointOrigin::Manual, 1)
    })
}

fn call(kind: AgentEventKind) -> AgentCall {
    AgentCall {
        kind,
        agent: EventText::first_line("claude-code").unwrap(),
        session: EventText::first_line("s-1"),
        turn_id: None,
        text: EventText::first_line("do it"),
    }
}

fn unreadable(slot: u32) -> Occupant {
    let (slot, why) = (Slot::new(slot), "torn".to_owned());
    Occupant::Unreadable { slot, why }
}

#[test]
fn what_is_not_said_is_as_in_the_contract() {
    let settings: Settings = serde_json::from_str("{}").unwrap();

    assert_eq!(settings, Settings::default());
    let Settings { .. } = settings;
    let said = (
        settings.auto_max(),
        settings.manual_max(),
        settings.auto_interval(),
    );
    assert_eq!(said, (10, 12, 300));
    assert_eq!(settings.pool_of(Slot::new(9)), Some(CheckpointOrigin::Auto));
    assert_eq!(
        settings.pool_of(Slot::new(10)),
        Some(CheckpointOrigin::Manual)
    );
    assert_eq!(
        settings.pool_of(Slot::new(21)),
        Some(CheckpointOrigin::Manual)
    );
    assert_eq!(settings.pool_of(Slot::new(22)), None);
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let refused = |text: &str| {
        serde_json::from_str::<Settings>(text)
            .unwrap_err()
            .to_string()
    };

    assert!(refused(r#"{"auto_max": 0}"#).contains("`auto_max` is 0; it must be from 1 to 1000"));
    assert!(refused(r#"{"manual_max": 1001}"#).contains("`manual_max` is 1001"));
    assert!(refused(r#"{"auto_interval": 0}"#).contains("`auto_interval` is 0"));
    assert!(refused(r#"{"auto_maximum": 3}"#).contains("unknown field"));
    assert!(refused(r#"{"auto_max": -1}"#).contains("invalid value"));
}

#[test]
fn a_checkpoint_is_named_by_its_slot_or_by_its_name_and_never_both() {
    let read = |text: &str| text.parse::<CheckpointRef>();

    assert_eq!(read("cp-0"), Ok(CheckpointRef::Slot(Slot::new(0))));
    assert_eq!(read("cp-21").unwrap().to_string(), "cp-21");
    let name = read("before the merge").unwrap();
    assert_eq!(name.to_string(), "before the merge");
    for reserved in [
        "cp-",
        "cp-01",
        "cp-+1",
        "cp--1",
        "CP-1",
        "cp-x",
        "cp-4294967296",
    ] {
        assert_eq!(
            read(reserved),
            Err(Invalid::new(
                "`cp-` stands before the number of a slot, as in `cp-3`; a name does not begin with it"
            )),
            "{reserved}"
        );
    }
}

#[test]
fn a_name_that_would_not_be_seen_as_it_is_is_refused() {
    let refused = |text: &str| text.parse::<CheckpointName>().unwrap_err().to_string();
    let empty = "the name of a checkpoint is empty";
    let invisible = |at: usize| {
        format!("the name of a checkpoint has a control or invisible character at byte {at}")
    };

    assert_eq!(refused(""), empty);
    assert_eq!(refused(" \t"), empty);
    assert_eq!(refused("a\nb"), invisible(1));
    assert_eq!(refused("ab\u{202e}"), invisible(2));
    assert_eq!(refused("\u{1b}[31m"), invisible(0));
    assert_eq!(
        refused(" a"),
        "the name of a checkpoint begins or ends with a blank"
    );
    assert_eq!(
        refused(&"x".repeat(101)),
        "the name of a checkpoint has at most 100 bytes, this one has 101"
    );
    assert!("x".repeat(100).parse::<CheckpointName>().is_ok());
    assert!("vör 日本 ✓".parse::<CheckpointName>().is_ok());
}

#[test]
fn the_document_has_the_seven_fields_of_the_contract() {
    let metadata = SlotMetadata {
        name: Some("first".parse().unwrap()),
        ..checkpoint(10, CheckpointOrigin::Manual, 3)
    };

    let document: serde_json::Value = serde_json::from_slice(&metadata.to_json()).unwrap();

    let expected = serde_json::json!({
        "slot": 10, "timestamp": "1970-01-01T00:00:05.003Z", "epoch_secs": 5, "epoch_millis": 5003,
        "origin": "manual", "name": "first", "hash": null,
        "sequence": 3, "complete": true, "files_count": 0, "bytes": 0, "bytes_at_most": null,
        "form": "clone",
    });
    assert_eq!(document, expected);
    let read = SlotMetadata::parse(Slot::new(10), &metadata.to_json()).unwrap();
    assert_eq!(read, metadata);
}

#[test]
fn a_document_with_only_the_fields_of_the_contract_is_read() {
    let document =
        br#"{"slot": 2, "timestamp": "2026-01-01T00:00:00Z", "epoch_secs": 7, "epoch_millis": 7001,
        "origin": "auto", "name": null, "hash": null, "theirs": [1]}"#;

    let read = SlotMetadata::parse(Slot::new(2), document).unwrap();

    assert!(read.may_go() && read.complete);
}

#[test]
fn a_document_that_is_not_that_of_its_slot_is_refused() {
    let bytes = checkpoint(3, CheckpointOrigin::Auto, 1).to_json();
    let torn = &bytes[..bytes.len() / 2];
    let times = String::from_utf8(bytes.clone()).unwrap();
    let times = times.replace("\"epoch_secs\": 5", "\"epoch_secs\": 6");
    let refused = |slot, bytes: &[u8]| {
        let refused = SlotMetadata::parse(Slot::new(slot), bytes);
        refused.unwrap_err().to_string()
    };
    let unreadable = "the metadata of cp-3 is not what such a document says";

    assert_eq!(
        refused(4, &bytes),
        "the metadata of cp-4 says that it is that of cp-3"
    );
    assert_eq!(refused(3, torn), unreadable);
    assert_eq!(refused(3, b""), unreadable);
    assert_eq!(
        refused(3, times.as_bytes()),
        "the metadata of cp-3 says two different times"
    );
    let large = vec![b' '; LARGEST_METADATA + 1];
    assert!(refused(3, &large).ends_with("are never read"));
}

#[test]
fn the_ring_goes_on_after_the_newest_whatever_the_clock_says() {
    let settings = Settings::new(3, 1, 1).unwrap();
    let Occupant::Known(mut newest) = auto(1, 9) else {
        unreachable!()
    };
    newest.epoch_millis = 0;
    let occupants = [auto(0, 8), Occupant::Known(newest), auto(2, 7)];

    assert_eq!(next_auto(&settings, &[]), Ok(Slot::new(0)));
    assert_eq!(next_auto(&settings, &occupants), Ok(Slot::new(2)));
    assert_eq!(next_auto(&settings, &[auto(2, 4)]), Ok(Slot::new(0)));
    assert_eq!(next_sequence(&occupants), 10);
}

#[test]
fn the_ring_passes_over_what_is_named_manual_or_unreadable() {
    let settings = Settings::new(4, 2, 1).unwrap();
    let kept = || [auto(0, 5), manual(1, "kept"), unreadable(2)];
    let blocked = [
        manual(0, "a"),
        manual(1, "b"),
        unreadable(2),
        manual(3, "c"),
    ];

    assert_eq!(next_auto(&settings, &kept()), Ok(Slot::new(3)));
    let all = next_auto(&settings, &blocked).unwrap_err();
    assert_eq!(all, NoSlot::AutoBlocked { max: 4 });
}

#[test]
fn a_full_pool_says_how_many_there_may_be() {
    let settings = Settings::new(2, 2, 1).unwrap();
    let name: CheckpointName = "kept".parse().unwrap();
    let occupants = [manual(2, "kept"), unreadable(3)];

    let full = next_manual(&settings, &occupants, None).unwrap_err();
    let taken = next_manual(&settings, &occupants[..1], Some(&name)).unwrap_err();
    let free = next_manual(&settings, &[unreadable(2)], Some(&name));

    let words = "all 2 manual checkpoints are taken; delete one first";
    assert_eq!(full.to_string(), words);
    let slot = Slot::new(2);
    assert_eq!(taken, NoSlot::NameTaken { name, slot });
    assert_eq!(free, Ok(Slot::new(3)));
}

#[test]
fn of_two_under_one_name_the_newest_is_meant() {
    let age = |mut one: Occupant, sequence: u64| {
        if let Occupant::Known(known) = &mut one {
            known.sequence = sequence;
        }
        one
    };
    let name: CheckpointName = "kept".parse().unwrap();
    let which = CheckpointRef::Name(name.clone());
    for (first, second, meant) in [(1, 2, 11), (2, 1, 10)] {
        let occupants = [
            age(manual(10, "kept"), first),
            age(manual(11, "kept"), second),
        ];

        assert_eq!(named(&occupants, &name).unwrap().slot, Slot::new(meant));
        assert_eq!(find(&occupants, &which).unwrap().slot(), Slot::new(meant));
    }
}

#[test]
fn the_oldest_automatic_ones_go_first_and_nothing_else_goes() {
    let occupants = [
        auto(0, 4),
        auto(1, 2),
        manual(5, "kept"),
        unreadable(6),
        auto(2, 3),
    ];
    let held = |gone: &[Slot]| Ok::<u64, OverBudget>(100 - 10 * gone.len() as u64);
    let order = eviction_order(&occupants, &checkpoint(2, CheckpointOrigin::Auto, 5));

    let gone = Budget::of_bytes(85).make_room(&order, held);
    let refused = Budget::of_bytes(70).make_room(&order, held);

    assert_eq!(gone, Ok(vec![Slot::new(1), Slot::new(0)]));
    let (needed, budget) = (80, 70);
    assert_eq!(refused, Err(OverBudget { needed, budget }));
    assert_eq!(Budget::for_disk(1 << 50).bytes(), 10_000_000_000);
    assert_eq!(Budget::for_disk(1_000).bytes(), 100);
}

/// A workspace whose blocks are numbers, and checkpoints that hold some of them.
#[derive(Default)]
struct World {
    live: BTreeSet<u16>,
    slots: BTreeMap<Slot, (SlotMetadata, BTreeSet<u16>)>,
}

impl World {
    /// The last prompt whose tree can be gone back to.
    fn last_prompt(&self) -> Option<u64> {
        let occupants = self.occupants();
        let prompts = prompts(&occupants);
        prompts.first().and_then(|(event, _)| event.prompt())
    }

    fn occupants(&self) -> Vec<Occupant> {
        let known = self.slots.values().map(|(known, _)| known.clone());
        known.map(Occupant::Known).collect()
    }

    fn held(&self, without: &[Slot], more: &BTreeSet<u16>) -> u64 {
        let stays = self
            .slots
            .iter()
            .filter(|(slot, _)| !without.contains(slot));
        let mut blocks = more.clone();
        blocks.extend(stays.flat_map(|(_, (_, blocks))| blocks));
        blocks.len() as u64
    }

    /// As the pool does it: choose a slot, make room, let the oldest go, put it in.
    fn create(&mut self, settings: &Settings, budget: Budget, origin: CheckpointOrigin) -> bool {
        let occupants = self.occupants();
        let slot = match origin {
            CheckpointOrigin::Auto => next_auto(settings, &occupants),
            CheckpointOrigin::Manual => next_manual(settings, &occupants, None),
            _ => Ok(next_agent(settings, &occupants, None)),
        };
        let Ok(slot) = slot else {
            return false;
        };
        let mut metadata = checkpoint(slot.index(), origin, next_sequence(&occupants));
        let kind = match origin {
            CheckpointOrigin::Prompt => Some(AgentEventKind::Prompt),
            CheckpointOrigin::Command => Some(AgentEventKind::Command),
            _ => None,
        };
        if let Some(kind) = kind {
            metadata.note(numbered(call(kind), &occupants, metadata.epoch_millis));
        }
        let order = eviction_order(&occupants, &metadata);
        let gone = budget.make_room(&order, |gone| {
            let without = [gone, &[slot]].concat();
            Ok::<u64, OverBudget>(self.held(&without, &self.live))
        });
        let Ok(gone) = gone else {
            return false;
        };
        self.slots.retain(|slot, _| !gone.contains(slot));
        let before = self.slots.insert(slot, (metadata, self.live.clone()));
        assert!(before.is_none_or(|(before, _)| before.may_go()));
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn ten_thousand_checkpoints_never_pass_the_budget(
        steps in proptest::collection::vec((0_u8..12, 0_u16..300, 0_u32..9), 160),
        budget in 40_u64..200,
    ) {
        let settings = Settings::new(5, 4, 1).unwrap();
        let (mut world, budget) = (World::default(), Budget::of_bytes(budget));
        let mut last = None;
        for (what, block, slot) in steps {
            let newest = world.slots.values().map(|(one, _)| one.sequence).max();
            match what {
                0..5 => world.live.extend(block..block + 12),
                5 => world.live.retain(|one| *one / 60 != block / 60),
                6 => drop(world.slots.remove(&Slot::new(slot))),
                7 => drop(world.create(&settings, budget, CheckpointOrigin::Manual)),
                8 => drop(world.create(&settings, budget, CheckpointOrigin::Auto)),
                9 => drop(world.create(&settings, budget, CheckpointOrigin::Prompt)),
                _ => drop(world.create(&settings, budget, CheckpointOrigin::Command)),
            }
            let prompt = world.last_prompt();
            prop_assert!(prompt == last || what == 9 && prompt > last, "the last prompt went");
            last = prompt;
            prop_assert!(world.held(&[], &BTreeSet::new()) <= budget.bytes());
            let kept = world.slots.values().any(|(one, _)| Some(one.sequence) == newest);
            // Only what was asked for, or a budget, takes the newest one away.
            prop_assert!(kept || newest.is_none() || what >= 6);
        }
    }
}
