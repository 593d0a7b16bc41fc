//! The command that agents run.
//!
//! It is written so that it cannot block an agent: agents take an exit code that is not 0 as a veto (Gemini CLI even the
//! shell's 127 for a program that is missing), and some read what is printed as an answer. So the command discards its
//! output, ends with 0 whatever happens, and has a time limit of its own below the agent's.

use super::agent::Agent;
use anyhow::{Context as _, bail};
use rustix::fs::Access;
use stasis_engine::address::shell_word;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What this program is called where it is installed.
const NAME: &str = "stasis";
/// Stands before the program: `timeout` ends it after 25 s, and kills it 2 s later, before the agent's own limit of 30 s.
const GUARD: &str = "timeout -k 2 25 ";
/// Stands after the arguments: prints nothing, and succeeds also where the program is missing, fails or is killed.
const HARMLESS: &str = " >/dev/null 2>&1 || true";

/// This program as an agent finds it.
#[derive(Clone, Debug)]
pub(super) struct Program {
    agent: Agent,
    path: String,
}

impl Program {
    /// `stasis` if that is what a shell finds under this name, otherwise where this very program lies.
    pub(super) fn find(agent: Agent, search_path: &OsStr) -> anyhow::Result<Self> {
        let running =
            std::env::current_exe().context("could not find out where this program lies")?;
        if is_found(&running, search_path) {
            return Ok(Self::at(agent, NAME));
        }
        let Some(path) = running.to_str() else {
            bail!(
                "`{}` cannot be written into a settings file: put `stasis` onto the PATH, then try again",
                running.display()
            );
        };
        if agent == Agent::Gemini && path.contains('$') {
            bail!(
                "Gemini CLI would replace what follows the `$` in `{path}`: put `stasis` onto the PATH, then try again"
            );
        }
        Ok(Self::at(agent, path))
    }

    pub(super) fn at(agent: Agent, path: &str) -> Self {
        let path = path.to_owned();
        Self { agent, path }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The command for a shell.
    pub(super) fn command(&self) -> String {
        self.command_with("")
    }

    /// The command with arguments that a user added to an earlier one.
    pub(super) fn command_with(&self, added: &str) -> String {
        let space = if added.is_empty() { "" } else { " " };
        format!("{}{space}{added}{HARMLESS}", self.head())
    }

    fn head(&self) -> String {
        format!("{GUARD}{} {}", shell_word(&self.path), self.arguments())
    }

    fn arguments(&self) -> String {
        format!("hook run {}", self.agent.name())
    }

    /// Whether a command is the one that we would write, whatever arguments were added to it.
    pub(super) fn would_write(&self, command: &str) -> bool {
        let added = command
            .strip_prefix(&self.head())
            .and_then(|rest| rest.strip_suffix(HARMLESS));
        added.is_some_and(|added| added.is_empty() || added.starts_with(' '))
    }

    /// Whether a command runs our hook for this agent, whatever the program is called and wherever it lies.
    pub(super) fn wrote(&self, command: &str) -> bool {
        self.after_arguments(command).is_some()
    }

    /// The arguments that a user added to a command of ours, as they are written there.
    pub(super) fn added_to<'a>(&self, command: &'a str) -> &'a str {
        let rest = self.after_arguments(command).unwrap_or_default();
        let end = end_of_words(rest);
        let words = rest.get(..end).unwrap_or_default().trim();
        if !rest.get(end..).unwrap_or_default().starts_with('>') {
            return words;
        }
        // In `2>/dev/null` the digit belongs to the redirection.
        let without = words.strip_suffix(|c: char| c.is_ascii_digit());
        let is_alone = |rest: &&str| rest.is_empty() || rest.ends_with(' ');
        without.filter(is_alone).map_or(words, str::trim_end)
    }

    /// What follows `hook run AGENT` in a command.
    fn after_arguments<'a>(&self, command: &'a str) -> Option<&'a str> {
        let (program, rest) = command.split_once(&format!(" {}", self.arguments()))?;
        let ends = |c: char| c.is_whitespace() || "'\";|&)<>".contains(c);
        (!program.trim().is_empty() && (rest.is_empty() || rest.starts_with(ends))).then_some(rest)
    }
}

/// Where the words of a simple command end: at the first operator of the shell that is not quoted.
fn end_of_words(text: &str) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => escaped = true,
            (None, '>' | '<' | '|' | '&' | ';' | ')' | '\n') => return at,
            _ => {}
        }
    }
    text.len()
}

/// Whether a shell that looks for our name finds this very file.
fn is_found(running: &Path, search_path: &OsStr) -> bool {
    let first = on_path(NAME, search_path);
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    first.is_some_and(|first| real(&first).is_some_and(|first| Some(first) == real(running)))
}

