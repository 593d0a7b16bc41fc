//! What a container is called as a subject: by its name and its engine, whose containers are others than those of the same names elsewhere.

use crate::digest::StoreDigest;
use crate::id::ContainerSubject;

/// How many digits of an engine's digest tell it from others.
const DIGITS: usize = 12;
/// How long the name of a container may be to stand in the name of its subject as it is.
const LONGEST: usize = 50;
/// How much of a longer one does.
const BEGINNING: usize = 37;

/// How an engine is told from others: twelve digits of the digest of its id.
pub fn engine_digits(id: &str) -> String {
    digits(id)
}

fn digits(text: &str) -> String {
    StoreDigest::of(text.as_bytes())
        .to_string()
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .chars()
        .take(DIGITS)
        .collect()
}

impl ContainerSubject {
    /// That of a container of an engine. A name that is too long, or is none for us, is told by its beginning and its digest.
    pub fn new(container: &str, engine: &str) -> Self {
        let whole: Result<Self, _> = format!("{container}.{engine}").parse();
        if let Some(whole) = whole.ok().filter(|_| container.len() <= LONGEST) {
            return whole;
        }
        let plain = |c: &char| c.is_ascii_alphanumeric();
        let beginning: String = container.chars().filter(plain).take(BEGINNING).collect();
        let shortened = format!("{beginning}-{}.{engine}", digits(container));
        let shortened = shortened.trim_start_matches('-').parse();
        shortened.expect("letters, digits, a dash and a dot are a name")
    }

    /// What a user calls it: the name of the container, without its engine.
    pub fn container(&self) -> &str {
        let split = self.as_str().rsplit_once('.');
        split.map_or(self.as_str(), |(container, _)| container)
    }

    /// The engine that it is of.
    pub fn engine(&self) -> &str {
        let split = self.as_str().rsplit_once('.');
        split.map_or("", |(_, engine)| engine)
    }

    /// Whether somebody may mean it: by its whole name, or by that of the container.
    pub fn is_called(&self, typed: &str) -> bool {
        self.as_str() == typed || self.container() == typed || {
            // One whose name had to be shortened is typed as the engine calls it.
            !typed.is_empty() && *self == Self::new(typed, self.engine())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_of_another_engine_is_another_subject() {
        let (one, other) = (engine_digits("one"), engine_digits("other"));
        let web = ContainerSubject::new("web", &one);

        assert_eq!((one.len(), web.engine()), (12, one.as_str()));
        assert_ne!(web, ContainerSubject::new("web", &other));
        assert_eq!(web.container(), "web");
        assert!(web.is_called("web") && web.is_called(web.as_str()));
        assert!(!web.is_called("we") && !web.is_called(""));
        assert_eq!(ContainerSubject::new("a.b", &one).container(), "a.b");
    }

    #[test]
    fn every_name_that_an_engine_allows_has_a_subject_of_its_own() {
        let engine = engine_digits("one");
        let (long, longer) = ("x".repeat(60), "x".repeat(61));
        let names = ["a..b", "a.b", "ab", &long, &longer, "a-.", "a_"];
        let all = names.map(|name| ContainerSubject::new(name, &engine));

        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), names.len());
        for (name, subject) in names.iter().zip(&all) {
            assert!(subject.is_called(name), "{name} {subject}");
            assert_eq!(subject.engine(), engine);
        }
    }
}
