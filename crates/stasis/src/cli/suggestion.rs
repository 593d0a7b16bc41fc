//! The commands that messages name, as they have to be typed here.
//!
//! A message names a command in backticks, or after a colon up to the end of its line or a semicolon. A store, a key or a configuration file
//! that was given on this command line is given again there, so that what is typed as printed goes to the same place.

use stasis_engine::address::shell_word;
use std::path::Path;
use std::sync::OnceLock;

/// What commands begin with.
const PROGRAM: &str = "stasis ";
/// Commands that have nothing to do with a store.
const WITHOUT_STORE: [&str; 8] = [
    "archive",
    "clone",
    "demo",
    "hook",
    "mcp",
    "rewind",
    "snapshots",
    "workspace",
];

/// The options of this command line that the next one needs too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct GivenOptions(String);

static GIVEN: OnceLock<GivenOptions> = OnceLock::new();

impl GivenOptions {
    pub(super) fn add(&mut self, option: &str, value: Option<&str>) {
        let Some(value) = value else {
            return;
        };
        // Typed elsewhere, a path from here would lead to another place.
        let whole = (value.starts_with('.'))
            .then(|| std::path::absolute(value).ok())
            .flatten();
        let whole = whole.map(|whole| whole.display().to_string());
        let value = whole.as_deref().unwrap_or(value);
        // What stands before an `@` may be a password.
        let value = if value.contains('@') {
            "URL".to_owned()
        } else {
            shell_word(value).into_owned()
        };
        self.0.extend([" ", option, " ", &value]);
    }

    pub(super) fn add_path(&mut self, option: &str, path: Option<&Path>) {
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let path = path.map(|path| path.display().to_string());
        self.add(option, path.as_deref());
    }

    /// From now on messages name them.
    pub(super) fn remember(self) {
        let _ = GIVEN.set(self);
    }

    /// A text whose commands have them.
    fn complete(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let mut all = String::with_capacity(text.len() + self.0.len());
        let mut rest = text;
        while let Some((before, end)) = command_in(rest) {
            let (command, after) = rest[before..].split_at(end - before);
            all += &rest[..before];
            all += command;
            if takes(command) {
                all += &self.0;
            }
            rest = after;
        }
        all + rest
    }
}

/// Where the next command in a text begins and ends.
fn command_in(text: &str) -> Option<(usize, usize)> {
    let is_led = |at: &usize| text[..*at].ends_with('`') || text[..*at].ends_with(": ");
    let mut found = text.match_indices(PROGRAM).map(|(at, _)| at);
    let from = found.find(is_led)?;
    let ends: &[char] = if text[..from].ends_with('`') {
        &['`']
    } else {
        &['\n', ';']
    };
    let length = text[from..].find(ends);
    Some((from, length.map_or(text.len(), |length| from + length)))
}

fn takes(command: &str) -> bool {
    let verb = command[PROGRAM.len()..].split(' ').next();
    !command.contains(" --store ") && !verb.is_some_and(|verb| WITHOUT_STORE.contains(&verb))
}

/// A text in which every command that it names can be typed as it stands.
pub(crate) fn completed(text: &str) -> String {
    match GIVEN.get() {
        Some(given) => given.complete(text),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> GivenOptions {
        let mut given = GivenOptions::default();
        given.add("--store", Some("/a b"));
        given.add("--key-command", None);
        given
    }

    #[test]
    fn every_command_of_a_message_gets_what_was_given() {
        let said =
            "`stasis list` shows all; undo with: stasis restore d 1; or\nagain: stasis save d\n(x)";
        assert_eq!(
            given().complete(said),
            "`stasis list --store '/a b'` shows all; undo with: stasis restore d 1 --store '/a b'; or\n\
             again: stasis save d --store '/a b'\n(x)"
        );
        assert_eq!(GivenOptions::default().complete(said), said);
    }

    #[test]
    fn what_is_no_command_or_needs_no_store_stays() {
        for said in [
            "stasis restored it",
            "`stasis workspace undo u-1` and `stasis rewind`",
            "`stasis list --store x`",
            "the file `stasis",
            "",
        ] {
            assert_eq!(given().complete(said), said);
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        let mut given = GivenOptions::default();
        given.add("--store", Some("s3://b?endpoint=http://user:secret@host"));
        let completed = given.complete("`stasis list`");
        assert_eq!(completed, "`stasis list --store URL`");
    }
}
