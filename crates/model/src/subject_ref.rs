//! What a user types to name a subject, with or without snapshots of it: one rule for every verb.
//!
//! The subject comes first and may be left out: then it is the directory that one stands in. What looks like a path, is a directory here, or
//! begins with a kind is a subject; everything else names a snapshot.

use crate::id::{ProfileRef, SessionRef};
use crate::invalid::Invalid;
use crate::snapshot_ref::SnapshotRef;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// How a directory of the store is told from a path.
pub const DIR_PREFIX: &str = "dir:";

/// How a container is told from a path.
pub const CONTAINER_PREFIX: &str = "container:";

pub use crate::id::{PROFILE_PREFIX, SESSION_PREFIX};

/// A subject as a user names it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SubjectRef {
    /// The directory that one stands in, or the one around it that is a subject.
    Here,
    /// A directory of this host.
    Path(PathBuf),
    /// `dir:NAME`: a directory of the store, wherever it lies.
    Dir(String),
    /// `profile:TENANT/PROFILE[@MAJOR]`
    Profile(ProfileRef),
    /// `session:TENANT/SESSION`
    Session(SessionRef),
    /// `container:NAME`, without what comes before the name.
    Container(String),
}

/// The words after a verb, understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedSubject {
    /// Of what.
    pub subject: SubjectRef,
    /// Which snapshots, as many as were named.
    pub snapshots: Vec<SnapshotRef>,
}

impl SubjectRef {
    /// What a word names that can be nothing but a subject.
    pub fn of(word: &OsStr) -> Result<Self, Invalid> {
        if let Some(text) = word.to_str() {
            if text.starts_with(DIR_PREFIX) {
                return Ok(Self::Dir(text.to_owned()));
            }
            if let Some(profile) = text.strip_prefix(PROFILE_PREFIX) {
                return Ok(Self::Profile(profile.parse()?));
            }
            if let Some(session) = text.strip_prefix(SESSION_PREFIX) {
                return Ok(Self::Session(session.parse()?));
            }
            if let Some(container) = text.strip_prefix(CONTAINER_PREFIX) {
                if container.is_empty() {
                    return Err(Invalid::new("`container:` names no container"));
                }
                return Ok(Self::Container(container.to_owned()));
            }
        }
        Ok(Self::Path(PathBuf::from(word)))
    }
}

/// Whether a word can be nothing but a subject, wherever one stands.
fn is_subject(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let has_kind = |kind: &&str| bytes.starts_with(kind.as_bytes());
    [DIR_PREFIX, PROFILE_PREFIX, SESSION_PREFIX, CONTAINER_PREFIX]
        .iter()
        .any(has_kind)
        || bytes.contains(&b'/')
        || matches!(bytes, b"." | b".." | b"~")
}

