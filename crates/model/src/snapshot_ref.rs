//! What a user types to name a snapshot, and which one that is: one parser and one resolver for every kind and surface.
//!
//! A kind narrows what it takes ([`crate::workspace::CheckpointRef`] has no `latest`, profiles take only digests besides it); none
//! reads the text on its own.

use crate::digest::ArchiveDigest;
use crate::invalid::Invalid;
use crate::time::Timestamp;
use crate::time_ref::{TimeRef, Zone};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What stands for the snapshot that the last explicit save made, or the last whole restore chose.
const LATEST: &str = "latest";
/// What stands between that and how many saves before it.
const BACK: &str = "~";
/// What stands before a time.
const AT: &str = "@";
/// What stands before the number of a checkpoint.
pub(crate) const CHECKPOINT: &str = "cp-";

/// A snapshot as a user names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SnapshotRef {
    /// `latest`
    Latest,
    /// `latest~2`: so many explicit saves before that.
    BeforeLatest(u32),
    /// `cp-3`
    Checkpoint(u32),
    /// `@10:30`, `@-2h`: the newest that was made by then.
    Time(TypedTime),
    /// An id or the beginning of one, a label `key=value` or a label's value, or a name.
    Text(String),
}

/// A time as somebody typed it, behind the `@`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TypedTime {
    text: String,
    read: TimeRef,
}

/// When and where something is typed: what a time means depends on it.
#[derive(Clone, Copy, Debug)]
pub struct TypedAt<'z> {
    /// Now.
    pub now: Timestamp,
    /// Here.
    pub zone: &'z dyn Zone,
}

impl SnapshotRef {
    /// What was typed.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Latest => LATEST.into(),
            Self::BeforeLatest(count) => format!("{LATEST}{BACK}{count}").into(),
            Self::Time(time) => format!("{AT}{}", time.text).into(),
            Self::Checkpoint(number) => format!("{CHECKPOINT}{number}").into(),
            Self::Text(text) => text.into(),
        }
    }

    /// Whether it can be nothing but the name of a snapshot.
    pub fn is_spelt_out(&self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// The one of a catalogue that is meant; `latest` is what the catalogue says that is.
    pub fn resolve<C: Candidate>(
        &self,
        all: impl IntoIterator<Item = C>,
        latest: impl FnOnce() -> Option<C>,
        typed: TypedAt<'_>,
    ) -> Result<C, Unresolved<C>> {
        let mut all = all.into_iter();
        match self {
            Self::Latest | Self::BeforeLatest(_) => {
                let Some(latest) = latest() else {
                    return Err(match all.next() {
                        Some(_) => Unresolved::NoLatest,
                        None => Unresolved::Absent,
                    });
                };
                match *self {
                    Self::BeforeLatest(count) => before(latest, all, count),
                    _ => Ok(latest),
                }
            }
            Self::Time(time) => {
                let by = time.read.moment(typed.now, typed.zone);
                let made_by_then = all.filter(|one| by.is_some_and(|by| one.at() <= by));
                let newest = made_by_then.max_by_key(Candidate::at);
                newest.ok_or(Unresolved::Absent)
            }
            Self::Checkpoint(_) | Self::Text(_) => resolve_text(&self.text(), all),
        }
    }
}

