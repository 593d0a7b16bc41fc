//! A command line that cannot be understood, as programs are told of it: one sentence, and what to do now.

use stasis_engine::error::Error;
use stasis_engine::model::failure::{ErrorKind, Failure};

/// What clap says to people, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UsageText {
    message: String,
    hint: String,
}

impl UsageText {
    /// Reads what clap prints: what is wrong, and after it tips, the usage and where to look, each in a paragraph.
    fn read(text: &str) -> Self {
        let text = text.trim().trim_start_matches("error: ");
        let mut paragraphs = text.split("\n\n").map(sentence);
        let message = paragraphs.next().unwrap_or_default();
        let rest = paragraphs.filter(|one| !one.is_empty()).map(|one| {
            if let Some(usage) = one.strip_prefix("Usage: ") {
                return format!("usage: {usage}");
            }
            one.replace("For more information, try '--help'.", "--help says more")
        });
        Self {
            message,
            hint: rest.collect::<Vec<_>>().join("; "),
        }
    }
}

/// The lines of a paragraph as one: what a line with a colon announces is listed with commas.
fn sentence(paragraph: &str) -> String {
    let lines = paragraph.lines().map(str::trim);
    let mut said = String::new();
    let mut is_list = false;
    for line in lines.filter(|line| !line.is_empty()) {
        let line = line.strip_prefix("tip: ").unwrap_or(line);
        said += match (said.is_empty(), said.ends_with(':'), is_list) {
            (true, ..) => "",
            (_, false, true) => ", ",
            _ => " ",
        };
        said += line;
        is_list |= said.ends_with(':');
    }
    said
}

/// The error that a mistake on the command line is.
pub(super) fn error(mistake: &clap::Error) -> Error {
    let UsageText { message, hint } = UsageText::read(&mistake.to_string());
    let failure = Failure::of(ErrorKind::Invalid, message);
    if hint.is_empty() {
        failure.into()
    } else {
        failure.with_hint(hint).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    fn of(words: &[&str]) -> UsageText {
        let typed = std::iter::once(&"stasis").chain(words);
        let refused = help::program().try_get_matches_from(typed).unwrap_err();
        UsageText::read(&refused.to_string())
    }

    #[test]
    fn a_mistake_is_one_sentence_and_what_helps_is_the_hint() {
        let typo = of(&["save", "--lable", "x"]);

        assert_eq!(typo.message, "unexpected argument '--lable' found");
        assert!(
            typo.hint
                .starts_with("a similar argument exists: '--label'; usage: stasis save "),
            "{}",
            typo.hint
        );
    }

    #[test]
    fn what_is_missing_and_what_is_possible_is_in_the_sentence() {
        let missing = of(&["clone"]);
        let other = of(&["list", "--color", "pink"]);

        assert_eq!(
            missing.message,
            "the following required arguments were not provided: <SRC>, <DST>"
        );
        assert_eq!(
            other.message,
            "invalid value 'pink' for '--color <WHEN>' [possible values: auto, always, never]"
        );
    }

    #[test]
    fn no_part_has_colour_or_a_second_line() {
        for words in [
            &["nosuch"][..],
            &["workspace"],
            &["fork", "--count", "0"],
            &["rewind", "--list", "--yes"],
            &["forget"],
        ] {
            let UsageText { message, hint } = of(words);
            let is_plain =
                |text: &str| !text.contains(['\n', '\u{1b}']) && !text.contains("error:");
            assert!(!message.is_empty(), "{words:?}");
            assert!(is_plain(&message) && is_plain(&hint), "{message}; {hint}");
        }
    }
}
