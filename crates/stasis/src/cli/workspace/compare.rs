//! What differs between two whole trees: a list, a diffstat, or a patch

use super::counted;
use super::look::still;
use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable};
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::workspace::{
    CompareTrees, ComparedContent, ComparedTrees, DiffStat, FileStat, PatchGap, PatchGapReason,
    TreeRef, Workspace,
};
use std::io::IsTerminal as _;

/// How many entries are shown to people.
const SHOWN: usize = 40;
/// How many of those that are in no patch are named.
const GAPS_SHOWN: usize = 10;
/// How wide a line of a diffstat is.
const WIDTH: usize = 79;
/// How wide its bar is at most.
const BAR: u64 = 30;

/// How much of a comparison is shown.
#[derive(Debug, Args, Clone, Copy)]
pub(in crate::cli) struct ComparedArgs {
    /// Print one patch of the whole tree, as `git apply` takes it; ends with 13 if it lacks an entry
    #[arg(long, short)]
    patch: bool,
    /// Show how many lines differ in each file
    #[arg(long, conflicts_with = "patch")]
    stat: bool,
}

impl ComparedArgs {
    /// How much of the contents is wanted.
    pub(in crate::cli) fn content(self) -> ComparedContent {
        match (self.patch, self.stat) {
            (true, _) => ComparedContent::Patch,
            (_, true) => ComparedContent::Stat,
            _ => ComparedContent::None,
        }
    }

    pub(in crate::cli) fn is_any(self) -> bool {
        self.patch || self.stat
    }

    /// Compares two trees, and shows what differs.
    pub(super) async fn compare(
        self,
        context: &CliContext,
        workspace: &Workspace,
        before: TreeRef,
        after: TreeRef,
    ) -> anyhow::Result<Exit> {
        let command = CompareTrees {
            before,
            after,
            content: self.content(),
        };
        let found = workspace.compare(command).await?;
        for path in &found.not_compared {
            let path = printable(path);
            context.output.say(&format!(
                "warning: `{path}` could not be read, and was not compared"
            ));
        }
        let lacks_entry = say_gaps(context, &found.content.not_in_patch);
        if found.changes.is_empty() {
            let (before, after) = (&found.before, &found.after);
            context
                .output
                .say(&format!("nothing differs between {before} and {after}"));
        }
        context.output.result(&found, compared_text)?;
        Ok(if lacks_entry || !found.not_compared.is_empty() {
            Exit::Incomplete
        } else {
            Exit::Done
        })
    }
}

/// Says what differs and is in no patch; and whether that is a whole entry.
pub(in crate::cli) fn say_gaps(context: &CliContext, gaps: &[PatchGap]) -> bool {
    for line in gap_lines(gaps) {
        context.output.say(&line);
    }
    gaps.iter().any(|gap| gap.why.is_entry())
}

fn gap_lines(gaps: &[PatchGap]) -> Vec<String> {
    let line = |gap: &PatchGap| {
        let path = printable(&gap.path);
        match gap.why {
            PatchGapReason::TooLarge => {
                format!("warning: {path} is not in the patch: it is longer than 32 MiB")
            }
            PatchGapReason::EmptyDirectory => {
                format!("warning: {path} is not in the patch: git knows no empty directories")
            }
            PatchGapReason::GitRepository => {
                format!("note: {path} differs, and is not in the patch")
            }
            PatchGapReason::Mode => {
                format!("note: of the mode of {path} only the x is in the patch")
            }
            PatchGapReason::Attributes => {
                format!("note: extended attributes of {path} are not in the patch")
            }
        }
    };
    // What is missing comes first.
    let mut gaps: Vec<&PatchGap> = gaps.iter().collect();
    gaps.sort_by_key(|gap| !gap.why.is_entry());
    let mut lines: Vec<String> = gaps.iter().take(GAPS_SHOWN).map(|gap| line(gap)).collect();
    let more = gaps.len().saturating_sub(GAPS_SHOWN);
    if more > 0 {
        lines.push(format!("note: {more} more; --json lists all"));
    }
    lines
}

