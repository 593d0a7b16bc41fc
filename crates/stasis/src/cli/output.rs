//! Standard output is data, standard error is talk.

use super::{answers, color, envelope, suggestion};
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use rustix::termios::tcgetwinsize;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::clone::LeftOut;
use stasis_engine::result::SkipReason;
use stasis_engine::warning::Warning;
use std::io::{IsTerminal, Write};

/// How many entries that were left out are named to people.
const NAMED: usize = 10;

/// Standard output could not be written to.
#[derive(Debug)]
pub(crate) struct OutputLost(pub(crate) std::io::Error);

impl std::fmt::Display for OutputLost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("could not write the result to standard output")
    }
}

impl std::error::Error for OutputLost {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// A result with what the command took of this machine.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Measured<T> {
    #[serde(flatten)]
    pub(crate) result: T,
    peak_memory_bytes: Option<u64>,
}

impl<T> Measured<T> {
    pub(crate) fn new(result: T) -> Self {
        Self {
            result,
            peak_memory_bytes: crate::system::peak_memory(),
        }
    }
}

/// How much is said besides the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verbosity {
    /// Errors, and what a question is about.
    Quiet,
    /// Warnings, hints and progress too.
    Normal,
    /// What is done, too.
    Verbose,
}

/// How results are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) as_json: bool,
    pub(crate) verbosity: Verbosity,
    /// The command that answers, as its schema names it: `workspace.list`.
    pub(crate) command: &'static str,
}

impl Output {
    /// Writes a result: as JSON in its envelope, or as `words` makes it for people.
    pub(crate) fn result<T: Serialize + JsonSchema + 'static>(
        self,
        result: &T,
        words: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        answers::ensure_declared::<T>(self.command);
        if self.as_json {
            return write_data(&envelope::document(self.command, result)?);
        }
        write_data(&color::result(suggestion::completed(&words(result))))
    }

    /// Writes what is told to people alone, on standard output.
    pub(crate) fn narrate(text: &str) -> anyhow::Result<()> {
        write_data(&color::result(suggestion::completed(text)))
    }

    /// Writes one of several results: as JSON on a line of its own, or as `words` makes it for people.
    pub(crate) fn result_line<T: Serialize + JsonSchema + 'static>(
        self,
        result: &T,
        words: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        if !self.as_json {
            return self.result(result, words);
        }
        answers::ensure_declared::<T>(self.command);
        write_data(&envelope::line(self.command, result)?)
    }

    /// Says something to the person who is watching; a program is not interested.
    pub(crate) fn say(self, text: &str) {
        if self.verbosity != Verbosity::Quiet {
            self.insist(text);
        }
    }

    /// Says what must be heard with `--quiet` too: what failed, why nothing was done, what a question is about.
    pub(crate) fn insist(self, text: &str) {
        if !self.as_json {
            write_talk(text);
        }
    }

    /// Says what is being done, to whoever asked for that.
    pub(crate) fn detail(self, text: &str) {
        if self.verbosity == Verbosity::Verbose {
            write_talk(text);
        }
    }

    /// Says what went less well than it should have; in JSON the result has said so already.
    pub(crate) fn warn(self, warnings: &[Warning]) {
        for warning in warnings {
            self.say(&format!("warning: {warning}"));
        }
    }

    /// Names the first entries that a copy of a tree lacks, and returns how many it named.
    pub(crate) fn left_out(self, entries: &[LeftOut]) -> u64 {
        let named = entries.iter().take(NAMED);
        for entry in named.clone() {
            let (path, why) = (printable(&entry.path), &entry.words);
            // These are in the copy all the same, but for a file that was never read whole.
            let is_there = matches!(entry.reason, SkipReason::Changed | SkipReason::Inconsistent);
            let what = if is_there { "warning:" } else { "skipped" };
            self.say(&format!("{what} {path}: {why}"));
        }
        named.len() as u64
    }
}

fn write_data(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let ending = if text.is_empty() { "" } else { "\n" };
    write!(stdout, "{text}{ending}")
        .and_then(|()| stdout.flush())
        .map_err(OutputLost)?;
    Ok(())
}

fn write_talk(text: &str) {
    let text = color::talk(suggestion::completed(text));
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `1 file`, `2 files`, `3 entries`, `4 days`, `5 sandboxes`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let stem = noun.strip_suffix('y');
    match (
        count,
        stem.filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])),
    ) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ if noun.ends_with('x') => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// The first eight characters of an id: enough to name it on the command line.
pub(crate) fn short(id: &impl std::fmt::Display) -> String {
    id.to_string().chars().take(8).collect()
}

/// How wide lines may be: as the terminal is, or as `COLUMNS` says. Whoever reads from a pipe gets whole lines.
pub(crate) fn width() -> Option<u16> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() {
        let size = tcgetwinsize(stdout).ok()?;
        return Some(size.ws_col).filter(|columns| *columns > 0);
    }
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// A table without lines, for people and for `awk`. Where it is too wide, the last column goes on below itself.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.to_vec());
    if let Some(width) = width() {
        table
            .set_width(width)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_constraints(vec![ColumnConstraint::ContentWidth; head.len() - 1]);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)).collect::<Vec<_>>());
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    let text = table.trim_fmt();
    match text.split_once('\n') {
        Some((head, rest)) => format!("{}\n{rest}", color::head(head)),
        None => color::head(&text),
    }
}

/// Text from elsewhere with everything escaped that could move a terminal's cursor.
pub(crate) fn printable(text: &str) -> String {
    let escape = |c: char| match c {
        ' '..='~' => c.to_string(),
        c if c.is_alphanumeric() => c.to_string(),
        c => c.escape_default().to_string(),
    };
    text.chars().map(escape).collect()
}

/// The word under which a plain enum is written in JSON.
pub(crate) fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
