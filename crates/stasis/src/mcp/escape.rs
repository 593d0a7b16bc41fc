//! What comes from the tree, made harmless for terminals and prompts.
//!
//! *Always true:* in nothing that was scrubbed is there a character that moves a cursor, reorders what stands beside it or is not
//! seen at all. Such a character becomes `\xNN` for each of its bytes: the way in which paths are written, so that a path from an
//! answer is understood when it comes back.

use serde_json::Value;
use std::fmt::Write;

/// The fields whose text has lines of its own.
const LINES: [&str; 1] = ["unified"];

/// Characters that take no room, or reorder what stands beside them.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn escape(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) && !is_kept(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                write!(safe, "\\x{byte:02x}").expect("a string takes what is written");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// One line of text.
pub(super) fn line(text: &str) -> String {
    escape(text, |_| false)
}

/// Text that keeps its lines and tabs.
pub(super) fn lines(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// Every text in an answer.
pub(super) fn scrub(value: &mut Value) {
    match value {
        Value::String(text) => *text = line(text),
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if LINES.contains(&name.as_str()) => *text = lines(text),
                    field => scrub(field),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_moves_a_cursor_or_is_not_seen_is_written_in_bytes() {
        let cases = [
            ("a\nb", "a\\x0ab"),
            ("\u{1b}[2J", "\\x1b[2J"),
            ("\u{9b}1m", "\\xc2\\x9b1m"),
            ("gpj.\u{202e}exe", "gpj.\\xe2\\x80\\xaeexe"),
            ("a\u{200b}b", "a\\xe2\\x80\\x8bb"),
            ("tag\u{e0041}", "tag\\xf3\\xa0\\x81\\x81"),
            ("soft\u{ad}", "soft\\xc2\\xad"),
            ("grün 日本 \\x41", "grün 日本 \\x41"),
        ];

        for (text, safe) in cases {
            assert_eq!(line(text), safe);
        }
    }

    #[test]
    fn only_a_diff_keeps_its_lines() {
        let mut answer = json!({
            "path": "a\nb",
            "unified": "+a\tb\r\n-\u{202e}c\n",
            "inside": [{ "path": "x\ty" }, "z\n"],
        });

        scrub(&mut answer);

        assert_eq!(
            answer,
            json!({
                "path": "a\\x0ab",
                "unified": "+a\tb\\x0d\n-\\xe2\\x80\\xaec\n",
                "inside": [{ "path": "x\\x09y" }, "z\\x0a"],
            })
        );
    }
}
