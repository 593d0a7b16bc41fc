//! Adds to a JSON text and takes away from it, and leaves every other byte alone.
//!
//! An addition comes last in its container, in the way in which its neighbours are written: on lines of its own with
//! their indentation, or on theirs. What is taken away takes its comma and the white space before it along, so that
//! taking away what was added gives back the bytes of before.
//!
//! *Always true:* a container that we made begins with white space; one that was there and empty is filled from its
//! bracket on, without any. That is how a container which is empty again is known to be ours, and goes as well.

use super::json_text::Node;
use serde::Serialize;
use std::ops::Range;

/// Where something is added, and how.
struct JsonLayout {
    /// In front of every line but the first.
    indent: String,
    /// One step of indentation.
    unit: String,
    /// How lines end; `None` when all stands on one line.
    newline: Option<&'static str>,
}

/// Adds `value` to a container: under `key` to an object, at the end of an array without one.
pub(super) fn added<T: Serialize>(
    text: &str,
    container: &Node,
    key: Option<&str>,
    value: &T,
) -> String {
    let inside = container.inside();
    let place = JsonLayout::of(text, container, inside.first());
    let element = place.element(key, value);
    let opened = container.span.start + 1;
    let Some(last) = inside.last() else {
        return replaced(text, opened..opened, &element);
    };
    // Whatever follows the last one, such as a comment, stays with it.
    let close = container.span.end - 1;
    let before_close = text.get(..close).unwrap_or_default();
    let end = match place.newline {
        Some(_) => before_close.trim_end().len(),
        None => last.end,
    };
    let separator = match place.newline {
        Some(newline) => format!("{newline}{}", place.indent),
        None => " ".to_owned(),
    };
    let with_it = replaced(text, end..end, &format!("{separator}{element}"));
    replaced(&with_it, last.end..last.end, ",")
}

/// Takes the element or member that stands at `span` out of its container.
pub(super) fn without(text: &str, container: &Node, span: &Range<usize>) -> String {
    let inside = container.inside();
    let at = inside.iter().position(|one| one == span);
    let followed = at.is_some_and(|at| at + 1 < inside.len());
    if followed {
        // The next one takes its place, on its line.
        let comma = comma(text, span.end);
        let rest = text.get(comma.end..).unwrap_or_default();
        let next = text.len() - rest.trim_start().len();
        let kept = text.get(span.end..comma.start).unwrap_or_default();
        return replaced(text, span.start..next, kept);
    }
    let before = text.get(..span.start).unwrap_or_default();
    let blank = before.trim_end().len()..span.start;
    let before = at.and_then(|at| at.checked_sub(1)).map(|at| &inside[at]);
    let between = before.map_or(container.span.start + 1, |before| before.end)..blank.start;
    let between = text.get(between).unwrap_or_default();
    let behind = text
        .get(span.end..)
        .unwrap_or_default()
        .trim_start_matches([' ', '\t', '\r']);
    // A comment that ends with its line must not swallow what follows on ours.
    let swallows = ends_in_comment(between) && !behind.starts_with('\n');
    let kept = if swallows { "\n" } else { "" };
    let rest = replaced(text, blank.start..span.end, kept);
    match before {
        Some(before) => replaced(&rest, comma(text, before.end), ""),
        None => rest,
    }
}

/// Whether a container was made by [`added`], rather than filled.
pub(super) fn is_ours(text: &str, container: &Node) -> bool {
    let inside = text.get(container.span.start + 1..).unwrap_or_default();
    inside.starts_with(char::is_whitespace)
}

/// A document of its own.
pub(super) fn document<T: Serialize>(value: &T) -> String {
    let place = JsonLayout {
        indent: String::new(),
        unit: "  ".to_owned(),
        newline: Some("\n"),
    };
    format!("{}\n", place.element(None, value))
}

/// The first comma from `from` on that is in no comment: only blanks and comments lie between two elements.
fn comma(text: &str, from: usize) -> Range<usize> {
    let mut at = from;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        at += match (comment(rest), rest.chars().next()) {
            (Some(length), _) => length,
            (None, Some(',')) => return at..at + 1,
            (None, Some(other)) => other.len_utf8(),
            (None, None) => return at..at,
        };
    }
}

/// How long the comment is that a text begins with; one that lasts until the end of its line leaves that out.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let inside = text.strip_prefix("/*")?;
    Some(
        inside
            .find("*/")
            .map_or(text.len(), |end| end + "/**/".len()),
    )
}

/// Whether what lies between two elements ends in a comment that goes on until the end of the line.
fn ends_in_comment(between: &str) -> bool {
    let mut rest = between;
    while let Some(first) = rest.chars().next() {
        let length = comment(rest);
        if rest.starts_with("//") && length == Some(rest.len()) {
            return true;
        }
        let step = length.unwrap_or(first.len_utf8());
        rest = rest.get(step..).unwrap_or_default();
    }
    false
}

fn replaced(text: &str, span: Range<usize>, with: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(span, with);
    text
}

impl JsonLayout {
    fn of(text: &str, container: &Node, first: Option<&Range<usize>>) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let unit = unit(text);
        match first.map(|first| line_indent(text, first.start)) {
            // The elements have lines of their own.
            Some((indent, true)) => Self {
                indent: indent.to_owned(),
                unit,
                newline: Some(newline),
            },
            // They share one.
            Some((indent, false)) => Self {
                indent: indent.to_owned(),
                unit,
                newline: None,
            },
            // There are none.
            None => Self {
                indent: line_indent(text, container.span.start).0.to_owned(),
                unit,
                newline: Some(newline),
            },
        }
    }

    fn element<T: Serialize>(&self, key: Option<&str>, value: &T) -> String {
        let mut bytes = Vec::new();
        let pretty = serde_json::ser::PrettyFormatter::with_indent(self.unit.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, pretty);
        value
            .serialize(&mut serializer)
            .expect("plain structs of text and numbers are always JSON");
        let pretty = String::from_utf8(bytes).expect("JSON is written as UTF-8");
        let key = key.map_or_else(String::new, |key| format!("\"{key}\": "));
        let value = if let Some(newline) = self.newline {
            pretty.replace('\n', &format!("{newline}{}", self.indent))
        } else {
            let lines: Vec<&str> = pretty.lines().map(str::trim).collect();
            lines.join(" ")
        };
        format!("{key}{value}")
    }
}

/// The blanks at the beginning of the line that `at` is in, and whether nothing else stands between them and `at`.
fn line_indent(text: &str, at: usize) -> (&str, bool) {
    let before = text.get(..at).unwrap_or_default();
    let (has_line, line) = match before.rfind('\n') {
        Some(end) => (true, before.get(end + 1..).unwrap_or_default()),
        None => (false, before),
    };
    let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
    let blanks = line.get(..indent).unwrap_or_default();
    (blanks, has_line && indent == line.len())
}

/// One step of indentation: that of the first line that has one.
fn unit(text: &str) -> String {
    let indents = text.lines().map(|line| {
        let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
        line.get(..blanks).unwrap_or_default()
    });
    let first = indents.into_iter().find(|indent| !indent.is_empty());
    first.unwrap_or("  ").to_owned()
}

#[cfg(test)]
mod tests;
