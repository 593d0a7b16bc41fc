//! What only somebody on this host should know: its paths, and where the store is.

use serde_json::Value;

/// The text without what only somebody on this host should know: paths and addresses.
pub(super) fn scrubbed(text: &str) -> String {
    let mut is_quoted = true;
    let parts = text.split('`').map(|part| {
        is_quoted = !is_quoted;
        // With quotes around it, a path may have spaces.
        if is_quoted && (part.starts_with('/') || part.contains("://")) {
            return "…".to_owned();
        }
        let words = part.split_inclusive(char::is_whitespace).map(|word| {
            let name = word.trim_end();
            let end = &word[name.len()..];
            if is_private(name) {
                format!("…{end}")
            } else {
                word.to_owned()
            }
        });
        words.collect()
    });
    parts.collect::<Vec<String>>().join("`")
}

/// Whether a word is, or has in it, an address or a path from the root.
fn is_private(word: &str) -> bool {
    let is_path = |at: usize| {
        let before = word[..at].chars().next_back();
        let begins = before.is_none_or(|before| "([{<\"'=:,;".contains(before));
        begins && word.len() > at + 1
    };
    word.contains("://") || word.match_indices('/').any(|(at, _)| is_path(at))
}

/// The same of every text in a document.
pub(super) fn scrub(document: &mut Value) {
    match document {
        Value::String(text) => *text = scrubbed(text),
        Value::Array(all) => all.iter_mut().for_each(scrub),
        Value::Object(all) => all.values_mut().for_each(scrub),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_and_addresses_of_this_host_are_left_out() {
        let text = "there is no snapshot `ab` in `/srv/store`, nor in `s3://bucket/a?endpoint=x`";

        let said = scrubbed(text);

        assert_eq!(said, "there is no snapshot `ab` in `…`, nor in `…`");
        assert_eq!(scrubbed("`a/b` is kept"), "`a/b` is kept");
    }

    #[test]
    fn what_is_not_quoted_is_left_out_as_well() {
        for (text, wanted) in [
            ("open /srv/a: denied", "open … denied"),
            ("GET http://10.0.0.1:9000/b?x failed", "GET … failed"),
            ("at (/srv/a) or file=/etc/b", "at … or …"),
            ("the file \"/srv/a\", too", "the file … too"),
            ("acme/alice@131 and/or 1 / 2", "acme/alice@131 and/or 1 / 2"),
            ("<tenant>/<profile>", "<tenant>/<profile>"),
            ("`cannot open /srv/a`", "`cannot open …`"),
        ] {
            assert_eq!(scrubbed(text), wanted);
        }
    }

    #[test]
    fn every_text_of_a_document_is_looked_at() {
        let mut document =
            json!({ "why": ["open /srv/a: denied", 7], "more": { "at": "s3://b/c" } });

        scrub(&mut document);

        assert_eq!(
            document,
            json!({ "why": ["open … denied", 7], "more": { "at": "…" } })
        );
    }
}