fn compared_text(found: &ComparedTrees) -> String {
    if let Some(patch) = &found.content.patch {
        return patch_text(patch);
    }
    if found.changes.is_empty() {
        return String::new();
    }
    if let Some(stat) = &found.content.stat {
        return stat_text(stat);
    }
    let shown = found.changes.iter().take(SHOWN);
    let mut lines: Vec<String> = shown
        .map(|one| {
            let size = one.size.map(|bytes| format!("  {}", size(bytes)));
            let size = size.unwrap_or_default();
            format!("{:<9} {}{size}", one.op, printable(&one.path))
        })
        .collect();
    let more = found.changes.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("and {more} more; --json lists all"));
    }
    let summary = found.summary;
    let counts = [
        (summary.created, "created"),
        (summary.edited, "modified"),
        (summary.deleted, "deleted"),
    ];
    lines.push(format!(
        "from {} to {}: {}",
        found.before,
        found.after,
        counted(&counts)
    ));
    lines.join("\n")
}

/// A patch, without what could move a terminal's cursor where there is one.
pub(in crate::cli) fn patch_text(patch: &str) -> String {
    let patch = patch.strip_suffix('\n').unwrap_or(patch);
    if std::io::stdout().is_terminal() {
        still(patch)
    } else {
        patch.to_owned()
    }
}

/// One line for each file, as wide as a terminal, and the sum.
pub(in crate::cli) fn stat_text(stat: &DiffStat) -> String {
    let most = stat
        .files
        .iter()
        .map(|file| file.added + file.removed)
        .max();
    let most = most.unwrap_or_default().max(1);
    let names: Vec<String> = stat.files.iter().map(name).collect();
    let longest = names.iter().map(|name| name.chars().count()).max();
    let counts: Vec<String> = stat.files.iter().map(count).collect();
    let digits = counts.iter().map(String::len).max().unwrap_or_default();
    let bar = usize::try_from(BAR.min(most)).unwrap_or_default();
    let room = WIDTH.saturating_sub(digits + bar + 6);
    let width = longest.unwrap_or_default().min(room);
    let rows = stat.files.iter().zip(names).zip(counts);
    let mut lines: Vec<String> = rows
        .map(|((file, name), count)| {
            let name = shortened(&name, width);
            let bar = bar_of(file, most);
            let line = format!(" {name:<width$} | {count:>digits$} {bar}");
            line.trim_end().to_owned()
        })
        .collect();
    let files = stat.files.len() as u64;
    let mut sum = vec![format!("{} changed", plural(files, "file"))];
    if stat.insertions > 0 {
        sum.push(format!("{}(+)", plural(stat.insertions, "insertion")));
    }
    if stat.deletions > 0 {
        sum.push(format!("{}(-)", plural(stat.deletions, "deletion")));
    }
    lines.push(format!(" {}", sum.join(", ")));
    lines.join("\n")
}

fn name(file: &FileStat) -> String {
    let path = printable(&file.path);
    match &file.renamed_from {
        Some(from) => format!("{} => {path}", printable(from)),
        None => path,
    }
}

fn count(file: &FileStat) -> String {
    if file.is_binary {
        return "bin".to_owned();
    }
    (file.added + file.removed).to_string()
}

/// As many signs as lines, or fewer in proportion; what differs has one at least.
fn bar_of(file: &FileStat, most: u64) -> String {
    if file.is_binary {
        let bytes = |bytes: Option<u64>| size(bytes.unwrap_or_default());
        let (before, after) = (bytes(file.size_before), bytes(file.size_after));
        return format!("{before} -> {after}");
    }
    let scaled = |lines: u64| {
        let signs = if most <= BAR {
            lines
        } else {
            lines.saturating_mul(BAR) / most
        };
        usize::try_from(signs.max(u64::from(lines > 0))).unwrap_or_default()
    };
    "+".repeat(scaled(file.added)) + &"-".repeat(scaled(file.removed))
}

/// The end of a name that is too long.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = name.chars().skip(length - width.saturating_sub(3));
    format!("...{}", kept.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_too_long_keep_their_ends() {
        assert_eq!(shortened("src/main.rs", 20), "src/main.rs");
        assert_eq!(shortened("src/main.rs", 10), "...main.rs");
    }
}
