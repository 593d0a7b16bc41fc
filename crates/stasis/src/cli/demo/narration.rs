//! The story of a demo, for somebody who never saw it: what happened, what one would type, what came of it.

use crate::cli::byte_size::size;
use crate::cli::color::{Tone, toned};
use crate::cli::output::plural;
use stasis_engine::demo::{
    AccidentFacts, BrowserFacts, CheckpointsFacts, DemoCheck, DemoContainerFacts, DemoPart,
    DemoScene, PostgresFacts, RaceFacts, Racer, RewindFacts, SceneFacts, SessionFacts, ShopFacts,
    SkippedFacts, UndoFacts,
};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Lines with a margin, each painted.
#[derive(Default)]
struct Story(String);

impl Story {
    fn title(mut self, text: &str) -> Self {
        let _ = write!(self.0, "\n{}", toned(text, Tone::Title));
        self
    }

    fn line(mut self, text: &str) -> Self {
        let _ = write!(self.0, "\n  {text}");
        self
    }

    /// Something that somebody types.
    fn command(self, text: &str) -> Self {
        self.line(&toned(&format!("$ {text}"), Tone::Command))
    }

    fn good(self, text: &str) -> Self {
        self.line(&format!("{} {text}", toned("✓", Tone::Good)))
    }

    fn bad(self, text: &str) -> Self {
        self.line(&format!("{} {text}", toned("✗", Tone::Bad)))
    }

    /// What explains the line above.
    fn aside(self, text: &str) -> Self {
        self.line(&format!("  {}", toned(text, Tone::Aside)))
    }
}

/// The first lines.
pub(super) fn opening(directory: &Path) -> String {
    let directory = directory.display();
    let title = toned("Stasis demo: real files and the real engine", Tone::Title);
    let place = format!("in {directory}; nothing of yours is touched");
    format!("{title}\n{}", toned(&place, Tone::Aside))
}

/// Whether a scene only says that something is not shown.
pub(super) fn is_skipped(scene: &DemoScene) -> bool {
    matches!(scene.facts, SceneFacts::Skipped(_))
}

/// What happened in a scene; the first of several that were skipped has their title.
pub(super) fn scene_text(scene: &DemoScene, is_first_skipped: bool) -> String {
    let story = match &scene.facts {
        SceneFacts::Shop(shop) => shop_text(shop),
        SceneFacts::Accident(accident) => accident_text(accident),
        SceneFacts::Rewind(rewind) => rewind_text(rewind),
        SceneFacts::Checkpoints(checkpoints) => checkpoints_text(checkpoints),
        SceneFacts::Race(race) => race_text(race),
        SceneFacts::Undo(undo) => undo_text(undo),
        SceneFacts::Postgres(postgres) => postgres_text(postgres),
        SceneFacts::Browser(browser) => browser_text(browser),
        SceneFacts::Session(session) => session_text(session),
        SceneFacts::Container(container) => container_text(container),
        SceneFacts::Skipped(skipped) => return skipped_text(skipped, is_first_skipped),
        _ => Story::default(),
    };
    scene.failed().fold(story, failed_text).0
}

fn failed_text(story: Story, check: &DemoCheck) -> Story {
    let (expected, found) = (&check.expected, &check.found);
    let claim = format!("{}: expected {expected}, found {found}", check.claim);
    story.bad(&toned(&claim, Tone::Bad))
}

fn shop_text(shop: &ShopFacts) -> Story {
    let (files, orders) = (plural_grouped(shop.files, "file"), grouped(shop.orders));
    let uncommitted = shop.uncommitted.map_or_else(String::new, |count| {
        let verb = if count == 1 { "is" } else { "are" };
        format!("; {} {verb} in no commit", plural_grouped(count, "file"))
    });
    let has = format!(
        "{files}, {orders} orders in SQLite, {}{uncommitted}.",
        size(shop.bytes)
    );
    let made = format!(
        "Everything is in the checkpoint {} after {}.",
        shop.checkpoint,
        time(shop.checkpoint_us)
    );
    Story::default()
        .title("A small shop")
        .line(&has)
        .command("stasis workspace init")
        .good(&made)
}

