//! Text from outside, made fit to stand in a message of ours.

/// The beginning of `text` in one line: white space folded, whatever cannot be printed escaped, and `…` where more
/// than `most` characters were cut.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown = String::new();
    let mut length = 0;
    for c in words.chars() {
        let piece = match c {
            '"' | '\'' | '\\' => c.to_string(),
            c => c.escape_debug().to_string(),
        };
        length += piece.chars().count();
        if length > most {
            shown.push('…');
            break;
        }
        shown.push_str(&piece);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_become_one_and_what_cannot_be_printed_is_escaped() {
        let text = " it's\r\n\t\"so\"\u{1b}[31m \u{202e}red\u{0} ";

        assert_eq!(excerpt(text, 99), "it's \"so\"\\u{1b}[31m \\u{202e}red\\0");
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!(excerpt("12345", 5), "12345");
        assert_eq!(excerpt("123456", 5), "12345…");
        assert_eq!(excerpt("1234\u{1b}", 5), "1234…");
    }
}
