//! Prompts and commands: what is kept of them, which number each gets, and which of them go.

use super::super::thinning::{GoesBecause, KeptBecause, ThinningVerdict, judge};
use super::*;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Some time at the beginning of an hour.
const NOW: u64 = 500_000 * HOUR;

/// A checkpoint of an agent, made so long ago, for the prompt of that number.
fn made(slot: u32, kind: AgentEventKind, turn: u64, ago: u64) -> SlotMetadata {
    let origin = match kind {
        AgentEventKind::Prompt => CheckpointOrigin::Prompt,
        _ => CheckpointOrigin::Command,
    };
    let at = NOW.saturating_sub(ago);
    let at = Timestamp::from_millis(at);
    let mut metadata = SlotMetadata::new(Slot::new(slot), origin, at, u64::from(slot));
    metadata.agent_events.push(AgentEvent {
        call: call(kind),
        turn: Some(turn),
        at_ms: at.millis(),
        late_ms: None,
    });
    metadata
}

fn command(slot: u32, turn: u64, ago: u64) -> SlotMetadata {
    made(slot, AgentEventKind::Command, turn, ago)
}

fn prompt(slot: u32, turn: u64, ago: u64) -> SlotMetadata {
    made(slot, AgentEventKind::Prompt, turn, ago)
}

fn known(all: Vec<SlotMetadata>) -> Vec<Occupant> {
    all.into_iter().map(Occupant::Known).collect()
}

fn verdicts(all: &[Occupant], now: u64) -> BTreeMap<u32, ThinningVerdict> {
    let judged = judge(all, Timestamp::from_millis(now));
    judged
        .into_iter()
        .map(|(slot, verdict)| (slot.index(), verdict))
        .collect()
}

fn kept(all: &[Occupant], now: u64) -> BTreeSet<u32> {
    let judged = verdicts(all, now).into_iter();
    judged
        .filter(|(_, verdict)| matches!(verdict, ThinningVerdict::Keep(_)))
        .map(|(slot, _)| slot)
        .collect()
}

