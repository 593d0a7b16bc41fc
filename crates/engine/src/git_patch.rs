//! What differs in one file, as `git apply` takes it.
//!
//! *Always true:* a patch is text, whatever the files hold: what is not text is carried as Git carries binary files. Names that could be
//! taken for anything else are quoted as Git quotes them.

use similar::{DiffOp, DiffTag, TextDiff};
use stasis_disk::form::git_blob::{binary_literal, blob_id};
use std::fmt::Write as _;
use std::time::Duration;

/// Lines around a change.
const CONTEXT: usize = 3;
/// Longer texts are carried as binary files are.
const LONGEST_TEXT: usize = 8 << 20;
/// How long two texts are compared before the result need not be the shortest any more.
const DIFF_TIMEOUT: Duration = Duration::from_secs(2);
/// The name of nothing.
const NO_BLOB: &str = "0000000000000000000000000000000000000000";

/// A file, or a link, on one side of a patch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatchFile<'a> {
    /// As Git knows modes: a plain file, an executable one, or a link.
    pub(crate) mode: GitMode,
    /// Of a link, where it points.
    pub(crate) content: &'a [u8],
}

/// The modes that Git knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GitMode {
    Plain,
    Executable,
    Link,
}

impl GitMode {
    fn digits(self) -> &'static str {
        match self {
            Self::Plain => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

/// What differs in one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FilePatch {
    pub(crate) text: String,
    pub(crate) added: u64,
    pub(crate) removed: u64,
    pub(crate) is_binary: bool,
}

/// A file that has another content or mode; one that became a link, or was one, goes and comes anew.
pub(crate) fn changed(path: &[u8], before: PatchFile<'_>, after: PatchFile<'_>) -> FilePatch {
    if (before.mode == GitMode::Link) != (after.mode == GitMode::Link) {
        let (gone, new) = (deleted(path, before), created(path, after));
        return FilePatch {
            text: gone.text + &new.text,
            added: new.added,
            removed: gone.removed,
            is_binary: gone.is_binary || new.is_binary,
        };
    }
    let mut text = head(path, path);
    if before.mode != after.mode {
        mode_lines(&mut text, before.mode, after.mode);
    }
    if before.content == after.content {
        return FilePatch {
            text,
            ..FilePatch::default()
        };
    }
    let _ = write!(
        text,
        "index {}..{}",
        blob_id(before.content),
        blob_id(after.content)
    );
    if before.mode == after.mode {
        let _ = write!(text, " {}", after.mode.digits());
    }
    text.push('\n');
    body(text, Some(path), before.content, Some(path), after.content)
}

/// A file that was not there.
pub(crate) fn created(path: &[u8], after: PatchFile<'_>) -> FilePatch {
    let mut text = head(path, path);
    let _ = write!(
        text,
        "new file mode {}\nindex {NO_BLOB}..{}\n",
        after.mode.digits(),
        blob_id(after.content)
    );
    body(text, None, b"", Some(path), after.content)
}

/// A file that goes.
pub(crate) fn deleted(path: &[u8], before: PatchFile<'_>) -> FilePatch {
    let mut text = head(path, path);
    let _ = write!(
        text,
        "deleted file mode {}\nindex {}..{NO_BLOB}\n",
        before.mode.digits(),
        blob_id(before.content)
    );
    body(text, Some(path), before.content, None, b"")
}

/// A file with another name and the same content.
pub(crate) fn renamed(from: &[u8], to: &[u8], before: GitMode, after: GitMode) -> FilePatch {
    let mut text = head(from, to);
    if before != after {
        mode_lines(&mut text, before, after);
    }
    let (from, to) = (quoted(b"", from), quoted(b"", to));
    let _ = write!(
        text,
        "similarity index 100%\nrename from {from}\nrename to {to}\n"
    );
    FilePatch {
        text,
        ..FilePatch::default()
    }
}

fn head(from: &[u8], to: &[u8]) -> String {
    format!("diff --git {} {}\n", quoted(b"a/", from), quoted(b"b/", to))
}

fn mode_lines(text: &mut String, before: GitMode, after: GitMode) {
    let (before, after) = (before.digits(), after.digits());
    let _ = write!(text, "old mode {before}\nnew mode {after}\n");
}

/// The part of a patch that has the contents; a side without a path is nothing.
fn body(
    mut text: String,
    from: Option<&[u8]>,
    before: &[u8],
    to: Option<&[u8]>,
    after: &[u8],
) -> FilePatch {
    if before == after {
        // Only an empty file comes or goes without contents.
        return FilePatch {
            text,
            ..FilePatch::default()
        };
    }
    let (Some(was), Some(is)) = (lines(before), lines(after)) else {
        text.push_str("GIT binary patch\n");
        text.push_str(&binary_literal(after));
        text.push_str(&binary_literal(before));
        return FilePatch {
            text,
            is_binary: true,
            ..FilePatch::default()
        };
    };
    let _ = writeln!(text, "--- {}", side(b"a/", from));
    let _ = writeln!(text, "+++ {}", side(b"b/", to));
    let mut patch = FilePatch {
        text,
        ..FilePatch::default()
    };
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .diff_slices(&was, &is);
    for group in diff.grouped_ops(CONTEXT) {
        hunk(&mut patch, &group, &was, &is);
    }
    patch
}

fn hunk(patch: &mut FilePatch, group: &[DiffOp], was: &[&str], is: &[&str]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return;
    };
    let old = first.old_range().start..last.old_range().end;
    let new = first.new_range().start..last.new_range().end;
    let _ = writeln!(patch.text, "@@ -{} +{} @@", span(&old), span(&new));
    for op in group {
        let (tag, old, new) = op.as_tag_tuple();
        if tag == DiffTag::Equal {
            was[old].iter().for_each(|text| line(patch, ' ', text));
            continue;
        }
        patch.removed += old.len() as u64;
        patch.added += new.len() as u64;
        was[old].iter().for_each(|text| line(patch, '-', text));
        is[new].iter().for_each(|text| line(patch, '+', text));
    }
}

