//! What differs between two texts, as a unified diff.

use similar::TextDiff;

/// The unified diff from `before` to `after`; empty when they are equal. A text that is not there is `None`.
pub(super) fn unified(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let name = |text: Option<&str>| text.map_or("/dev/null", |_| path).to_owned();
    let (old_name, new_name) = (name(before), name(after));
    // Split here: `similar` would also end a line at a carriage return alone, which no other tool does.
    let old: Vec<&str> = before.unwrap_or_default().split_inclusive('\n').collect();
    let new: Vec<&str> = after.unwrap_or_default().split_inclusive('\n').collect();
    let lines = TextDiff::configure()
        .newline_terminated(true)
        .diff_slices(&old, &new);
    // An empty file that comes or goes has no hunks, and `similar` then leaves the header out too.
    let hunks = lines.unified_diff().to_string();
    format!("--- {old_name}\n+++ {new_name}\n{hunks}")
}

#[cfg(test)]
mod tests;
