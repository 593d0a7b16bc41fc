//! Prompts and commands of agents have checkpoints of their own, and `stasis rewind` goes back to before a prompt.

use crate::session::{Said, said};
use crate::workspace::{Tree, text};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

/// Runs a hook as an agent does: what it is about on standard input.
pub(crate) fn hook_with(tree: &Tree, agent: &str, more: &[&str], about: &Value) -> Said {
    let all = [&["hook", "run", agent], more].concat();
    let mut command = tree.session.command(&all);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(about.to_string().as_bytes()).unwrap();
    drop(stdin);
    let said = said(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    said
}

fn about(tree: &Tree, more: Value) -> Value {
    let mut all = json!({ "session_id": "s-1", "cwd": tree.dir() });
    let Value::Object(more) = more else {
        panic!("an object")
    };
    all.as_object_mut().unwrap().extend(more);
    all
}

pub(crate) fn prompt(tree: &Tree, words: &str) {
    let more = json!({ "hook_event_name": "UserPromptSubmit", "prompt": words });
    hook_with(tree, "claude-code", &[], &about(tree, more));
}

pub(crate) fn command(tree: &Tree, words: &str) {
    let more = json!({ "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": words } });
    hook_with(tree, "claude-code", &[], &about(tree, more));
}

fn edit(tree: &Tree, tool: &str, path: &str) {
    let more = json!({ "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": { "file_path": path, "content": "x" } });
    hook_with(tree, "claude-code", &[], &about(tree, more));
}

fn rewind(tree: &Tree, more: &[&str]) -> Said {
    let dir = tree.dir();
    tree.session
        .run(&[&["rewind", "--workspace", dir.as_str()], more].concat())
}

fn rewind_json(tree: &Tree, code: i32, more: &[&str]) -> Value {
    let dir = tree.dir();
    tree.session.json(
        code,
        &[&["rewind", "--workspace", dir.as_str()], more].concat(),
    )
}

fn rows(tree: &Tree) -> Vec<Value> {
    let all = tree.json(0, &["list"]);
    all["items"].as_array().unwrap().clone()
}

/// The checkpoints of a pool, the newest first.
fn of_pool(tree: &Tree, origin: &str) -> Vec<String> {
    let rows = rows(tree).into_iter();
    let rows = rows.filter(|row| row["origin"] == origin);
    rows.map(|row| text(&row["checkpoint"])).collect()
}

fn prompts(tree: &Tree) -> Vec<(u64, String, String)> {
    let all = rewind_json(tree, 0, &["--list"]);
    let all = all["items"].as_array().unwrap().iter();
    all.map(|one| {
        let words = one["text"].as_str().unwrap_or_default().to_owned();
        (
            one["prompt"].as_u64().unwrap(),
            text(&one["checkpoint"]),
            words,
        )
    })
    .collect()
}

/// Everything of the tree that a restore brings back, modes included.
fn state(tree: &Tree) -> Vec<(String, u32, String)> {
    let all = tree.contents().into_iter();
    all.map(|(path, inside)| {
        let path = path.to_str().unwrap().to_owned();
        let mode = fs::symlink_metadata(tree.at(&path)).unwrap();
        (path, mode.permissions().mode(), inside)
    })
    .collect()
}

/// One of many ways to break something.
fn destroy(tree: &Tree, round: u32) {
    match round % 5 {
        0 => tree.write("src/main.rs", &format!("broken {round}")),
        1 => tree.write(&format!("junk/{round}"), "more"),
        2 => drop(fs::remove_file(tree.at(&format!("data/{}", round % 7)))),
        3 => {
            let mode = fs::Permissions::from_mode(0o600 + round % 8 * 8);
            fs::set_permissions(tree.at("src/run.sh"), mode).unwrap();
        }
        _ => {
            drop(fs::remove_dir_all(tree.at("docs")));
            tree.write("docs", &round.to_string());
            fs::remove_file(tree.at("docs")).unwrap();
            tree.write(&format!("docs/{round}.md"), "other");
        }
    }
}

