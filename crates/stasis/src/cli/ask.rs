//! Questions to whoever sits at the terminal.

use super::CliContext;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// What is said when somebody answered with no.
pub(super) const NOTHING_CHANGED: &str = "nothing was changed";

/// Whether somebody is there to answer.
pub(super) fn is_interactive(context: &CliContext) -> bool {
    !context.output.as_json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks, and reads the answer; what is no answer is none.
pub(super) fn answer(question: &str) -> anyhow::Result<String> {
    let mut talk = std::io::stderr().lock();
    write!(talk, "{question} ")?;
    talk.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().to_lowercase())
}

/// Asks a question that only a clear yes answers with yes.
pub(super) fn is_yes(question: &str) -> anyhow::Result<bool> {
    let answer = answer(&format!("{question} [y/N]"))?;
    Ok(["y", "yes"].contains(&&*answer))
}
