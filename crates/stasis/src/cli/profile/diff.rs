//! `stasis profile diff`

use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::output::printable;
use crate::cli::progress::cancel_on_signals;
use crate::report::Exit;
use clap::Args;
use stasis_engine::check::Spawn;
use stasis_engine::kind::profile::{self, Changes, CookieName, OneSided, ProfileDiff, Wanted};
use stasis_engine::model::id::ProfileRef;

/// How many lines of one kind are shown to people.
const SHOWN: usize = 50;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileDiffArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    subject: ProfileRef,
    /// The older snapshot: the beginning of its sha256, or `latest`
    #[arg(value_name = "A")]
    before: Wanted,
    /// The newer snapshot
    #[arg(value_name = "B")]
    after: Wanted,
}

impl ProfileDiffArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let cmd = profile::DiffSnapshots {
            lineage: engine.profiles().one_lineage(&self.subject).await?,
            before: self.before,
            after: self.after,
            scratch: context.spool()?,
            spawn: Spawn {
                program: std::env::current_exe()?,
                arguments: vec!["internal".into(), "check-sqlite".into()],
            },
            cancel: cancel_on_signals()?,
        };
        let diff = engine.profiles().diff(&cmd).await?;
        context.output.warn(&diff.warnings);
        say_unread(context, &diff);
        context.output.result(&diff, diff_text)?;
        Ok(Exit::Done)
    }
}

/// Names what could not be looked into.
pub(super) fn say_unread(context: &CliContext, diff: &ProfileDiff) {
    for unread in &diff.unread {
        let text = format!("warning: not looked into: {}", printable(unread));
        context.output.say(&text);
    }
}

pub(super) fn diff_text(diff: &ProfileDiff) -> String {
    let mut lines = Vec::new();
    let cookie = |one: &CookieName| format!("{} {}", one.site, one.name);
    section(&mut lines, "cookie", &diff.cookies, cookie);
    section(
        &mut lines,
        "localStorage",
        &diff.local_storage,
        String::clone,
    );
    section(&mut lines, "IndexedDB", &diff.indexed_db, String::clone);
    // Who the profile is known to comes first: files change with every start.
    let file = |one: &OneSided| format!("{} ({})", one.path, size(one.size_bytes));
    section(&mut lines, "file", &diff.files, file);
    let changed = diff.changed.iter().map(|one| {
        let (before, after) = (size(one.before_bytes), size(one.after_bytes));
        format!("~ file {} ({before} → {after})", printable(&one.path))
    });
    lines.extend(few(changed.collect(), "~ file"));
    if lines.is_empty() {
        lines.push("no differences".to_owned());
    }
    lines.join("\n")
}

fn section<T>(
    lines: &mut Vec<String>,
    what: &str,
    changes: &Changes<T>,
    text: impl Fn(&T) -> String,
) {
    for (sign, all) in [("-", &changes.removed), ("+", &changes.added)] {
        let begins = format!("{sign} {what}");
        let all = all
            .iter()
            .map(|one| format!("{begins} {}", printable(&text(one))));
        lines.extend(few(all.collect(), &begins));
    }
}

/// The first few lines, and how many more there are.
fn few(mut lines: Vec<String>, begins: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("{begins} and {more} more; --json has all"));
    }
    lines
}