#[test]
fn the_first_line_that_shows_something_is_kept_and_cut_at_a_character() {
    let line = |text: &str| EventText::first_line(text).map(|line| line.as_str().to_owned());

    assert_eq!(
        line("\n  \t\nfix the \u{1b}[31mtests\u{202e} \nmore").unwrap(),
        "fix the [31mtests"
    );
    assert_eq!(line("one\rtwo").unwrap(), "one");
    assert_eq!(line(" \n\u{200b}\n"), None);
    let long = line(&"ü".repeat(500)).unwrap();
    assert!(
        long.len() <= LONGEST_EVENT_TEXT && long.ends_with('…'),
        "{long}"
    );
    assert_eq!(
        line(&"x".repeat(LONGEST_EVENT_TEXT)).unwrap().len(),
        LONGEST_EVENT_TEXT
    );
    let read: EventText = serde_json::from_str(r#""a\u001b\nb""#).unwrap();
    assert_eq!(read.as_str(), "a");
}

#[test]
fn events_come_back_from_the_document_and_never_make_it_too_large() {
    let mut one = prompt(100, 1, 0);
    let loud = AgentCall {
        agent: EventText::first_line(&"\"".repeat(500)).unwrap(),
        session: EventText::first_line(&"\\".repeat(500)),
        turn_id: EventText::first_line(&"\"".repeat(500)),
        text: EventText::first_line(&"\"".repeat(500)),
        ..call(AgentEventKind::Edit)
    };
    for at_ms in 0..200 {
        one.note(AgentEvent {
            call: loud.clone(),
            turn: Some(u64::MAX),
            at_ms: u64::MAX - at_ms,
            late_ms: Some(u64::MAX),
        });
    }

    let bytes = one.to_json();

    assert!(bytes.len() < LARGEST_METADATA, "{}", bytes.len());
    assert_eq!(one.agent_events.len(), MOST_EVENTS);
    assert_eq!(one.agent_events[0].prompt(), Some(1));
    assert_eq!(SlotMetadata::parse(Slot::new(100), &bytes).unwrap(), one);
}

#[test]
fn of_too_many_events_commands_go_before_prompts() {
    let mut one = command(100, 1, 0);
    let event = |kind, turn, at_ms| AgentEvent {
        call: call(kind),
        turn: Some(turn),
        at_ms,
        late_ms: None,
    };
    for turn in 2..=20 {
        one.note(event(AgentEventKind::Prompt, turn, turn * 10_000));
        one.note(event(AgentEventKind::Command, turn, turn * 10_000 + 1));
    }
    for at_ms in 0..60 {
        one.note(event(AgentEventKind::Command, 20, 900_000 + at_ms));
    }

    let occupants = [Occupant::Known(one)];
    let turns: Vec<u64> = prompts(&occupants)
        .iter()
        .filter_map(|(event, _)| event.prompt())
        .collect();
    assert_eq!(turns, (2..=20).rev().collect::<Vec<_>>());
}

#[test]
fn a_prompt_that_two_hooks_report_is_one_prompt() {
    let mut one = prompt(100, 1, 0);
    let again = |at_ms, text: &str| AgentEvent {
        call: AgentCall {
            text: EventText::first_line(text),
            ..call(AgentEventKind::Prompt)
        },
        turn: Some(2),
        at_ms,
        late_ms: None,
    };

    assert!(!one.note(again(NOW + 300, "do it")));
    assert!(one.note(again(NOW + 400, "do something else")));
    assert!(one.note(again(NOW + 60_000, "do something else")));
    assert_eq!(one.agent_events.len(), 3);
}

#[test]
fn a_prompt_gets_the_next_number_and_a_command_that_of_its_conversation() {
    let mut other = prompt(101, 2, 0);
    other.agent_events[0].call.session = EventText::first_line("s-2");
    let occupants = known(vec![prompt(100, 1, 5), other]);
    let stranger = AgentCall {
        session: None,
        ..call(AgentEventKind::Command)
    };

    assert_eq!(
        numbered(call(AgentEventKind::Prompt), &occupants, 9).turn,
        Some(3)
    );
    assert_eq!(
        numbered(call(AgentEventKind::Command), &occupants, 9).turn,
        Some(1)
    );
    assert_eq!(
        numbered(call(AgentEventKind::Edit), &occupants, 9).turn,
        Some(1)
    );
    assert_eq!(numbered(stranger, &occupants, 9).turn, None);
    assert_eq!(numbered(call(AgentEventKind::Prompt), &[], 9).turn, Some(1));
}

#[test]
fn the_number_of_an_agents_checkpoint_is_never_given_again() {
    let settings = Settings::default();
    let wide = Settings::new(500, 500, 1).unwrap();
    let next = |occupants: &[Occupant], used: Option<u32>| {
        next_agent(&settings, occupants, used.map(Slot::new)).index()
    };

    assert_eq!(next(&[], None), 100);
    assert_eq!(next(&[auto(3, 1), manual(21, "x")], None), 100);
    assert_eq!(next(&known(vec![command(104, 1, 0)]), None), 105);
    assert_eq!(next(&known(vec![command(104, 1, 0)]), Some(131)), 132);
    assert_eq!(next(&[unreadable(140)], Some(131)), 141);
    assert_eq!(next_agent(&wide, &[], None).index(), 1000);
}

#[test]
fn the_ring_and_the_manual_slots_pass_over_agents_checkpoints() {
    let settings = Settings::new(3, 2, 1).unwrap();
    let occupants = known(vec![prompt(1, 1, 0), command(3, 1, 0)]);

    assert_eq!(next_auto(&settings, &occupants), Ok(Slot::new(0)));
    assert_eq!(next_manual(&settings, &occupants, None), Ok(Slot::new(4)));
    assert!(!occupants.iter().any(|one| one.known().unwrap().may_go()));
}

#[test]
fn a_prompt_is_found_with_the_first_checkpoint_that_has_it() {
    let mut reused = command(100, 1, 90);
    reused.note(AgentEvent {
        call: call(AgentEventKind::Prompt),
        turn: Some(2),
        at_ms: NOW,
        late_ms: None,
    });
    let mut copied = prompt(11, 2, 0);
    copied.sequence = 900;
    let occupants = known(vec![copied, reused, prompt(99, 1, 99)]);

    let found: Vec<(u64, u32)> = prompts(&occupants)
        .iter()
        .map(|(event, one)| (event.prompt().unwrap(), one.slot.index()))
        .collect();

    assert_eq!(found, [(2, 100), (1, 99)]);
}

#[test]
fn all_of_the_last_hour_stay_and_then_the_first_of_ten_minutes_and_of_an_hour() {
    // One a minute for nine days, and a prompt before them all.
    let minutes = 9 * 24 * 60_u32;
    let of = |minute: u32| command(101 + minute, 1, u64::from(minutes - minute) * MINUTE);
    let mut all = vec![prompt(100, 1, 10 * DAY), prompt(90, 2, 0)];
    all.extend((0..minutes).map(of));
    let occupants = known(all);

    let judged = verdicts(&occupants, NOW);

    let count = |wanted: ThinningVerdict| judged.values().filter(|one| **one == wanted).count();
    let because = |why| count(ThinningVerdict::Keep(why));
    assert_eq!(because(KeptBecause::LastHour), 59);
    assert_eq!(because(KeptBecause::TenMinutes), 23 * 6 + 1);
    assert_eq!(because(KeptBecause::Hourly), 6 * 24 + 1);
    assert_eq!(because(KeptBecause::LastPrompt), 1);
    assert_eq!(judged[&100], ThinningVerdict::Keep(KeptBecause::Newest));
    assert!(count(ThinningVerdict::Forget(GoesBecause::Old)) > 2 * 24 * 60 - 2);
    // What stays for its ten minutes is the first of them.
    let at = |ago: u64| 101 + minutes - u32::try_from(ago).unwrap();
    assert_eq!(
        judged[&at(120)],
        ThinningVerdict::Keep(KeptBecause::TenMinutes)
    );
    assert_eq!(
        judged[&at(119)],
        ThinningVerdict::Forget(GoesBecause::Thinned)
    );
    assert_eq!(
        judged[&at(60)],
        ThinningVerdict::Keep(KeptBecause::TenMinutes)
    );
    assert_eq!(
        judged[&at(26 * 60)],
        ThinningVerdict::Keep(KeptBecause::Hourly)
    );
    assert_eq!(
        judged[&at(26 * 60 - 10)],
        ThinningVerdict::Forget(GoesBecause::Thinned)
    );
}

#[test]
fn a_prompt_stays_for_a_week_and_longer_while_a_checkpoint_of_it_does() {
    let filler = || (1..=10).map(|at| prompt(200 + at, 50 + u64::from(at), 0));
    let week = 7 * DAY;
    let young = known(
        [prompt(100, 1, week - 1)]
            .into_iter()
            .chain(filler())
            .collect(),
    );
    let old = known([prompt(100, 1, week)].into_iter().chain(filler()).collect());
    let used = [prompt(100, 1, week), command(101, 1, week - HOUR)];
    let used = known(used.into_iter().chain(filler()).collect());
    let mut named = command(12, 1, week);
    named.origin = CheckpointOrigin::Manual;
    let named = known(
        [prompt(100, 1, week), named]
            .into_iter()
            .chain(filler())
            .collect(),
    );
    let mut asked_again = prompt(100, 1, 2 * week);
    asked_again.note(AgentEvent {
        call: call(AgentEventKind::Prompt),
        turn: Some(7),
        at_ms: NOW - DAY,
        late_ms: None,
    });
    let asked_again = known([asked_again].into_iter().chain(filler()).collect());

    assert_eq!(
        verdicts(&young, NOW)[&100],
        ThinningVerdict::Keep(KeptBecause::PromptOfTheWeek)
    );
    assert_eq!(
        verdicts(&old, NOW)[&100],
        ThinningVerdict::Forget(GoesBecause::Old)
    );
    assert_eq!(
        verdicts(&used, NOW)[&100],
        ThinningVerdict::Keep(KeptBecause::PromptInUse)
    );
    assert_eq!(
        verdicts(&named, NOW)[&100],
        ThinningVerdict::Keep(KeptBecause::PromptInUse)
    );
    assert_eq!(
        verdicts(&asked_again, NOW)[&100],
        ThinningVerdict::Keep(KeptBecause::PromptOfTheWeek)
    );
}

#[test]
fn a_clock_that_jumps_empties_no_pool() {
    let prompts = (0..30).map(|at| prompt(100 + at, u64::from(at), u64::from(90 - at) * MINUTE));
    let commands = (30..60).map(|at| command(100 + at, 29, u64::from(90 - at) * MINUTE));
    let all = known(prompts.chain(commands).collect());

    // Back to 1970, and to before the newest: everything stays.
    assert_eq!(kept(&all, 0).len(), 60);
    assert_eq!(kept(&all, NOW - 80 * MINUTE).len(), 60);
    // Ten years ahead: the newest of either kind stay.
    let ahead = kept(&all, NOW + 3650 * DAY);
    assert_eq!(ahead, (120..130).chain(150..160).collect());
}

#[test]
fn more_than_the_most_are_never_kept_and_commands_go_first() {
    let prompts = (0..1500).map(|at| prompt(100 + at, u64::from(at), 0));
    let commands = (1500..3000).map(|at| command(100 + at, 3, 0));
    let all = known(prompts.chain(commands).collect());

    let judged = verdicts(&all, NOW);

    let kept = kept(&all, NOW);
    assert_eq!(kept.len(), 2000);
    assert!((100..1600).all(|slot| kept.contains(&slot)));
    assert_eq!(judged[&1600], ThinningVerdict::Forget(GoesBecause::TooMany));
}

#[test]
fn commands_and_the_timers_go_before_prompts_and_the_last_prompt_and_what_is_restored_never() {
    let mut kept_by_name = command(104, 2, 3);
    kept_by_name.name = Some("mine".parse().unwrap());
    let mut timers = checkpoint(0, CheckpointOrigin::Auto, 102);
    timers.sequence = 102;
    let occupants = known(vec![
        prompt(100, 1, 9),
        command(101, 1, 8),
        timers,
        prompt(103, 2, 6),
        kept_by_name,
        command(105, 2, 4),
    ]);
    let mut undo = checkpoint(101, CheckpointOrigin::Undo, 200);
    undo.undo = Some(UndoNote {
        act: "restore".to_owned(),
        path: None,
        made: Vec::new(),
        from: "cp-100".to_owned(),
        since: None,
        pending: true,
    });
    let order = |new: &SlotMetadata| -> Vec<u32> {
        eviction_order(&occupants, new)
            .iter()
            .map(|slot| slot.index())
            .collect()
    };

    assert_eq!(order(&command(106, 2, 0)), [101, 0, 105, 100]);
    assert_eq!(order(&prompt(106, 3, 0)), [101, 0, 105, 100, 103]);
    assert_eq!(order(&undo), [101, 0, 105]);
}

fn any_checkpoints() -> impl Strategy<Value = Vec<SlotMetadata>> {
    let one = (0_u64..10 * DAY, any::<bool>());
    proptest::collection::vec(one, 0..80).prop_map(|mut all| {
        all.sort_unstable_by_key(|(ago, _)| std::cmp::Reverse(*ago));
        let (mut turn, mut slot) = (0, 99);
        let made = all.into_iter().map(|(ago, is_prompt)| {
            turn += u64::from(is_prompt);
            slot += 1;
            if is_prompt {
                prompt(slot, turn, ago)
            } else {
                command(slot, turn, ago)
            }
        });
        made.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn thinning_keeps_what_it_promises(all in any_checkpoints(), later in 0_u64..3 * DAY) {
        let occupants = known(all.clone());
        let staying = kept(&occupants, NOW);

        for one in &all {
            let (age, slot) = (NOW - one.epoch_millis, one.slot.index());
            prop_assert!(age >= HOUR || staying.contains(&slot), "one of the last hour went");
            let is_prompt = one.last_prompt().is_some();
            prop_assert!(!is_prompt || age >= 7 * DAY || staying.contains(&slot));
            // A prompt outlives its commands.
            let turn = one.agent_events[0].turn;
            let own = all.iter().find(|other| other.last_prompt().is_some_and(|event| event.prompt() == turn));
            let own = own.map(|own| own.slot.index());
            prop_assert!(own.is_none_or(|own| !staying.contains(&slot) || staying.contains(&own)));
            // Of every hour of the week something is left.
            let hour = |other: &&SlotMetadata| other.epoch_millis / HOUR == one.epoch_millis / HOUR;
            let mut same_hour = all.iter().filter(hour).map(|other| other.slot.index());
            prop_assert!(age >= 7 * DAY || same_hour.any(|slot| staying.contains(&slot)));
        }
        let last = all.iter().filter(|one| one.last_prompt().is_some()).max_by_key(|one| one.sequence);
        prop_assert!(last.is_none_or(|last| staying.contains(&last.slot.index())));
        // To thin now and once more later keeps every command that to thin later keeps: none goes by having been looked at. (A
        // prompt older than a week may go an hour sooner: what kept it was thinned when another one of its hour was still there.)
        let rest = all.iter().filter(|one| staying.contains(&one.slot.index())).cloned();
        let twice = kept(&known(rest.collect()), NOW + later);
        let once = kept(&occupants, NOW + later);
        let commands = all.iter().filter(|one| one.last_prompt().is_none()).map(|one| one.slot.index());
        for slot in commands.filter(|slot| once.contains(slot) && staying.contains(slot)) {
            prop_assert!(twice.contains(&slot), "{slot} went");
        }
    }
}
