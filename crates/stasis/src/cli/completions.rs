//! `stasis completions`

use super::help;
use super::output::OutputLost;
use crate::report::{Exit, or_read_enough};
use clap::{Args, ValueEnum};
use clap_complete::Shell;
use std::io::Write;

/// `stasis completions`
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell that reads them
    shell: ShellArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

impl From<ShellArg> for Shell {
    fn from(shell: ShellArg) -> Self {
        match shell {
            ShellArg::Bash => Self::Bash,
            ShellArg::Zsh => Self::Zsh,
            ShellArg::Fish => Self::Fish,
        }
    }
}

impl CompletionsArgs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        let mut program = help::visible();
        clap_complete::generate(Shell::from(self.shell), &mut program, "stasis", &mut script);
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(&script).and_then(|()| stdout.flush());
        or_read_enough(written.map_err(|error| OutputLost(error).into()))?;
        Ok(Exit::Done)
    }
}
