//! Colour, where somebody sees it: at a terminal, unless `NO_COLOR` or `--color` says otherwise.

use crate::env::Environment;
use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// `--color`
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum ColorArg {
    /// At a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// Where colour is on.
#[derive(Clone, Copy, Debug, Default)]
struct Colored {
    stdout: bool,
    stderr: bool,
}

static COLORED: OnceLock<Colored> = OnceLock::new();

/// Decides for both streams, once.
pub(super) fn decide(said: ColorArg, environment: &Environment) {
    let has = |is_terminal: bool| is_on(said, is_terminal, environment.allows_color);
    let _ = COLORED.set(Colored {
        stdout: has(std::io::stdout().is_terminal()),
        stderr: has(std::io::stderr().is_terminal()),
    });
}

fn is_on(said: ColorArg, is_terminal: bool, is_allowed: bool) -> bool {
    match said {
        ColorArg::Auto => is_terminal && is_allowed,
        ColorArg::Always => true,
        ColorArg::Never => false,
    }
}

/// What `--color` says, for the help that clap prints before anything is parsed.
pub(super) fn of_help<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> clap::ColorChoice {
    let mut said = ColorArg::Auto;
    let mut is_next = false;
    for argument in arguments.take_while(|argument| *argument != "--") {
        let text = argument.to_str().unwrap_or_default();
        let value = match text.strip_prefix("--color=") {
            None if is_next => Some(text),
            value => value,
        };
        is_next = text == "--color";
        if let Some(Ok(value)) = value.map(|value| ColorArg::from_str(value, false)) {
            said = value;
        }
    }
    match said {
        ColorArg::Auto => clap::ColorChoice::Auto,
        ColorArg::Always => clap::ColorChoice::Always,
        ColorArg::Never => clap::ColorChoice::Never,
    }
}

/// The head of a table.
pub(super) fn head(line: &str) -> String {
    let colored = COLORED.get().copied().unwrap_or_default();
    painted(line, Style::new().bold(), colored.stdout)
}

/// What a part of a story on standard output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Title,
    /// What somebody types.
    Command,
    Good,
    Bad,
    /// What explains the rest.
    Aside,
}

/// A part of a story on standard output.
pub(super) fn toned(text: &str, tone: Tone) -> String {
    let style = match tone {
        Tone::Title => Style::new().bold(),
        Tone::Command => AnsiColor::Cyan.on_default(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
        Tone::Aside => Style::new().dimmed(),
    };
    let colored = COLORED.get().copied().unwrap_or_default();
    painted(text, style, colored.stdout)
}

/// A result: its verdict, if it begins with one.
pub(super) fn result(text: String) -> String {
    const VERDICTS: [(&str, AnsiColor); 2] =
        [("OK", AnsiColor::Green), ("DAMAGED", AnsiColor::Red)];
    let colored = COLORED.get().copied().unwrap_or_default();
    lead(text, &VERDICTS, colored.stdout)
}

/// A line for the user: what kind it is of.
pub(crate) fn talk(text: String) -> String {
    const KINDS: [(&str, AnsiColor); 4] = [
        ("error", AnsiColor::Red),
        ("warning", AnsiColor::Yellow),
        ("hint", AnsiColor::Cyan),
        ("note", AnsiColor::Cyan),
    ];
    let colored = COLORED.get().copied().unwrap_or_default();
    lead(text, &KINDS, colored.stderr)
}

/// Paints the word before the first colon, if it is one of these.
fn lead(text: String, words: &[(&str, AnsiColor)], is_on: bool) -> String {
    let Some((word, rest)) = text.split_once(':').filter(|_| is_on) else {
        return text;
    };
    match words.iter().find(|(one, _)| *one == word) {
        None => text,
        Some((_, color)) => {
            let style = color.on_default().bold();
            format!("{}{rest}", painted(&format!("{word}:"), style, true))
        }
    }
}

fn painted(text: &str, style: Style, is_on: bool) -> String {
    if is_on {
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_wins_over_where_it_goes() {
        assert!(is_on(ColorArg::Auto, true, true));
        assert!(!is_on(ColorArg::Auto, true, false));
        assert!(!is_on(ColorArg::Auto, false, true));
        assert!(is_on(ColorArg::Always, false, false));
        assert!(!is_on(ColorArg::Never, true, true));
    }

    #[test]
    fn only_the_leading_word_is_painted_and_only_where_colour_is_on() {
        let words = [("error", AnsiColor::Red)];
        let of = |text: &str, is_on| lead(text.to_owned(), &words, is_on);

        assert_eq!(
            of("error: no: way", true),
            "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no: way"
        );
        assert_eq!(of("error: no: way", false), "error: no: way");
        assert_eq!(of("an error: no", true), "an error: no");
        assert_eq!(of("error", true), "error");
    }

    #[test]
    fn the_colour_of_help_is_read_before_anything_else() {
        let of = |line: &str| of_help(line.split(' ').map(OsStr::new));

        assert_eq!(of("stasis --help"), clap::ColorChoice::Auto);
        assert_eq!(of("stasis --color never --help"), clap::ColorChoice::Never);
        assert_eq!(of("stasis --color=always -h"), clap::ColorChoice::Always);
        assert_eq!(of("stasis run -- --color=always"), clap::ColorChoice::Auto);
    }
}