fn project() -> Tree {
    let tree = Tree::new(&[
        ("src/main.rs", "fn main() {}\n"),
        ("src/run.sh", "#!/bin/sh\n"),
        ("docs/guide.md", "read me\n"),
    ]);
    for number in 0..7 {
        tree.write(&format!("data/{number}"), &"x\0y".repeat(1000 * number));
    }
    fs::set_permissions(tree.at("src/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/main.rs", tree.at("link")).unwrap();
    tree
}

#[test]
fn after_thirty_destructive_commands_a_rewind_brings_back_the_tree_before_the_prompt() {
    let tree = project();
    let before = state(&tree);
    prompt(&tree, "tidy up the project\nand be quick");
    for round in 0..30 {
        command(&tree, &format!("break {round}"));
        destroy(&tree, round);
    }
    let after = state(&tree);
    assert_ne!(before, after);

    let rewound = rewind_json(&tree, 0, &["--yes"]);

    assert_eq!(state(&tree), before);
    assert_eq!(rewound["restored"], true, "{rewound:#}");
    assert_eq!(rewound["prompt"]["prompt"], 1);
    assert_eq!(rewound["prompt"]["text"], "tidy up the project");
    assert_eq!(rewound["prompt"]["commands"], 30);
    // Every command of the last hour is there, and says what it was.
    let rows = rows(&tree);
    let commands: Vec<&Value> = rows
        .iter()
        .filter(|row| row["origin"] == "command")
        .collect();
    assert_eq!(
        commands.len(),
        29,
        "the first command found the tree of the prompt"
    );
    let event = &commands[0]["agent_events"][0];
    let expected = json!({ "event": "command", "agent": "claude-code", "session": "s-1", "prompt": 1,
        "text": "break 29", "timestamp": event["timestamp"], "timestamp_ms": event["timestamp_ms"] });
    assert_eq!(*event, expected);
    let words = tree.run(&["list"]).out;
    assert!(
        words.contains("claude-code prompt 1: tidy up the project"),
        "{words}"
    );
    assert!(
        words.contains("claude-code command of prompt 1: break 29"),
        "{words}"
    );
    // And it can be taken back.
    tree.json(0, &["undo", "--yes"]);
    assert_eq!(state(&tree), after);
}

#[test]
fn many_commands_later_the_prompt_is_still_there_and_the_other_pools_are_untouched() {
    // Each is a process before a process; the long run makes two hundred.
    let rounds = std::env::var("STASIS_HOOKS").map_or(60, |count| count.parse().unwrap());
    let tree = Tree::new(&[("a", "first")]);
    tree.json(0, &["create", "--auto"]);
    let named = tree.checkpoint("mine");
    tree.write("a", "as it was before the prompt");
    prompt(&tree, "do a lot");
    for round in 0..rounds {
        tree.write("a", &round.to_string());
        command(&tree, &format!("step {round}"));
    }

    assert_eq!(of_pool(&tree, "command").len(), rounds);
    assert_eq!(of_pool(&tree, "prompt"), ["cp-100"]);
    assert_eq!(of_pool(&tree, "auto"), ["cp-0"]);
    assert_eq!(of_pool(&tree, "manual"), [named]);
    rewind_json(&tree, 0, &["--yes"]);
    assert_eq!(tree.read("a"), "as it was before the prompt");
    // The timer goes on where it was.
    tree.write("a", "again");
    let auto = tree.json(0, &["create", "--auto"]);
    assert_eq!(auto["checkpoint"], "cp-1");
}

#[test]
fn a_second_rewind_goes_to_the_same_state_and_more_prompts_go_further() {
    let tree = Tree::new(&[("a", "zero")]);
    for (number, words) in ["first", "second", "third"].iter().enumerate() {
        prompt(&tree, words);
        tree.write("a", &format!("after {}", number + 1));
    }
    let known: Vec<(u64, String)> = prompts(&tree)
        .into_iter()
        .map(|(number, _, words)| (number, words))
        .collect();
    let expected = [(3, "third"), (2, "second"), (1, "first")];
    assert_eq!(
        known,
        expected.map(|(number, words)| (number, words.to_owned()))
    );

    let dry = rewind_json(&tree, 0, &["--dry-run"]);
    assert_eq!(
        (&dry["dry_run"], tree.read("a").as_str()),
        (&json!(true), "after 3")
    );
    let done = rewind(&tree, &["--yes"]);
    assert_eq!((done.code, tree.read("a").as_str()), (0, "after 2"));
    assert!(done.out.contains("before prompt 3"), "{}", done.out);
    assert!(done.out.contains("stasis undo "), "{}", done.out);
    let again = rewind(&tree, &["--yes"]);
    assert_eq!((again.code, tree.read("a").as_str()), (0, "after 2"));
    assert!(again.out.contains("Already there"), "{}", again.out);
    assert!(again.out.contains("--prompts 2"), "{}", again.out);
    rewind_json(&tree, 0, &["--prompts", "3", "--yes"]);
    assert_eq!(tree.read("a"), "zero");
    let (_, second, _) = prompts(&tree)[1].clone();
    rewind_json(&tree, 0, &["--to", &second, "--yes"]);
    assert_eq!(tree.read("a"), "after 1");

    let far = rewind(&tree, &["--prompts", "4", "--yes"]);
    assert_eq!(far.code, 3, "{}", far.err);
    assert!(far.err.contains("only 3 prompts"), "{}", far.err);
    assert_eq!(rewind(&tree, &["--prompts", "0"]).code, 2);
    assert_eq!(tree.read("a"), "after 1");
}

#[test]
fn without_a_prompt_nothing_is_changed_and_it_is_said_what_there_is() {
    let tree = Tree::new(&[("a", "zero")]);
    let empty = rewind(&tree, &["--yes"]);
    command(&tree, "a command of a prompt that nobody saw");
    tree.write("a", "one");

    let none = rewind(&tree, &["--yes"]);

    assert_eq!((empty.code, none.code), (3, 3), "{}", none.err);
    assert!(empty.err.contains("no checkpoints either"), "{}", empty.err);
    assert!(
        none.err.contains("1 checkpoint, the newest is cp-100"),
        "{}",
        none.err
    );
    assert!(none.err.contains("stasis rewind --to"), "{}", none.err);
    assert_eq!(tree.read("a"), "one");
    assert_eq!(rewind_json(&tree, 0, &["--list"])["items"], json!([]));
    rewind_json(&tree, 0, &["--to", "cp-100", "--yes"]);
    assert_eq!(tree.read("a"), "zero");
    let outside = tree.session.run(&["rewind", "--workspace", "/"]);
    assert_eq!(outside.code, 3, "{}", outside.err);
}

#[test]
fn a_prompt_on_an_unchanged_tree_stores_nothing_and_can_be_gone_back_to() {
    let tree = Tree::new(&[("a", "zero")]);
    tree.json(0, &["create", "--auto"]);
    prompt(&tree, "first");
    prompt(&tree, "second, which changed nothing either");
    command(&tree, "ls");
    edit(&tree, "Edit", "/somewhere/a");
    tree.write("a", "one");
    edit(&tree, "Write", "/somewhere/b");
    tree.write("b", "new");
    command(&tree, "rm -r *");

    // The ring's own checkpoint would go with the ring, so that the first prompt has one; nothing else was needed until a change.
    let rows = rows(&tree);
    let made: Vec<(&str, usize)> = rows
        .iter()
        .map(|row| {
            let events = row["agent_events"].as_array().map_or(0, Vec::len);
            (row["checkpoint"].as_str().unwrap(), events)
        })
        .collect();
    assert_eq!(
        made,
        [("cp-102", 1), ("cp-101", 1), ("cp-100", 4), ("cp-0", 0)]
    );
    let kinds: Vec<&Value> = rows[2]["agent_events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["event"])
        .collect();
    assert_eq!(kinds, ["prompt", "prompt", "command", "edit"]);
    assert_eq!(rows[1]["agent_events"][0]["event"], "edit");
    assert_eq!(rows[1]["agent_events"][0]["text"], "/somewhere/b");
    let numbers: Vec<(u64, String)> = prompts(&tree)
        .into_iter()
        .map(|(number, checkpoint, _)| (number, checkpoint))
        .collect();
    assert_eq!(
        numbers,
        [(2, "cp-100".to_owned()), (1, "cp-100".to_owned())]
    );
    rewind_json(&tree, 0, &["--yes"]);
    assert_eq!(tree.read("a"), "zero");
    assert!(!tree.at("b").exists());
    // Back on that tree, the next prompt needs no checkpoint either.
    prompt(&tree, "third");
    assert_eq!(prompts(&tree)[0].1, "cp-100");
    assert_eq!(of_pool(&tree, "prompt").len(), 1);
}

#[test]
fn under_the_pressure_of_a_small_budget_commands_go_and_the_last_prompt_stays() {
    let tree = Tree::with(&[("a", "before everything")], &["--budget", "2MB"]);
    let named = tree.checkpoint("mine");
    tree.write("b", "before the prompt");
    prompt(&tree, "an earlier one");
    tree.write("b", "before the last prompt");
    prompt(&tree, "the last one");
    // Noise that neither compresses nor repeats, some 150 kB in each.
    let mut seed = 7_u64;
    for round in 0..40 {
        let noise = (0..18_000).map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{:08x}", seed >> 32)
        });
        tree.write("noise", &noise.collect::<String>());
        command(&tree, &format!("step {round}"));
    }

    let status = tree.json(0, &["status"]);
    let commands = of_pool(&tree, "command");
    assert!(
        status["held_bytes"].as_u64().unwrap() <= 2_000_000,
        "{status:#}"
    );
    assert!((3..40).contains(&commands.len()), "{commands:?}");
    assert_eq!(
        commands[0], "cp-141",
        "the newest command has its checkpoint"
    );
    assert_eq!(of_pool(&tree, "prompt"), ["cp-101", "cp-100"]);
    assert_eq!(of_pool(&tree, "manual"), [named]);
    rewind_json(&tree, 0, &["--yes"]);
    assert_eq!(tree.read("b"), "before the last prompt");
    assert!(!tree.at("noise").exists());
}

