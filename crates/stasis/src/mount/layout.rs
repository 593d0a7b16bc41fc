//! What the snapshots of a subject are called where they are mounted: a pure rule.
//!
//! Each is one directory, in `by-time`. Everything else leads there: `latest`, `by-id`, `by-name` (the values of labels) and `pinned`.

use stasis_engine::browser::BrowsedSnapshot;
use std::collections::{BTreeMap, HashMap};

/// No name in a directory is longer.
const LONGEST_NAME: usize = 255;
/// So many characters of an id name a snapshot on the command line.
const SHORT: usize = 8;

/// The directory of the snapshots themselves.
pub(super) const BY_TIME: &str = "by-time";
/// The directory of the snapshots by their ids.
pub(super) const BY_ID: &str = "by-id";
/// The directory of the snapshots by their labels.
pub(super) const BY_NAME: &str = "by-name";
/// The directory of those that are kept whatever a policy says.
pub(super) const PINNED: &str = "pinned";
/// What leads to the snapshot that `latest` means.
pub(super) const LATEST: &str = "latest";
/// The directory of the checkpoints of a workspace.
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// The names of the snapshots of one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SnapshotNames {
    /// What is in `by-time`, and the id of each.
    pub(super) by_time: BTreeMap<String, String>,
    /// What is in `by-id`, and which of `by-time` each leads to.
    pub(super) by_id: BTreeMap<String, String>,
    /// The same of `by-name`.
    pub(super) by_name: BTreeMap<String, String>,
    /// The same of `pinned`.
    pub(super) pinned: BTreeMap<String, String>,
    /// Which of `by-time` is `latest`.
    pub(super) latest: Option<String>,
}

impl SnapshotNames {
    /// The names of snapshots, which come with the oldest first: a new one changes no name of those before it.
    pub(super) fn new(snapshots: &[BrowsedSnapshot]) -> Self {
        let mut names = Self::default();
        let mut starts: HashMap<&str, usize> = HashMap::new();
        for one in snapshots {
            *starts.entry(short(&one.id)).or_default() += 1;
        }
        for one in snapshots {
            let time = time_name(one);
            let time = if names.by_time.contains_key(&time) {
                format!("{time}-{}", one.id)
            } else {
                time
            };
            let is_alone = starts.get(short(&one.id)) == Some(&1);
            let id = if is_alone { short(&one.id) } else { &*one.id };
            names.by_id.insert(id.to_owned(), time.clone());
            // Of several with one label the newest has it, as on the command line.
            for label in one.labels.iter().filter_map(|label| file_name(label)) {
                names.by_name.insert(label, time.clone());
            }
            if one.pinned {
                names.pinned.insert(time.clone(), time.clone());
            }
            if one.latest {
                names.latest = Some(time.clone());
            }
            names.by_time.insert(time, one.id.clone());
        }
        names
    }
}

/// What checkpoints are called: as on the command line.
pub(super) fn checkpoint_names(checkpoints: &[BrowsedSnapshot]) -> BTreeMap<String, String> {
    let named = checkpoints.iter();
    let named = named.filter_map(|one| Some((one.name.clone()?, one.id.clone())));
    named.collect()
}

fn short(id: &str) -> &str {
    let end = id.char_indices().nth(SHORT).map_or(id.len(), |(at, _)| at);
    &id[..end]
}

/// When it was made, to the second and in UTC: `2026-11-15T10-30-00Z`.
fn time_name(one: &BrowsedSnapshot) -> String {
    let text = one.at.to_string();
    let seconds = text.split('.').next().unwrap_or(&text);
    format!("{}Z", seconds.replace(':', "-"))
}

/// Any text as the name of a file, so that no two texts have one name; nothing where there is none for it.
fn file_name(text: &str) -> Option<String> {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '/' => "%2F".to_owned(),
            '%' => "%25".to_owned(),
            '\0' => "%00".to_owned(),
            c => c.to_string(),
        })
        .collect();
    match &*escaped {
        "" => None,
        "." => Some("%2E".to_owned()),
        ".." => Some("%2E%2E".to_owned()),
        name => (name.len() <= LONGEST_NAME).then_some(escaped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::model::time::Timestamp;

    fn snapshot(id: &str, at_ms: u64) -> BrowsedSnapshot {
        BrowsedSnapshot {
            id: id.to_owned(),
            name: None,
            at: Timestamp::from_millis(at_ms),
            labels: Vec::new(),
            pinned: false,
            latest: false,
        }
    }

    #[test]
    fn a_snapshot_is_called_by_its_second() {
        let names = SnapshotNames::new(&[snapshot("a27be8bc-1", 1_794_911_400_123)]);

        assert_eq!(names.by_time["2026-11-17T10-30-00Z"], "a27be8bc-1");
        assert_eq!(names.by_id["a27be8bc"], "2026-11-17T10-30-00Z");
        assert_eq!(names.latest, None);
    }

    #[test]
    fn two_of_one_second_are_told_apart_and_the_first_keeps_its_name() {
        let (first, second) = (snapshot("a27be8bc-1", 1000), snapshot("a27be8bc-2", 1900));
        let before = SnapshotNames::new(std::slice::from_ref(&first));

        let names = SnapshotNames::new(&[first, second]);

        for (name, id) in &before.by_time {
            assert_eq!(&names.by_time[name], id);
        }
        assert_eq!(names.by_time.len(), 2);
        let ids: Vec<&String> = names.by_id.keys().collect();
        assert_eq!(ids, ["a27be8bc-1", "a27be8bc-2"], "eight would name both");
    }

    #[test]
    fn a_label_names_the_newest_that_has_it() {
        let labelled = |id: &str, at: u64, label: &str| BrowsedSnapshot {
            labels: vec![label.to_owned()],
            ..snapshot(id, at)
        };
        let names = SnapshotNames::new(&[
            labelled("one", 1000, "release"),
            labelled("two", 2000, "release"),
            labelled("three", 3000, "a/b"),
            labelled("four", 4000, ".."),
        ]);

        assert_eq!(names.by_time[&names.by_name["release"]], "two");
        assert_eq!(names.by_time[&names.by_name["a%2Fb"]], "three");
        assert_eq!(names.by_time[&names.by_name["%2E%2E"]], "four");
        assert_eq!(names.by_name.len(), 3);
    }

    #[test]
    fn latest_and_pins_lead_to_snapshots() {
        let chosen = BrowsedSnapshot {
            latest: true,
            pinned: true,
            ..snapshot("one", 1000)
        };
        let names = SnapshotNames::new(&[chosen, snapshot("two", 2000)]);

        assert_eq!(names.latest.as_deref(), Some("1970-01-01T00-00-01Z"));
        assert_eq!(names.pinned.len(), 1);
    }
}
