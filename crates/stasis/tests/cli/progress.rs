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

/// A directory that takes a while to be saved, and to be read.
fn large(session: &Session) -> String {
    let dir = session.home().join("work");
    fs::create_dir(&dir).unwrap();
    let mut noise = 1_u64;
    for name in 0..4 {
        fill(&dir.join(name.to_string()), 40, &mut noise);
    }
    dir.to_str().unwrap().to_owned()
}

/// What a terminal of so many columns got from a command.
fn typed_at(session: &Session, columns: usize, words: &str) -> String {
    // `script` is what makes a terminal; it is part of every Debian.
    let line = format!("stty cols {columns} && exec {STASIS} {words}");
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

/// The progress lines among that.
fn lines_of(text: &str, verb: &str) -> Vec<String> {
    plain(text)
        .split(['\r', '\n'])
        .map(|line| line.trim_end().to_owned())
        .filter(|line| line.starts_with(verb))
        .collect()
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
        let session = Session::new();
        let dir = large(&session);
        let text = typed_at(&session, columns, &format!("save {dir}"));

        let lines = lines_of(&text, "saving");
        assert!(lines.len() > 2, "{text:?}");
        for line in &lines {
            assert!(line.chars().count() < columns, "{columns}: {line}");
        }
        let last = lines.last().unwrap();
        assert!(last.contains("160 MiB"), "{last}: what there is in all");
        // What is over within a second has no time left to show.
        let is_over_at_once = last.ends_with("0:00");
        let shows_left = lines.iter().any(|line| line.ends_with(" left"));
        assert!(shows_left || is_over_at_once, "{lines:?}");
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
fn a_check_that_reads_everything_shows_how_much_that_is_at_a_narrow_terminal() {
    const COLUMNS: usize = 40;
    let session = Session::new();
    let dir = large(&session);
    session.data(0, &["save", &dir]);

    let text = typed_at(&session, COLUMNS, &format!("check --read-data {dir}"));

    let lines = lines_of(&text, "checking");
    // How many there are depends on how fast this disk is.
    assert!(lines.len() > 1, "{text:?}");
    for line in &lines {
        assert!(line.chars().count() < COLUMNS, "{line}");
    }
    let is_counted = |line: &String| line.contains(" MiB of 160");
    assert!(lines.iter().any(is_counted), "{lines:?}");
    assert!(plain(&text).contains("all data verified"), "{text:?}");
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
    let text = typed_at(&session, 80, &line);

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