/// Where a hunk is: its first line and how many; what has none stands behind the line before it.
fn span(range: &std::ops::Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        count => format!("{},{count}", range.start + 1),
    }
}

fn line(patch: &mut FilePatch, sign: char, text: &str) {
    patch.text.push(sign);
    patch.text.push_str(text);
    if !text.ends_with('\n') {
        patch.text.push_str("\n\\ No newline at end of file\n");
    }
}

/// The lines of a text, each with its end; only a line feed ends one. Nothing for what is no text, or too long.
fn lines(content: &[u8]) -> Option<Vec<&str>> {
    if content.len() > LONGEST_TEXT || content.contains(&0) {
        return None;
    }
    let text = std::str::from_utf8(content).ok()?;
    Some(text.split_inclusive('\n').collect())
}

fn side(before: &[u8], path: Option<&[u8]>) -> String {
    let Some(path) = path else {
        return "/dev/null".to_owned();
    };
    let shown = quoted(before, path);
    // What stands behind a name with a blank would be taken for a part of it.
    let end = if path.contains(&b' ') { "\t" } else { "" };
    format!("{shown}{end}")
}

/// A name as Git writes it: quoted if it has anything but plain characters.
fn quoted(before: &[u8], path: &[u8]) -> String {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) && !matches!(byte, b'"' | b'\\');
    let whole = [before, path].concat();
    let text: String = whole.iter().map(|byte| escaped(*byte)).collect();
    if whole.iter().all(is_plain) {
        text
    } else {
        format!("\"{text}\"")
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\n' => "\\n".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'"' => "\\\"".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> PatchFile<'_> {
        PatchFile {
            mode: GitMode::Plain,
            content: text.as_bytes(),
        }
    }

    #[test]
    fn a_change_has_names_modes_and_hunks() {
        let patch = changed(b"a b", plain("1\n2\n3"), plain("1\ntwo\n3\n"));

        let lines: Vec<&str> = patch.text.lines().collect();
        assert_eq!(lines[0], "diff --git a/a b b/a b");
        assert!(lines[1].starts_with("index ") && lines[1].ends_with(" 100644"));
        assert_eq!(
            lines[2..],
            [
                "--- a/a b\t",
                "+++ b/a b\t",
                "@@ -1,3 +1,3 @@",
                " 1",
                "-2",
                "-3",
                "\\ No newline at end of file",
                "+two",
                "+3",
            ]
        );
        assert_eq!((patch.added, patch.removed), (2, 2));
    }

    #[test]
    fn what_comes_and_goes_has_nothing_on_the_other_side() {
        let new = created(b"x", plain("1\n")).text;
        let gone = deleted(b"x", plain("1\n")).text;

        assert!(new.contains("new file mode 100644\n"), "{new}");
        assert!(
            new.contains("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+1\n"),
            "{new}"
        );
        assert!(
            gone.contains("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"),
            "{gone}"
        );
    }

    #[test]
    fn names_are_quoted_as_git_quotes_them() {
        assert_eq!(quoted(b"a/", b"plain name"), "a/plain name");
        assert_eq!(quoted(b"a/", b"t\ta\"b\\c"), "\"a/t\\ta\\\"b\\\\c\"");
        assert_eq!(quoted(b"b/", "ä".as_bytes()), "\"b/\\303\\244\"");
    }

    #[test]
    fn a_carriage_return_ends_no_line_and_a_zero_makes_a_file_binary() {
        let text = changed(b"x", plain("a\rb\n"), plain("a\rc\n"));
        let binary = changed(b"x", plain("a\0"), plain("b\0"));

        assert!(
            text.text.ends_with("@@ -1 +1 @@\n-a\rb\n+a\rc\n"),
            "{:?}",
            text.text
        );
        assert!(binary.is_binary && binary.text.contains("GIT binary patch\nliteral 2\n"));
    }
}
