//! `.env`: the variables that an application's own tools read from a file in its directory.
//!
//! Only values for names that somebody asks for leave this module: the file is full of passwords.

use std::path::Path;

/// The files, the one that counts most first.
pub(super) const FILES: [&str; 2] = [".env.local", ".env"];

/// More than this is no list of variables.
const LARGEST: u64 = 1 << 20;

/// What the files in a directory say of a variable.
pub(super) fn value(dir: &Path, wanted: &str) -> Option<String> {
    let mut texts = FILES.iter().filter_map(|name| read(&dir.join(name)));
    texts.find_map(|text| {
        let found = pairs(&text).filter(|(key, _)| *key == wanted).last();
        found.map(|(_, value)| value)
    })
}

/// The names of variables whose values fit, in the order in which they count.
pub(super) fn names(dir: &Path, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let texts = FILES.iter().filter_map(|name| read(&dir.join(name)));
    let mut names = Vec::new();
    for text in texts {
        let found = pairs(&text).filter(|(_, value)| fits(value));
        names.extend(found.map(|(key, _)| key.to_owned()));
    }
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn read(path: &Path) -> Option<String> {
    let seen = std::fs::metadata(path).ok()?;
    let is_fit = seen.is_file() && seen.len() <= LARGEST;
    is_fit.then(|| std::fs::read_to_string(path).ok())?
}

/// Names and values: `KEY=value`, `export KEY="value"`, with comments.
fn pairs(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (key, value) = line.split_once('=')?;
        let key = key.trim();
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        (!key.is_empty() && key.chars().all(is_name)).then(|| (key, unquoted(value.trim())))
    })
}

fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(quote)
            && let Some(end) = rest.find(quote)
        {
            return rest[..end].to_owned();
        }
    }
    // Without quotes a comment begins after white space.
    let end = value.find(" #").unwrap_or(value.len());
    value[..end].trim_end().to_owned()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_as_the_applications_own_tools_read_it() {
        let place = tempfile::tempdir().unwrap();
        let text = "# SECRET=no\nA=1\nexport B=\"two # words\" # why\nC='3'\nD=four # five\nA=last\nURL=postgres://h/d?x=y\n";
        std::fs::write(place.path().join(".env"), text).unwrap();
        std::fs::write(place.path().join(".env.local"), "C=local\n").unwrap();

        let value = |name: &str| value(place.path(), name);

        assert_eq!(value("A").as_deref(), Some("last"));
        assert_eq!(value("B").as_deref(), Some("two # words"));
        assert_eq!(value("C").as_deref(), Some("local"));
        assert_eq!(value("D").as_deref(), Some("four"));
        assert_eq!(value("URL").as_deref(), Some("postgres://h/d?x=y"));
        assert_eq!(value("SECRET"), None);
        let names = names(place.path(), |value| value.starts_with("postgres://"));
        assert_eq!(names, ["URL"]);
    }
}
