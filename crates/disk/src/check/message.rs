//! What is said of a database, bounded however much there is to say.

/// The longest message that is kept whole.
const LONGEST: usize = 300;

/// The first few messages, and how many more there were. Each is one line that is safe to print.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Messages {
    kept: Vec<String>,
    dropped: u64,
}

impl Messages {
    /// Adds a message, or counts it when `limit` are there already.
    pub fn push(&mut self, limit: usize, message: &str) {
        if self.kept.len() < limit {
            self.kept.push(printable(message));
        } else {
            self.dropped += 1;
        }
    }

    /// Those that were kept.
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// How many were not.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.dropped == 0
    }
}

/// One line without control characters, of bounded length.
pub(super) fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() || is_invisible(c) => '\u{fffd}',
        c => c,
    };
    let mut line: String = text.chars().take(LONGEST).map(shown).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

/// Characters that reorder or hide what stands beside them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_few_short_and_harmless() {
        let mut messages = Messages::default();

        messages.push(2, "one\ntwo\u{1b}[2J");
        messages.push(2, &"x".repeat(1000));
        messages.push(2, "three");

        assert_eq!(messages.kept()[0], "one two\u{fffd}[2J");
        assert_eq!(messages.kept()[1].chars().count(), LONGEST + 1);
        assert_eq!((messages.kept().len(), messages.dropped()), (2, 1));
    }
}
