//! The command that agents run.

use super::agent::Agent;
use anyhow::{Context as _, bail};
use rustix::fs::Access;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What this program is called where it is installed.
const NAME: &str = "stasis";

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
        format!("{}{}", quoted(&self.path), self.arguments())
    }

    fn arguments(&self) -> String {
        format!(" hook run {}", self.agent.name())
    }

    /// Whether a command is the one that we would write, whatever was added to it.
    pub(super) fn would_write(&self, command: &str) -> bool {
        let rest = command.strip_prefix(&self.command());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// Whether a command was written by us, or by one of us that lay elsewhere.
    pub(super) fn wrote(&self, command: &str) -> bool {
        let elsewhere = || {
            let (program, rest) = command.split_once(&self.arguments())?;
            let name = program.trim_matches(['\'', '"']).rsplit('/').next()?;
            Some(name == NAME && (rest.is_empty() || rest.starts_with(' ')))
        };
        self.would_write(command) || elsewhere().unwrap_or(false)
    }
}

/// Whether a shell that looks for our name finds this very file.
fn is_found(running: &Path, search_path: &OsStr) -> bool {
    let candidates = std::env::split_paths(search_path).map(|directory| directory.join(NAME));
    let runs = |path: &PathBuf| {
        path.is_absolute() && path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
    };
    let first = candidates.into_iter().find(runs);
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    first.is_some_and(|first| real(&first).is_some_and(|first| Some(first) == real(running)))
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+@%:,=".contains(c);
    if word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_so_that_a_shell_takes_it_as_one_word() {
        let path = "/it's here/$HOME/stasis";
        let command = Program::at(Agent::Codex, path).command();

        let said = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s|' {command}")])
            .output()
            .unwrap();

        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(said, format!("{path}|hook|run|codex|"));
    }

    #[test]
    fn our_command_is_known_again_wherever_we_lay() {
        let program = Program::at(Agent::ClaudeCode, "stasis");

        let ours = [
            "stasis hook run claude-code",
            "stasis hook run claude-code --workspace /w",
            "/opt/bin/stasis hook run claude-code",
            r"'/it'\''s here/stasis' hook run claude-code",
        ];
        let others = [
            "stasis hook run codex",
            "stasis hook run claude-code2",
            "mystasis hook run claude-code",
            "echo stasis; other hook run claude-code",
            "stasis save",
        ];

        assert!(ours.iter().all(|command| program.wrote(command)));
        assert!(!others.iter().any(|command| program.wrote(command)));
        assert!(program.would_write(ours[0]) && program.would_write(ours[1]));
        assert!(!program.would_write(ours[2]));
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
