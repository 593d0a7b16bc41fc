//! Names of databases, and how they are written in SQL.

/// PostgreSQL cuts longer names off, and two might become one.
const LONGEST: usize = 63;

/// Tells one restore from all others, and when it began: a second since 1970, as eight hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u32);

/// What a database beside the one in use is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// It was restored and is not swapped yet.
    Staged,
    /// It had the name before.
    Before,
}

impl Tag {
    /// Reads eight digits of `0-9a-f`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = u32::from_str_radix(text, 16).ok();
        number.filter(|_| digits && text.len() == 8).map(Self)
    }

    /// The tag of a restore that began in a second since 1970.
    pub fn at_second(second: u32) -> Self {
        Self(second)
    }

    /// When the restore began, in seconds since 1970.
    pub fn second(self) -> u32 {
        self.0
    }

    /// What is restored, before it is swapped.
    pub(super) fn staged(self, database: &str) -> String {
        self.name(database, Word::Staged)
    }

    /// What was there before, after the swap.
    pub(super) fn before(self, database: &str) -> String {
        self.name(database, Word::Before)
    }

    pub(super) fn name(self, database: &str, word: Word) -> String {
        let word = match word {
            Word::Staged => "stasis",
            Word::Before => "before",
        };
        let end = format!("_{word}_{:08x}", self.0);
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
        let tag = Tag::parse("00c0ffee").unwrap();

        assert_eq!(tag.staged("shop"), "shop_stasis_00c0ffee");
        assert_eq!(tag.before("shop"), "shop_before_00c0ffee");
        let long = tag.staged(&"ä".repeat(40));
        assert!(long.len() <= LONGEST && long.ends_with("ä_stasis_00c0ffee"));
    }

    #[test]
    fn only_eight_hex_digits_are_a_tag() {
        for wrong in ["", "00c0ffe", "00c0ffeef", "00C0FFEE", "00c0ffe'"] {
            assert_eq!(Tag::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_cannot_become_statements() {
        assert_eq!(identifier("a\"; DROP"), "\"a\"\"; DROP\"");
        assert_eq!(literal("a'\\b"), "E'a''\\\\b'");
        assert_eq!(conninfo("host=x '\\"), "dbname='host=x \\'\\\\'");
    }
}