fn accident_text(accident: &AccidentFacts) -> Story {
    let hook = format!(
        "A hook makes a checkpoint first ({}). Then the agent runs:",
        time(accident.checkpoint_us)
    );
    let (left, before) = (grouped(accident.files_left), grouped(accident.files_before));
    let orders = if accident.has_database {
        ""
    } else {
        ", and no order"
    };
    let wreck = format!("{left} of {before} files are left{orders}.");
    let story = Story::default()
        .title(&format!("An agent is asked: {}", accident.prompt))
        .line(&hook)
        .command(&accident.command)
        .bad(&wreck);
    match accident.in_git {
        None => story,
        Some(count) => story.aside(&format!(
            "Git has {} of them as they were, and never had the database.",
            grouped(count)
        )),
    }
}

fn rewind_text(rewind: &RewindFacts) -> Story {
    let (files, orders) = (plural_grouped(rewind.files, "file"), grouped(rewind.orders));
    let back = format!(
        "{files} and {orders} orders are back after {}.",
        time(rewind.restore_us)
    );
    let checked = format!(
        "Each file was compared by its digest; SQLite's integrity_check: {}.",
        rewind.integrity
    );
    Story::default()
        .title("Back to before the prompt")
        .command("stasis rewind")
        .good(&back)
        .aside(&checked)
}

fn checkpoints_text(facts: &CheckpointsFacts) -> Story {
    let count = grouped(facts.checkpoints);
    let cost = format!(
        "{count} checkpoints, {} each. They take {}; copies would take {}.",
        time(facts.median_us),
        size(facts.added_bytes),
        size(facts.copies_bytes)
    );
    let all = format!(
        "All with the first: {}. {} was written out and compared.",
        size(facts.held_bytes),
        facts.compared
    );
    Story::default()
        .title(&format!(
            "{count} more prompts, with an edit and an order each"
        ))
        .good(&cost)
        .aside(&all)
}

fn race_text(race: &RaceFacts) -> Story {
    let forked = format!(
        "{} after {}. The report of open orders took {}; now:",
        plural(race.racers.len() as u64, "fork"),
        time(race.fork_us),
        nanos(race.report_ns_before)
    );
    let racer = |story: Story, racer: &Racer| {
        let (fork, idea) = (&racer.fork, &racer.idea);
        let line = format!("  {fork:<8} {:>8}  {idea}", nanos(racer.report_ns));
        let is_winner = *fork == race.winner;
        story.line(&toned(
            &line,
            if is_winner { Tone::Good } else { Tone::Aside },
        ))
    };
    let story = Story::default()
        .title("Three agents try to make the shop faster")
        .command("stasis fork --count 3")
        .good(&forked);
    let promoted = format!(
        "The shop is {} after {}, and its report takes {}.",
        race.winner,
        time(race.promote_us),
        nanos(race.report_ns_after)
    );
    race.racers
        .iter()
        .fold(story, racer)
        .command(&format!("stasis fork promote {}", race.winner))
        .good(&promoted)
}

fn undo_text(undo: &UndoFacts) -> Story {
    let undone = format!("Before the promotion again, after {}.", time(undo.undo_us));
    let redone = format!("After the promotion again, after {}.", time(undo.redo_us));
    Story::default()
        .title("Second thoughts, and third ones")
        .command("stasis undo")
        .good(&undone)
        .command("stasis undo")
        .good(&redone)
}

fn postgres_text(postgres: &PostgresFacts) -> Story {
    let orders = grouped(postgres.orders);
    let saved = format!(
        "{orders} orders are saved after {}.",
        time(postgres.save_us)
    );
    let back = format!(
        "{orders} orders are back after {}.",
        time(postgres.restore_us)
    );
    Story::default()
        .title(&format!(
            "An application with a PostgreSQL {} server",
            postgres.version
        ))
        .command("stasis project save")
        .good(&saved)
        .command("psql -c 'drop table orders'")
        .command("stasis project restore latest")
        .good(&back)
}

