//! Names of databases, and how they are written in SQL.

use std::str::FromStr;

/// PostgreSQL cuts longer names off, and two might become one.
const LONGEST: usize = 63;

/// Eight hex digits that tell this restore from all others; from whoever has chance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tag(String);

/// It is not eight digits of `0-9a-f`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a tag is eight lower-case hex digits")]
pub struct BadTag;

impl FromStr for Tag {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (digits && text.len() == 8)
            .then(|| Self(text.to_owned()))
            .ok_or(BadTag)
    }
}

impl Tag {
    /// What is restored, before it is swapped.
    pub(super) fn staged(&self, database: &str) -> String {
        self.after(database, "stasis")
    }

    /// What was there before, after the swap.
    pub(super) fn before(&self, database: &str) -> String {
        self.after(database, "before")
    }

    fn after(&self, database: &str, word: &str) -> String {
        let end = format!("_{word}_{}", self.0);
        let most = database.floor_char_boundary(LONGEST - end.len());
        format!("{}{end}", &database[..most])
    }
}

/// As a name in SQL.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// As a text in SQL, whatever the server thinks of backslashes.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// As the whole of what a program connects to, so that a name with `=` in it is only a name.
pub(super) fn conninfo(database: &str) -> String {
    let quoted = database.replace('\\', "\\\\").replace('\'', "\\'");
    format!("dbname='{quoted}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_where_a_character_ends() {
        let tag: Tag = "00c0ffee".parse().unwrap();

        assert_eq!(tag.staged("shop"), "shop_stasis_00c0ffee");
        assert_eq!(tag.before("shop"), "shop_before_00c0ffee");
        let long = tag.staged(&"ä".repeat(40));
        assert!(long.len() <= LONGEST && long.ends_with("ä_stasis_00c0ffee"));
    }

    #[test]
    fn only_eight_hex_digits_are_a_tag() {
        for wrong in ["", "00c0ffe", "00c0ffeef", "00C0FFEE", "00c0ffe'"] {
            assert_eq!(wrong.parse::<Tag>(), Err(BadTag), "{wrong}");
        }
    }

    #[test]
    fn names_cannot_become_statements() {
        assert_eq!(identifier("a\"; DROP"), "\"a\"\"; DROP\"");
        assert_eq!(literal("a'\\b"), "E'a''\\\\b'");
        assert_eq!(conninfo("host=x '\\"), "dbname='host=x \\'\\\\'");
    }
}