/// The one of a catalogue whose id begins like a text, else the newest that is labelled so.
pub fn resolve_text<C: Candidate>(
    text: &str,
    all: impl IntoIterator<Item = C>,
) -> Result<C, Unresolved<C>> {
    if text.is_empty() {
        return Err(Unresolved::Absent);
    }
    let (mut fits, mut labelled) = (Vec::new(), Vec::new());
    for one in all {
        if one.id().starts_with(text) {
            fits.push(one);
        } else if one.is_labelled(text) {
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

/// The one that was saved so many explicit saves before the latest.
fn before<C: Candidate>(
    latest: C,
    all: impl Iterator<Item = C>,
    count: u32,
) -> Result<C, Unresolved<C>> {
    let Some(skipped) = count.checked_sub(1) else {
        return Ok(latest);
    };
    let is_earlier = |one: &C| one.at() < latest.at() && !one.is_automatic();
    let mut earlier: Vec<C> = all.filter(is_earlier).collect();
    earlier.sort_by_key(|one| std::cmp::Reverse(one.at()));
    let wanted = earlier.into_iter().nth(skipped as usize);
    wanted.ok_or(Unresolved::Absent)
}

impl From<&str> for SnapshotRef {
    fn from(text: &str) -> Self {
        let number_after = |prefix: &str| text.strip_prefix(prefix)?.parse().ok();
        let back = text.strip_prefix(LATEST);
        let back = back.and_then(|back| back.strip_prefix(BACK)?.parse().ok());
        let time = text.strip_prefix(AT).and_then(|time| {
            let (text, read) = (time.to_owned(), time.parse().ok()?);
            Some(TypedTime { text, read })
        });
        let read = match (number_after(CHECKPOINT), back, time) {
            _ if text == LATEST => Self::Latest,
            // As in git, the one before.
            _ if text == "latest~" => return Self::BeforeLatest(1),
            (Some(number), ..) => Self::Checkpoint(number),
            (_, Some(count), _) => Self::BeforeLatest(count),
            (.., Some(time)) => Self::Time(time),
            _ => Self::Text(text.to_owned()),
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
    type Err = Invalid;

    /// What begins with an `@` must be a time.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Some(time) = text.strip_prefix(AT) {
            time.parse::<TimeRef>()?;
        }
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

    /// Whether nobody asked for it: `latest~2` passes it by.
    fn is_automatic(&self) -> bool {
        false
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
    use crate::time_ref::Utc;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Row(&'static str, u64, &'static str);

    impl Candidate for Row {
        fn id(&self) -> Cow<'_, str> {
            self.0.into()
        }

        fn at(&self) -> Timestamp {
            Timestamp::from_millis(self.1)
        }

        fn is_automatic(&self) -> bool {
            self.2 == "auto"
        }

        fn is_labelled(&self, text: &str) -> bool {
            self.2 == text
        }
    }

    const NOW: TypedAt<'static> = TypedAt {
        now: Timestamp::from_millis(10_000),
        zone: &Utc,
    };

    const ROWS: [Row; 4] = [
        Row("a27be8bc", 1, "green"),
        Row("a27c0000", 3, "green"),
        Row("cp-34aaa", 2, ""),
        Row("b0000000", 4, "a27"),
    ];

    fn found(text: &str) -> Result<&'static str, Unresolved<Row>> {
        let latest = || Some(ROWS[0]);
        SnapshotRef::from(text)
            .resolve(ROWS, latest, NOW)
            .map(|one| one.0)
    }

    #[test]
    fn a_text_is_what_it_was_typed_as() {
        assert_eq!(SnapshotRef::from("latest"), SnapshotRef::Latest);
        assert_eq!(SnapshotRef::from("cp-3"), SnapshotRef::Checkpoint(3));
        for text in [
            "latest",
            "cp-3",
            "cp-03",
            "cp-+3",
            "Latest",
            "cp-",
            "",
            "a27b",
            "k=v",
            "latest~2",
            "latest~02",
            "@-2h",
            "@10:30",
            "@noon",
            "@",
            "latest~x",
        ] {
            assert_eq!(SnapshotRef::from(text).to_string(), text);
        }
        for text in [
            "cp-03",
            "cp-+3",
            "Latest",
            "cp-",
            "latest~02",
            "latest~x",
            "@noon",
        ] {
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
    fn a_save_before_the_latest_is_counted_among_those_that_somebody_asked_for() {
        let rows = [
            Row("1", 1, ""),
            Row("2", 2, ""),
            Row("3", 3, "auto"),
            Row("4", 4, ""),
            Row("5", 5, ""),
        ];
        let of = |text: &str| {
            let found = SnapshotRef::from(text).resolve(rows, || Some(rows[3]), NOW);
            found.map(|one| one.0)
        };
        assert_eq!(of("latest~0"), Ok("4"));
        assert_eq!(of("latest~"), Ok("2"));
        assert_eq!(of("latest~1"), Ok("2"));
        assert_eq!(of("latest~2"), Ok("1"));
        assert_eq!(of("latest~3"), Err(Unresolved::Absent));
    }

    #[test]
    fn a_time_is_the_newest_that_was_there_by_then() {
        let rows = [
            Row("1", 1_000, ""),
            Row("2", 4_000, ""),
            Row("3", 9_000, "auto"),
        ];
        let of = |text: &str| {
            let found = SnapshotRef::from(text).resolve(rows, || None, NOW);
            found.map(|one| one.0)
        };
        assert_eq!(of("@-1s"), Ok("3"));
        assert_eq!(of("@-2s"), Ok("2"));
        assert_eq!(of("@-6s"), Ok("2"));
        assert_eq!(of("@-7s"), Ok("1"));
        assert_eq!(of("@-1h"), Err(Unresolved::Absent));
    }

    #[test]
    fn a_time_that_is_none_is_said_to_be_none() {
        let refused = "@noon".parse::<SnapshotRef>().unwrap_err().to_string();
        assert!(refused.starts_with("`@noon` is no time"), "{refused}");
        assert!("@-2h".parse::<SnapshotRef>().is_ok());
    }

    #[test]
    fn latest_is_what_the_catalogue_says_and_missing_in_two_ways() {
        assert_eq!(found("latest"), Ok("a27be8bc"));
        let of = |rows: &[Row]| SnapshotRef::Latest.resolve(rows.iter().copied(), || None, NOW);
        assert_eq!(of(&[]), Err(Unresolved::Absent));
        assert_eq!(of(&ROWS), Err(Unresolved::NoLatest));
    }
}