/// Reads the words after a verb that takes a subject and at most so many snapshots. `is_dir` says what is a directory here.
pub fn read(
    words: &[OsString],
    most_snapshots: usize,
    is_dir: impl FnOnce(&Path) -> bool,
) -> Result<NamedSubject, Invalid> {
    let subject = match words.first() {
        None => None,
        Some(first) if is_subject(first) => Some(first),
        Some(first) => {
            let is_dir = is_dir(Path::new(first));
            let snapshot = first.to_str().map(SnapshotRef::from);
            let is_spelt_out = snapshot.is_some_and(|snapshot| snapshot.is_spelt_out());
            if is_dir && is_spelt_out && words.len() <= most_snapshots {
                let word = first.to_string_lossy();
                return Err(Invalid::new(format!(
                    "`{word}` is a directory here and names a snapshot too: say `./{word}`, or `. {word}`"
                )));
            }
            (is_dir || words.len() > most_snapshots).then_some(first)
        }
    };
    let rest = words.get(usize::from(subject.is_some())..);
    let snapshots = rest.unwrap_or_default().iter().map(|word| {
        let text = word.to_str().ok_or_else(|| {
            let word = word.to_string_lossy();
            Invalid::new(format!("`{word}` names no snapshot: it is not UTF-8"))
        });
        text?.parse()
    });
    let snapshots: Vec<SnapshotRef> = snapshots.collect::<Result<_, Invalid>>()?;
    if snapshots.len() > most_snapshots {
        return Err(Invalid::new("too many snapshots are named"));
    }
    let subject = subject.map(|word| SubjectRef::of(word)).transpose()?;
    Ok(NamedSubject {
        subject: subject.unwrap_or(SubjectRef::Here),
        snapshots,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `notes` and `latest` are directories here.
    fn named(words: &[&str], most: usize) -> Result<(SubjectRef, Vec<String>), Invalid> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let is_dir = |path: &Path| path == Path::new("notes") || path == Path::new("latest");
        let read = read(&words, most, is_dir)?;
        let snapshots = read.snapshots.iter().map(ToString::to_string);
        Ok((read.subject, snapshots.collect()))
    }

    fn path(text: &str) -> SubjectRef {
        SubjectRef::Path(text.into())
    }

    #[test]
    fn a_subject_comes_first_and_may_be_left_out() {
        let none: Vec<String> = Vec::new();
        assert_eq!(named(&[], 1), Ok((SubjectRef::Here, none.clone())));
        assert_eq!(named(&["notes"], 1), Ok((path("notes"), none.clone())));
        assert_eq!(named(&["./gone"], 1), Ok((path("./gone"), none.clone())));
        assert_eq!(named(&["."], 1), Ok((path("."), none)));
        let one = |subject, text: &str| Ok((subject, vec![text.to_owned()]));
        assert_eq!(named(&["a27b"], 1), one(SubjectRef::Here, "a27b"));
        assert_eq!(named(&["cp-3"], 1), one(SubjectRef::Here, "cp-3"));
        assert_eq!(named(&["@-2h"], 1), one(SubjectRef::Here, "@-2h"));
        assert_eq!(named(&["notes", "latest"], 1), one(path("notes"), "latest"));
        assert_eq!(named(&[".", "latest"], 1), one(path("."), "latest"));
        // Two words, of which one is a snapshot: the other is a directory, there or not.
        assert_eq!(named(&["gone", "cp-3"], 1), one(path("gone"), "cp-3"));
        let dir = SubjectRef::Dir("dir:notes".to_owned());
        assert_eq!(named(&["dir:notes", "a27b"], 1), one(dir, "a27b"));
    }

    #[test]
    fn a_verb_of_two_snapshots_takes_both_without_a_subject() {
        let both = vec!["latest~1".to_owned(), "latest".to_owned()];
        let here = (SubjectRef::Here, both.clone());
        assert_eq!(named(&["latest~1", "latest"], 2), Ok(here));
        assert_eq!(
            named(&["notes", "latest~1", "latest"], 2),
            Ok((path("notes"), both))
        );
        assert!(named(&["notes", "a", "b", "c"], 2).is_err());
    }

    #[test]
    fn what_could_be_both_is_asked_for() {
        let refused = named(&["latest"], 1).unwrap_err().to_string();
        assert!(refused.contains("`./latest`"), "{refused}");
        assert_eq!(named(&["./latest"], 1), Ok((path("./latest"), Vec::new())));
    }

    #[test]
    fn a_profile_is_read_and_a_bad_one_refused() {
        let read = named(&["profile:acme/alice@130", "latest"], 1).unwrap();
        let profile = "acme/alice@130".parse().unwrap();
        assert_eq!(
            read,
            (SubjectRef::Profile(profile), vec!["latest".to_owned()])
        );
        let session = SubjectRef::Session("acme/42".parse().unwrap());
        let read = named(&["session:acme/42", "a27b"], 1).unwrap();
        assert_eq!(read, (session, vec!["a27b".to_owned()]));
        let container = SubjectRef::Container("web".to_owned());
        let read = named(&["container:web", "latest"], 1).unwrap();
        assert_eq!(read, (container, vec!["latest".to_owned()]));
        assert!(named(&["container:"], 1).is_err());
        assert!(named(&["session:acme"], 1).is_err());
        assert!(named(&["profile:acme"], 1).is_err());
        assert!(named(&["notes", "@noon"], 1).is_err());
    }
}
