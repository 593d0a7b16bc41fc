//! How far long work has come, at a terminal: one line that fits, with bytes and the time left, and nothing of it in the end.

use crate::session::{STASIS, Session};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// What a terminal of so many columns got from a save of a tree that takes a while.
fn typed_at(columns: usize) -> (Session, String) {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir(&dir).unwrap();
    let mut noise = 1_u64;
    for name in 0..4 {
        let mut file = fs::File::create(dir.join(name.to_string())).unwrap();
        for _ in 0..40 {
            let mut block = Vec::with_capacity(1 << 20);
            while block.len() < 1 << 20 {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                block.extend(noise.to_le_bytes());
            }
            file.write_all(&block).unwrap();
        }
    }
    // `script` is what makes a terminal; it is part of every Debian.
    let line = format!(
        "stty cols {columns} && exec {STASIS} save {}",
        dir.display()
    );
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
    (
        session,
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
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
