//! Real programs write to a workspace while it is restored and undone: no write that succeeded is lost.

use crate::workspace::Tree;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that goes on until it is asked to end, and has then finished its last write.
struct Writer {
    child: Child,
    stop: PathBuf,
}

impl Writer {
    /// Runs a script in which each write that succeeded is acknowledged with its number.
    fn start(tree: &Tree, name: &str, script: &str) -> Self {
        let acknowledged = tree.session.home().join(format!("{name}.ack"));
        let stop = tree.session.home().join(format!("{name}.stop"));
        let script = format!(
            "exec 9>>'{}'; n=0; while [ $n -lt 100000 ] && [ ! -e '{}' ]; do n=$((n+1)); {script} && echo $n >&9; sleep 0.01; done",
            acknowledged.display(),
            stop.display(),
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(tree.at(""));
        let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = quiet.stdout(Stdio::null()).spawn().unwrap();
        Self { child, stop }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Killed, it would leave a `mv` behind that goes on.
        let _ = (fs::write(&self.stop, ""), self.child.wait());
    }
}

/// A program that goes on until it is killed.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn acknowledged(tree: &Tree, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(tree.session.home().join(format!("{name}.ack"))).unwrap();
    let lines = text.lines().map(|number| format!("{name}-{number}"));
    lines.collect()
}

/// Every word in every file beneath a directory.
fn words(directory: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let seen = path.symlink_metadata().unwrap();
        if seen.is_dir() {
            words(&path, all);
        } else if seen.is_file() {
            let text = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            all.extend(text.split_whitespace().map(str::to_owned));
        }
    }
}

#[test]
fn no_acknowledged_write_of_a_program_is_lost_by_restores_and_undos() {
    let tree = Tree::new(&[("log", "then\n"), ("kept/a", "then")]);
    for number in 0..60 {
        tree.write(&format!("saved/{number}"), "then");
    }
    tree.checkpoint("good");
    for number in 0..60 {
        tree.write(&format!("saved/{number}"), "now");
    }
    tree.write("log", "now\n");
    tree.write("removed/old", "now");
    let scripts = [
        // An editor: writes beside, and renames.
        (
            "rename",
            "echo rename-$n > saved/.$n.swp && mv saved/.$n.swp saved/$n.new",
        ),
        ("append", "echo append-$n >> log"),
        ("create", "echo create-$n > kept/new-$n"),
        (
            "removed",
            "mkdir -p removed && echo removed-$n > removed/new-$n",
        ),
    ];
    let mut programs: Vec<Writer> = scripts
        .iter()
        .map(|(name, script)| Writer::start(&tree, name, script))
        .collect();
    programs.push(Writer::start(
        &tree,
        "held",
        "[ $n = 1 ] && exec 8>>log; echo held-$n >&8",
    ));
    std::thread::sleep(Duration::from_millis(200));

    for words in [&["restore", "good"][..], &["undo"], &["restore", "good"]] {
        let done = tree.run(words);
        assert_eq!(done.code, 0, "{words:?} {}{}", done.out, done.err);
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(programs);

    let mut found = BTreeSet::new();
    words(&tree.at(""), &mut found);
    words(&tree.kept().join("undo"), &mut found);
    for (name, _) in scripts.iter().chain(&[("held", "")]) {
        let all = acknowledged(&tree, name);
        let lost: Vec<_> = all.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "{name}: {} of {} lost: {:?}",
            lost.len(),
            all.len(),
            &lost[..lost.len().min(9)]
        );
        assert!(all.len() > 5, "{name}: {}", all.len());
    }
}

#[test]
fn a_database_that_a_program_has_open_is_named_and_left_alone() {
    let tree = Tree::new(&[("a", "one")]);
    let script = "import sqlite3,sys,time\n\
        c=sqlite3.connect('app.db');c.execute('pragma journal_mode=wal')\n\
        c.execute('create table if not exists t(x)');c.execute('insert into t values(1)');c.commit()\n\
        print('ready',flush=True);sys.stdin.read()";
    let open = |tree: &Tree| {
        let mut command = Command::new("python3");
        command.args(["-c", script]).current_dir(tree.at(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take()?);
        std::io::BufRead::read_line(&mut out, &mut line).ok()?;
        Some(Program(child))
    };
    let Some(first) = open(&tree) else {
        println!("skipped: python3 is not there");
        return;
    };
    drop(first);
    tree.checkpoint("good");
    let held = open(&tree).unwrap();
    tree.write("a", "two");

    let refused = tree.run(&["restore", "good"]);
    let unchanged = tree.read("a");
    let around = tree.json(0, &["restore", "good", "--except", "app.db"]);
    drop(held);
    let after = tree.json(0, &["restore", "good"]);

    assert_eq!(refused.code, 4, "{}{}", refused.out, refused.err);
    assert!(
        refused.err.contains("`app.db` is open in process"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("--except"), "{}", refused.err);
    assert_eq!(unchanged, "two");
    assert_eq!(around["restored"], true);
    assert_eq!(tree.read("a"), "one");
    assert_eq!(after["restored"], true, "{after:#}");
}
