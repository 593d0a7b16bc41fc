//! What a user types to name a snapshot, and which one that is: one parser and one resolver for every kind and surface.
//!
//! A kind narrows what it takes ([`crate::workspace::CheckpointRef`] has no `latest`, profiles take only digests besides it); none
//! reads the text on its own.

use crate::digest::ArchiveDigest;
use crate::time::Timestamp;
use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// What stands for the snapshot that the last explicit save made, or the last whole restore chose.
const LATEST: &str = "latest";
/// What stands before the number of a checkpoint.
pub(crate) const CHECKPOINT: &str = "cp-";

/// A snapshot as a user names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SnapshotRef {
    /// `latest`
    Latest,
    /// `cp-3`
    Checkpoint(u32),
    /// An id or the beginning of one, a label `key=value` or a label's value, or a name.
    Text(String),
}

impl SnapshotRef {
    /// What was typed.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Latest => LATEST.into(),
            Self::Checkpoint(number) => format!("{CHECKPOINT}{number}").into(),
            Self::Text(text) => text.into(),
        }
    }

    /// The one of a catalogue that is meant; `latest` is what the catalogue says that is.
    pub fn resolve<C: Candidate>(
        &self,
        all: impl IntoIterator<Item = C>,
        latest: impl FnOnce() -> Option<C>,
    ) -> Result<C, Unresolved<C>> {
        let mut all = all.into_iter();
        if *self == Self::Latest {
            return latest().ok_or_else(|| match all.next() {
                Some(_) => Unresolved::NoLatest,
                None => Unresolved::Absent,
            });
        }
        let text = self.text();
        if text.is_empty() {
            return Err(Unresolved::Absent);
        }
        let (mut fits, mut labelled) = (Vec::new(), Vec::new());
        for one in all {
            if one.id().starts_with(&*text) {
                fits.push(one);
            } else if one.is_labelled(&text) {
                labelled.push(one);
            }
        }
        match fits.len() {
            // What begins like an id is never taken for a label.
            0 => {
                let newest = labelled.into_iter().max_by_key(Candidate::at);
                newest.ok_or(Unresolved::Absent)
            }
            1 => fits.pop().ok_or(Unresolved::Absent),
            _ => Err(Unresolved::Ambiguous(fits)),
        }
    }
}

impl From<&str> for SnapshotRef {
    fn from(text: &str) -> Self {
        let number = text
            .strip_prefix(CHECKPOINT)
            .and_then(|number| number.parse().ok());
        let read = match number {
            _ if text == LATEST => Self::Latest,
            Some(number) => Self::Checkpoint(number),
            None => Self::Text(text.to_owned()),
        };
        // `cp-03` and `cp-+3` are numbers to a parser, and no checkpoints.
        if read.text() == text {
            read
        } else {
            Self::Text(text.to_owned())
        }
    }
}

impl From<String> for SnapshotRef {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl FromStr for SnapshotRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Display for SnapshotRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text())
    }
}

/// Why no snapshot is the one that a user means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unresolved<C> {
    /// There is no such snapshot.
    Absent,
    /// There are snapshots, and none was saved explicitly or chosen by a restore.
    NoLatest,
    /// The ids of these begin like that.
    Ambiguous(Vec<C>),
}

/// A snapshot in a catalogue, as far as its name is concerned.
pub trait Candidate {
    /// Its id, of which a user types the beginning.
    fn id(&self) -> Cow<'_, str>;

    /// When it was made: of several with one label the newest is meant.
    fn at(&self) -> Timestamp {
        Timestamp::default()
    }

    /// Whether a text is a label of it.
    fn is_labelled(&self, _text: &str) -> bool {
        false
    }
}

impl Candidate for ArchiveDigest {
    fn id(&self) -> Cow<'_, str> {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Row(&'static str, u64, &'static str);

    impl Candidate for Row {
        fn id(&self) -> Cow<'_, str> {
            self.0.into()
        }

        fn at(&self) -> Timestamp {
            Timestamp::from_millis(self.1)
        }

        fn is_labelled(&self, text: &str) -> bool {
            self.2 == text
        }
    }

    const ROWS: [Row; 4] = [
        Row("a27be8bc", 1, "green"),
        Row("a27c0000", 3, "green"),
        Row("cp-34aaa", 2, ""),
        Row("b0000000", 4, "a27"),
    ];

    fn found(text: &str) -> Result<&'static str, Unresolved<Row>> {
        let latest = || Some(ROWS[0]);
        SnapshotRef::from(text)
            .resolve(ROWS, latest)
            .map(|one| one.0)
    }

    #[test]
    fn a_text_is_what_it_was_typed_as() {
        assert_eq!(SnapshotRef::from("latest"), SnapshotRef::Latest);
        assert_eq!(SnapshotRef::from("cp-3"), SnapshotRef::Checkpoint(3));
        for text in [
            "latest", "cp-3", "cp-03", "cp-+3", "Latest", "cp-", "", "a27b", "k=v",
        ] {
            assert_eq!(SnapshotRef::from(text).to_string(), text);
        }
        for text in ["cp-03", "cp-+3", "Latest", "cp-"] {
            assert_eq!(SnapshotRef::from(text), SnapshotRef::Text(text.to_owned()));
        }
    }

    #[test]
    fn an_id_is_named_by_its_unique_beginning_and_before_any_label() {
        assert_eq!(found("a27b"), Ok("a27be8bc"));
        assert_eq!(found("b"), Ok("b0000000"));
        let both = vec![ROWS[0], ROWS[1]];
        assert_eq!(found("a27"), Err(Unresolved::Ambiguous(both)));
        assert_eq!(found("zz"), Err(Unresolved::Absent));
        assert_eq!(found(""), Err(Unresolved::Absent));
    }

    #[test]
    fn a_label_names_the_newest_that_has_it() {
        assert_eq!(found("green"), Ok("a27c0000"));
    }

    #[test]
    fn where_there_are_no_checkpoints_a_number_is_only_text() {
        assert_eq!(found("cp-3"), Ok("cp-34aaa"));
    }

    #[test]
    fn latest_is_what_the_catalogue_says_and_missing_in_two_ways() {
        assert_eq!(found("latest"), Ok("a27be8bc"));
        let of = |rows: &[Row]| SnapshotRef::Latest.resolve(rows.iter().copied(), || None);
        assert_eq!(of(&[]), Err(Unresolved::Absent));
        assert_eq!(of(&ROWS), Err(Unresolved::NoLatest));
    }
}
