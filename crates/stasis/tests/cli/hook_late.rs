//! A checkpoint that takes longer than an agent waits is finished in the background, and nothing that happens to it reaches the agent.

use crate::rewind::{command, hook_with, prompt};
use crate::workspace::{Tree, text};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Keeps every checkpoint from being made, as a very large tree would.
fn blocked(tree: &Tree) -> File {
    let lock = tree.kept().join("session.lock");
    let mut options = File::options();
    let lock = options.write(true).create(true).truncate(false).open(lock);
    let lock = lock.unwrap();
    lock.lock().unwrap();
    lock
}

fn slow_prompt(tree: &Tree, words: &str) -> Duration {
    let began = Instant::now();
    let about = json!({ "session_id": "s-1", "cwd": tree.dir(), "hook_event_name": "UserPromptSubmit", "prompt": words });
    hook_with(tree, "claude-code", &["--wait", "1"], &about);
    began.elapsed()
}

fn status(tree: &Tree) -> Value {
    tree.json(0, &["status"])
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn warning(tree: &Tree) -> String {
    let status = status(tree);
    status["hook_warning"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_checkpoint_that_takes_too_long_is_finished_without_the_agent_and_the_next_hooks_back_off() {
    let tree = Tree::new(&[("a", "one")]);
    let lock = blocked(&tree);

    let waited = slow_prompt(&tree, "the first");
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    until("it is not said that one is being made", || {
        status(&tree)["hook_at_work"].is_string() && warning(&tree).contains("still being made")
    });
    // The next ones neither wait for it nor begin another.
    hook_with(
        &tree,
        "codex",
        &[],
        &json!({ "cwd": tree.dir(), "tool_name": "Bash" }),
    );
    assert!(
        warning(&tree).contains("1 prompts or commands"),
        "{}",
        warning(&tree)
    );
    drop(lock);

    until("it is not finished", || {
        let all = tree.json(0, &["list"]);
        all["items"][0]["agent_events"][0]["late_ms"].is_u64()
    });
    until("it is still at work", || {
        status(&tree)["hook_at_work"].is_null()
    });
    assert!(
        warning(&tree).contains("finished in the background"),
        "{}",
        warning(&tree)
    );
    let words = tree.run(&["list"]);
    assert!(words.out.contains("s late]: the first"), "{}", words.out);
    assert!(words.err.contains("in the background"), "{}", words.err);
    let all = tree.json(0, &["list"]);
    assert_eq!(all["items"].as_array().unwrap().len(), 1, "{all:#}");
    // One that is made in time ends it.
    tree.write("a", "two");
    prompt(&tree, "the second");
    assert_eq!(warning(&tree), "");
    assert_eq!(tree.listed().len(), 2);
}

#[test]
fn a_worker_that_is_killed_harms_nobody_and_is_told() {
    let tree = Tree::new(&[("a", "one")]);
    let lock = blocked(&tree);
    slow_prompt(&tree, "the first");
    until("it is not said that one is being made", || {
        warning(&tree).contains("still being made")
    });
    let holder = text(&status(&tree)["hook_at_work"]);
    let process = holder.split("by process ").nth(1).unwrap();
    let process = process.split(' ').next().unwrap();

    let killed = Command::new("kill").args(["-9", process]).status().unwrap();

    assert!(killed.success());
    until("it is still at work", || {
        status(&tree)["hook_at_work"].is_null()
    });
    let told = warning(&tree);
    assert!(told.contains("was interrupted"), "{told}");
    assert!(
        told.contains("has no checkpoint: its hook was killed"),
        "{told}"
    );
    drop(lock);
    // No other state is taken for that before the prompt; also not after a command, which has a checkpoint.
    command(&tree, "rm -r everything");
    until("the command has no checkpoint", || {
        tree.listed().len() == 1 && status(&tree)["hook_at_work"].is_null()
    });
    let dir = tree.dir();
    let refused = tree
        .session
        .run(&["rewind", "--workspace", dir.as_str(), "--yes"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(
        refused.err.contains("its hook was killed"),
        "{}",
        refused.err
    );
    prompt(&tree, "the second");
    assert_eq!(warning(&tree), "");
    assert_eq!(tree.listed().len(), 1);
}

#[test]
fn whatever_is_broken_an_agent_learns_nothing_of_it() {
    let breaks: [fn(&Tree); 5] = [
        |tree| fs::write(tree.kept().join("session.db"), "not a database").unwrap(),
        |tree| fs::write(tree.kept().join("session.json"), "{").unwrap(),
        |tree| fs::write(tree.kept().join("config.toml"), "budget_bytes = \"many\"").unwrap(),
        |tree| {
            let slots = tree.kept().join("auto_snapshots");
            fs::remove_dir_all(&slots).unwrap();
            fs::write(slots, "in the way").unwrap();
        },
        |tree| {
            let tree = tree.dir();
            fs::remove_dir_all(&tree).unwrap();
            fs::write(tree, "no directory any more").unwrap();
        },
    ];
    for broken in breaks {
        let tree = Tree::new(&[("a", "one")]);
        command(&tree, "before");
        broken(&tree);
        // These assert that nothing is printed, and that all is well.
        prompt(&tree, "and now?");
        command(&tree, "and now?");
        let about = json!({ "cwd": tree.dir() });
        for agent in ["gemini", "codex", "opencode"] {
            let said = hook_with(&tree, agent, &[], &about);
            assert!(
                serde_json::from_str::<Value>(&said.err).is_err(),
                "{}",
                said.err
            );
        }
    }
}

#[test]
fn installing_hooks_in_a_workspace_without_checkpoints_makes_the_first_one() {
    let tree = Tree::new(&[("a", "one")]);
    let install = |more: &[&str]| {
        let words = [&["hook", "install", "claude-code"], more].concat();
        let mut command = tree.session.command(&words);
        command
            .env("HOME", tree.session.home())
            .current_dir(tree.at(""));
        let said = command.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stderr).unwrap()
    };

    install(&["--dry-run"]);
    assert_eq!(tree.listed(), []);
    let told = install(&["--yes"]);
    let again = install(&["--yes"]);

    assert!(told.contains("first checkpoint"), "{told}");
    assert!(!again.contains("first checkpoint"), "{again}");
    assert_eq!(tree.listed().len(), 1);
}
