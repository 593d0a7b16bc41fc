//! How far long work has come, at a terminal: one line that fits, with bytes and the time left, and nothing of it in the end.

use crate::profile::{profile, save};
use crate::session::{STASIS, Session};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fills a file with bytes that cannot be compressed.
fn fill(path: &Path, mib: usize, noise: &mut u64) {
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..mib {
        let mut block = Vec::with_capacity(1 << 20);
        while block.len() < 1 << 20 {
            *noise ^= *noise << 13;
            *noise ^= *noise >> 7;
            *noise ^= *noise << 17;
            block.extend(noise.to_le_bytes());
        }
        file.write_all(&block).unwrap();
    }
}

/// What a terminal of so many columns got from a command.
fn typed(session: &Session, columns: usize, command: &str) -> String {
    // `script` is what makes a terminal; it is part of every Debian.
    let line = format!("stty cols {columns} && exec {STASIS} {command}");
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .envs(
            session
                .command(&[])
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a terminal of so many columns got from a save of a tree that takes a while.
fn typed_at(columns: usize) -> (Session, String) {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir(&dir).unwrap();
    let mut noise = 1_u64;
    for name in 0..4 {
        fill(&dir.join(name.to_string()), 40, &mut noise);
    }
    let text = typed(&session, columns, &format!("save {}", dir.display()));
    (session, text)
}

/// A text without what moves the cursor or colours it.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter == '\x1b' {
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[test]
fn a_save_shows_bytes_on_one_line_that_fits_and_clears_it() {
    for columns in [40, 80] {
        let (_session, text) = typed_at(columns);

        let lines: Vec<String> = plain(&text)
            .split(['\r', '\n'])
            .map(|line| line.trim_end().to_owned())
            .filter(|line| line.starts_with("saving"))
            .collect();
        assert!(lines.len() > 2, "{text:?}");
        for line in &lines {
            assert!(line.chars().count() < columns, "{columns}: {line}");
        }
        let last = lines.last().unwrap();
        assert!(last.contains("160 MiB"), "{last}: what there is in all");
        assert!(
            lines.iter().any(|line| line.ends_with(" left")),
            "{lines:?}"
        );
        // The line that is left says what was done, and stands where the progress stood.
        let cleared = text.rfind("\x1b[2K").or_else(|| text.rfind("\x1b[J"));
        let end = &text[cleared.unwrap_or_else(|| panic!("{text:?}"))..];
        assert!(
            plain(end).trim_start().starts_with("Saved work-"),
            "{end:?}"
        );
    }
}

#[test]
fn a_run_of_a_browser_shows_how_far_its_load_and_its_save_have_come() {
    let session = Session::new();
    let dir = profile(&session, "p");
    fill(&dir.join("Default/large"), 80, &mut 1);
    save(&session, 0, &dir, &[]);
    fs::remove_dir_all(session.home().join("cache")).unwrap();
    let other = session.home().join("other");
    fill(&other, 80, &mut 2);

    let line = format!(
        "profile run acme/alice@131 -- sh -c 'cp {} $0/Default/other; echo browsing' {{dir}}",
        other.display()
    );
    let text = typed(&session, 80, &line);

    let plain = plain(&text);
    let (before, after) = plain.split_once("browsing").unwrap();
    let is_shown = |text: &str, verb: &str| {
        let mut lines = text.split(['\r', '\n']);
        lines.any(|line| line.starts_with(verb) && line.contains("MiB"))
    };
    assert!(is_shown(before, "loading"), "{text:?}");
    assert!(is_shown(after, "saving"), "{text:?}");
    assert!(!is_shown(before, "saving") && !is_shown(after, "loading"));
}
