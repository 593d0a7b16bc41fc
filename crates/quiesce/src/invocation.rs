//! A command from a configuration: its words, where it runs, and what it finds in its environment.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandSpec {
    /// A program and its arguments, handed over as they are.
    Words(Vec<OsString>),
    /// A text that `sh` understands.
    Shell(OsString),
}

/// A command, with its surroundings. Its environment is ours, with some more variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invocation {
    /// What is run.
    pub line: CommandSpec,
    /// Where; our own directory when there is none.
    pub directory: Option<PathBuf>,
    /// Variables that it finds besides ours.
    pub environment: Vec<(OsString, OsString)>,
}

impl Invocation {
    /// A program and its arguments.
    pub fn words<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::new(CommandSpec::Words(
            words.into_iter().map(Into::into).collect(),
        ))
    }

    /// A text for `sh`.
    pub fn shell(text: impl Into<OsString>) -> Self {
        Self::new(CommandSpec::Shell(text.into()))
    }

    fn new(line: CommandSpec) -> Self {
        Self {
            line,
            directory: None,
            environment: Vec::new(),
        }
    }

    /// The name of the program, for users.
    pub fn program(&self) -> &OsStr {
        match &self.line {
            CommandSpec::Words(words) => words.first().map_or(OsStr::new(""), OsString::as_os_str),
            CommandSpec::Shell(_) => OsStr::new("sh"),
        }
    }

    /// The program and its arguments as the system wants them.
    pub(crate) fn argv(&self) -> Vec<OsString> {
        match &self.line {
            CommandSpec::Words(words) => words.clone(),
            CommandSpec::Shell(text) => vec!["sh".into(), "-c".into(), text.clone()],
        }
    }

    /// The same as something that can be started by `program` with some words before.
    pub(crate) fn prepare(&self, program: &OsStr, before: &[OsString]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command.args(before);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
}