/// What a shell finds under a name; nothing is started.
pub(super) fn on_path(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    let mut candidates = std::env::split_paths(search_path).map(|directory| directory.join(name));
    candidates.find(|path| {
        path.is_absolute() && path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a command as agents do, and answers its exit code and everything it printed.
    fn ran(command: &str) -> (Option<i32>, String) {
        let ran = std::process::Command::new("sh")
            .args(["-c", command])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let printed = [ran.stdout, ran.stderr].concat();
        (ran.status.code(), String::from_utf8(printed).unwrap())
    }

    fn script(directory: &Path, text: &str) -> String {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = directory.join("it's here $HOME");
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o755);
        let mut file = file.open(&path).unwrap();
        write!(file, "#!/bin/sh\n{text}\n").unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_path_is_quoted_so_that_a_shell_takes_it_as_one_word() {
        let home = tempfile::tempdir().unwrap();
        let called = home.path().join("called");
        let text = format!("echo \"$@\" > '{}'", called.display());
        let program = Program::at(Agent::Codex, &script(home.path(), &text));

        assert_eq!(ran(&program.command()), (Some(0), String::new()));

        let called = std::fs::read_to_string(called).unwrap();
        assert_eq!(called, "hook run codex\n");
    }

    #[test]
    fn a_program_that_is_missing_fails_prints_or_is_killed_blocks_no_agent() {
        let home = tempfile::tempdir().unwrap();
        let bad = [
            "exit 2",
            "exit 127",
            "kill -9 $$",
            "echo '{\"decision\": \"block\"}'; echo '{\"decision\": \"deny\"}' >&2; exit 2",
        ];
        for text in bad {
            let program = Program::at(Agent::Gemini, &script(home.path(), text));
            assert_eq!(ran(&program.command()), (Some(0), String::new()), "{text}");
        }
        let missing = Program::at(Agent::Gemini, "/nowhere/at/all/stasis");
        assert_eq!(ran(&missing.command()), (Some(0), String::new()));
        let forbidden = Program::at(Agent::Gemini, "/etc/passwd");
        assert_eq!(ran(&forbidden.command()), (Some(0), String::new()));
    }

    #[test]
    fn a_program_that_hangs_is_ended_before_the_agent_would() {
        let home = tempfile::tempdir().unwrap();
        let program = Program::at(
            Agent::Gemini,
            &script(home.path(), "trap '' TERM; sleep 600"),
        );
        let soon = program.command().replace("-k 2 25", "-k 0.1 0.1");

        let ended = ran(&soon);

        assert_eq!(ended, (Some(0), String::new()));
        assert_ne!(soon, program.command());
    }

    #[test]
    fn our_command_is_known_again_whatever_we_were_called_and_wherever_we_lay() {
        let program = Program::at(Agent::ClaudeCode, "stasis");
        let now = program.command();
        let with_more = program.command_with("--workspace '/a b'");

        let ours = [
            now.as_str(),
            with_more.as_str(),
            "stasis hook run claude-code",
            "stasis hook run claude-code --workspace /w",
            "/opt/bin/stasis-1.2 hook run claude-code",
            r"'/it'\''s here/stasis' hook run claude-code",
            "sh -c 'mystasis hook run claude-code; true'",
        ];
        let others = [
            "stasis hook run codex",
            "stasis hook run claude-code2",
            "hook run claude-code",
            "stasis save",
        ];

        assert!(ours.iter().all(|command| program.wrote(command)));
        assert!(!others.iter().any(|command| program.wrote(command)));
        assert!(program.would_write(ours[0]) && program.would_write(ours[1]));
        assert!(!ours[2..].iter().any(|command| program.would_write(command)));
    }

    #[test]
    fn arguments_that_a_user_added_are_found_again() {
        let program = Program::at(Agent::Codex, "stasis");
        let added = [
            ("stasis hook run codex", ""),
            ("stasis hook run codex --workspace /w", "--workspace /w"),
            (
                "x hook run codex --workspace '/a;b' 2>/dev/null",
                "--workspace '/a;b'",
            ),
            (
                "x hook run codex --workspace /w2>/dev/null",
                "--workspace /w2",
            ),
            (
                r"x hook run codex --workspace /a\;b && y",
                r"--workspace /a\;b",
            ),
        ];
        for (command, expected) in added {
            assert_eq!(program.added_to(command), expected, "{command}");
        }
        let ours = program.command_with("--workspace \"/a > b\"");
        assert_eq!(program.added_to(&ours), "--workspace \"/a > b\"");
    }

    #[test]
    fn only_this_very_program_is_found_by_its_name() {
        let home = tempfile::tempdir().unwrap();
        let running = std::env::current_exe().unwrap();
        let path = home.path().as_os_str();

        assert!(!is_found(&running, path));
        std::os::unix::fs::symlink("/bin/sh", home.path().join(NAME)).unwrap();
        assert!(!is_found(&running, path));
        let other = home.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&running, other.join(NAME)).unwrap();
        assert!(is_found(&running, other.as_os_str()));
    }
}