fn session_text(session: &SessionFacts) -> Story {
    let slept = format!(
        "Nobody used it: saved, and its sandbox ended, in {}.",
        time(session.sleep_us)
    );
    let woken = format!(
        "{} are back on another host after {}.",
        plural_grouped(session.files, "file"),
        time(session.wake_us)
    );
    Story::default()
        .title("A session in a sandbox")
        .command("stasis session reap")
        .good(&slept)
        .command("stasis session wake demo/42")
        .good(&woken)
}

fn container_text(container: &DemoContainerFacts) -> Story {
    let saved = format!(
        "Saved with its volume ({}) in {}; it stood still for {} ms.",
        size(container.bytes),
        time(container.save_us),
        container.frozen_ms
    );
    let back = format!(
        "Its files and its volume are back, and it runs, after {}.",
        time(container.restore_us)
    );
    Story::default()
        .title("A container with a volume")
        .command("stasis container create shop")
        .good(&saved)
        .command("docker exec shop rm -rf /data/orders /data/pictures /version")
        .command("stasis container restore latest shop --mode replace")
        .good(&back)
}

fn browser_text(browser: &BrowserFacts) -> Story {
    let saved = format!(
        "Logged in and saved: {}, {} as {}.",
        plural_grouped(browser.files, "file"),
        size(browser.bytes),
        size(browser.archive_bytes)
    );
    let loaded = format!(
        "Still logged in on another host; loaded in {}.",
        time(browser.load_us)
    );
    Story::default()
        .title(&format!("A browser profile of Chromium {}", browser.major))
        .command("stasis profile run demo/alice -- chromium --user-data-dir={dir}")
        .good(&saved)
        .good(&loaded)
}

fn skipped_text(skipped: &SkippedFacts, is_first: bool) -> String {
    let part = match skipped.part {
        DemoPart::Git => "Git",
        DemoPart::Postgres => "PostgreSQL",
        DemoPart::Browser => "a browser",
        DemoPart::Container => "a container",
        DemoPart::Session => "a session",
    };
    let line = toned(&format!("- {part}: {}", skipped.why), Tone::Aside);
    let story = Story::default();
    if is_first {
        return story.title("Not shown here").line(&line).0;
    }
    format!("  {line}")
}

/// The last lines.
pub(super) fn closing(scenes: &[DemoScene], took: Duration) -> String {
    let claims = scenes.iter().map(|scene| scene.checks.len() as u64).sum();
    let took = time(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    let held = format!(
        "{} held when they were read back; {took} in all.",
        plural(claims, "claim")
    );
    Story::default()
        .title(&held)
        .line("Protect your own project, and go back when you have to:")
        .command("cd your-project && stasis protect")
        .command("stasis rewind")
        .0
}

/// The numbers of a scene in one line, for whoever wants no story: `rewind files=187 orders=1204 …`.
pub(super) fn data(scene: &DemoScene) -> String {
    let value = serde_json::to_value(scene).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    let words = fields.filter_map(|(name, value)| match value {
        serde_json::Value::Number(number) => Some(format!(" {name}={number}")),
        serde_json::Value::Bool(flag) => Some(format!(" {name}={flag}")),
        serde_json::Value::String(text) if name != "scene" => Some(format!(" {name}={text:?}")),
        _ => None,
    });
    let name = value["scene"].as_str().unwrap_or_default().to_owned();
    let failed = scene
        .failed()
        .map(|check| format!(" failed={:?}", check.claim));
    words.chain(failed).fold(name, |line, word| line + &word)
}

/// `1,204`
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn plural_grouped(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(count))
}

/// Microseconds for people.
fn time(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{}.{} ms", micros / 1000, micros % 1000 / 100),
        10_000..1_000_000 => format!("{} ms", micros / 1000),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

/// Nanoseconds for people.
fn nanos(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{} µs", nanos / 1000),
        _ => time(nanos / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!(
            [0, 187, 1204, 1_234_567].map(grouped),
            ["0", "187", "1,204", "1,234,567"]
        );
        assert_eq!(
            [400, 9_900, 240_000, 2_340_000].map(time),
            ["0.4 ms", "9.9 ms", "240 ms", "2.3 s"]
        );
        assert_eq!([12_400, 2_500_000].map(nanos), ["12 µs", "2.5 ms"]);
        assert_eq!(plural_grouped(1, "file"), "1 file");
    }
}