#[test]
fn a_last_prompt_without_a_checkpoint_is_said_and_no_other_is_taken_for_it() {
    let tree = project();
    prompt(&tree, "first");
    tree.write("mine", "between the prompts");
    let config = tree.kept().join("config.toml");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "budget_bytes = 1\n").unwrap();
    prompt(&tree, "second");
    fs::write(&config, &good).unwrap();
    let before = state(&tree);

    let refused = rewind(&tree, &["--yes"]);
    let unchanged = state(&tree);
    let chosen = rewind(&tree, &["--prompts", "1", "--yes"]);

    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("has no checkpoint"), "{}", refused.err);
    assert!(refused.err.contains("--prompts N"), "{}", refused.err);
    assert_eq!(unchanged, before);
    assert_eq!(chosen.code, 0, "{}", chosen.err);
    assert!(!tree.at("mine").exists());
    tree.write("mine", "again");
    prompt(&tree, "third");
    fs::remove_file(tree.at("mine")).unwrap();
    assert_eq!(rewind(&tree, &["--yes"]).code, 0);
    assert!(tree.at("mine").exists());
}

#[test]
fn a_rewind_leaves_what_it_is_told_to_and_the_list_counts_as_it_does() {
    let tree = project();
    prompt(&tree, "first");
    tree.write("docs/guide.md", "changed");
    prompt(&tree, "second");
    tree.write("docs/guide.md", "changed again");
    tree.write("src/main.rs", "broken");

    let list = rewind(&tree, &["--list"]);
    let told = rewind(
        &tree,
        &["--prompts", "2", "--except", "docs/guide.md", "--yes"],
    );

    let rows: Vec<Vec<&str>> = list
        .out
        .lines()
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(
        rows,
        [["BACK", "PROMPT"], ["1", "2"], ["2", "1"]],
        "{}",
        list.out
    );
    assert_eq!(told.code, 0, "{}", told.err);
    assert_eq!(tree.read("docs/guide.md"), "changed again");
    assert_eq!(tree.read("src/main.rs"), "fn main() {}\n");
}

#[test]
fn the_number_of_a_checkpoint_that_went_is_not_given_again() {
    let tree = Tree::new(&[("a", "zero")]);
    for round in 0..3 {
        tree.write("a", &round.to_string());
        command(&tree, "x");
    }
    tree.json(0, &["delete", "cp-102"]);
    tree.json(0, &["delete", "cp-101"]);

    tree.write("a", "another");
    command(&tree, "x");

    assert_eq!(of_pool(&tree, "command"), ["cp-103", "cp-100"]);
}

#[test]
fn what_is_kept_of_a_prompt_is_one_harmless_line_or_nothing_at_all() {
    let tree = Tree::new(&[("a", "zero")]);
    let long = format!("\n\u{1b}]0;owned\u{7}{}\nsecret below", "ü".repeat(400));
    prompt(&tree, &long);
    tree.write("a", "one");
    let more = json!({ "hook_event_name": "BeforeAgent", "prompt": "private" });
    hook_with(&tree, "gemini", &["--no-prompt-text"], &about(&tree, more));
    tree.write("a", "two");
    let config = tree.kept().join("config.toml");
    let set = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("keep_event_text = false\n{set}")).unwrap();
    prompt(&tree, "private");

    let all = prompts(&tree);

    assert_eq!((all[0].2.as_str(), all[1].2.as_str()), ("", ""));
    let kept = &all[2].2;
    assert!(
        kept.starts_with("]0;ownedüü") && kept.len() <= 160,
        "{kept:?}"
    );
    assert!(!kept.contains(char::is_control), "{kept:?}");
    let session = tree.kept();
    for slot in ["101", "102"] {
        let metadata = session
            .join("auto_snapshots")
            .join(slot)
            .join("metadata.json");
        assert!(!fs::read_to_string(metadata).unwrap().contains("private"));
    }
}

#[test]
fn where_no_agent_was_ever_seen_a_rewind_goes_to_the_newest_checkpoint_that_differs() {
    let tree = Tree::new(&[("a", "zero")]);
    tree.json(0, &["create", "--auto"]);
    tree.write("a", "one");
    tree.json(0, &["create", "--auto"]);
    fs::remove_file(tree.at("a")).unwrap();

    let back = rewind(&tree, &["--yes"]);
    assert_eq!(back.code, 0, "{}", back.err);
    assert!(
        back.err.contains("newest checkpoint that differs"),
        "{}",
        back.err
    );
    assert_eq!(tree.read("a"), "one");
    // Once more: the newest is what is there now, and the one before it differs.
    assert_eq!(rewind(&tree, &["--yes"]).code, 0);
    assert_eq!(tree.read("a"), "zero");
}
