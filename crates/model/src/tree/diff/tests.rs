use super::*;
use crate::tree::{Attribute, FileTime, Metadata};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

type Tree = BTreeMap<EntryPath, Item<u8>>;

fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

fn item(at: &str, kind: EntryKind, digest: Option<u8>) -> Item<u8> {
    let (metadata, attributes) = (Metadata::default(), Vec::new());
    let entry = Entry {
        path: path(at),
        kind,
        metadata,
        attributes,
    };
    Item { entry, digest }
}

fn file(at: &str, size: u64, digest: u8) -> Item<u8> {
    item(at, EntryKind::File { size }, Some(digest))
}

fn sure(items: &[Item<u8>]) -> impl Iterator<Item = Result<Item<u8>, Infallible>> {
    items.iter().cloned().map(Ok)
}

fn changes(old: &[Item<u8>], new: &[Item<u8>]) -> Vec<Change<u8>> {
    diff(sure(old), sure(new)).map(Result::unwrap).collect()
}

fn difference(old: Item<u8>, new: Item<u8>) -> Option<Difference> {
    match changes(&[old], &[new]).pop()? {
        Change::Changed { difference, .. } => Some(difference),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_says_in_what_the_two_differ() {
    let nothing = Difference {
        kind: false,
        content: Content::Same,
        metadata: false,
        attributes: false,
    };
    let content = Difference {
        content: Content::Changed,
        ..nothing
    };
    let (mut newer, mut tagged) = (file("a", 1, 1), file("a", 1, 1));
    newer.entry.metadata.modified = FileTime {
        seconds: 1,
        nanos: 0,
    };
    tagged.entry.attributes.push(Attribute {
        name: Box::from(*b"user.a"),
        value: Box::default(),
    });
    let link = |to: &[u8]| item("a", EntryKind::Symlink { target: to.into() }, None);

    assert_eq!(difference(file("a", 1, 1), file("a", 1, 1)), None);
    assert_eq!(difference(file("a", 1, 1), file("a", 1, 2)), Some(content));
    assert_eq!(difference(file("a", 1, 1), file("a", 2, 1)), Some(content));
    assert_eq!(difference(link(b"x"), link(b"y")), Some(content));
    assert_eq!(difference(link(b"x"), link(b"x")), None);
    let metadata = Difference {
        metadata: true,
        ..nothing
    };
    assert_eq!(difference(file("a", 1, 1), newer.clone()), Some(metadata));
    let attributes = Difference {
        attributes: true,
        ..nothing
    };
    assert_eq!(difference(file("a", 1, 1), tagged), Some(attributes));
    let kind = Difference {
        kind: true,
        ..content
    };
    assert_eq!(difference(file("a", 1, 1), link(b"x")), Some(kind));
    newer.digest = None;
    let unknown = Difference {
        content: Content::Unknown,
        ..metadata
    };
    assert_eq!(difference(file("a", 1, 1), newer), Some(unknown));
}

#[test]
fn a_stream_that_is_not_sorted_ends_the_diff() {
    let twice = [file("a", 1, 1), file("b", 1, 1), file("b", 1, 1)];

    let mut found = diff(sure(&[]), sure(&twice));

    assert!(found.next().unwrap().is_ok() && found.next().unwrap().is_ok());
    let late = DiffError::Unsorted {
        side: Side::New,
        path: path("b"),
    };
    assert_eq!(found.next(), Some(Err(late)));
    assert_eq!(found.next(), None);
}

#[test]
fn an_entry_that_cannot_be_read_ends_the_diff() {
    let broken = [Ok(file("b", 1, 1)), Err("torn")];

    let found: Vec<_> = diff(broken, [Ok(file("a", 1, 1)), Ok(file("b", 1, 1))]).collect();

    assert_eq!(found.len(), 2);
    let torn = DiffError::Unreadable {
        side: Side::Old,
        source: "torn",
    };
    assert_eq!(found[1], Err(torn));
}

#[test]
fn files_that_moved_are_joined_in_order_and_empty_ones_never_are() {
    let old = [file("a", 5, 1), file("b", 5, 1), file("c", 0, 0)];
    let new = [file("x", 5, 1), file("y", 0, 0)];
    let found = changes(&old, &new);

    let moved = find_renames(found.clone(), 10);

    let words: Vec<String> = moved
        .iter()
        .map(|moved| match moved {
            Moved::Renamed { from, to } => format!("{}>{}", from.entry.path, to.entry.path),
            Moved::Change(change) => change.path().to_string(),
        })
        .collect();
    assert_eq!(words, ["b", "c", "a>x", "y"]);
    let unjoined: Vec<Moved<u8>> = found.iter().cloned().map(Moved::Change).collect();
    assert_eq!(find_renames(found, 4), unjoined);
}

fn any_tree() -> impl Strategy<Value = Vec<Item<u8>>> {
    let kind = prop_oneof![
        4 => (0..3_u64).prop_map(|size| EntryKind::File { size }),
        1 => Just(EntryKind::Directory),
        1 => Just(EntryKind::Symlink { target: Box::from(*b"x") }),
    ];
    let one = (
        "[ab-](/[ab-]){0,2}",
        kind,
        prop::option::weighted(0.8, 0..3_u8),
        0..2_u32,
    );
    let tree = prop::collection::vec(one, 0..12);
    tree.prop_map(|items| {
        let items = items.into_iter().map(|(at, kind, digest, mode)| {
            let mut item = item(&at, kind, digest);
            item.entry.metadata.mode = mode;
            (item.entry.path.clone(), item)
        });
        items.collect::<Tree>().into_values().collect()
    })
}

fn by_path(items: &[Item<u8>]) -> Tree {
    let entry = |item: &Item<u8>| (item.entry.path.clone(), item.clone());
    items.iter().map(entry).collect()
}

proptest! {
    #[test]
    fn the_old_tree_and_the_changes_make_the_new_tree(old in any_tree(), new in any_tree()) {
        let found = changes(&old, &new);
        let mut made = by_path(&old);
        for change in &found {
            match change.clone() {
                Change::Added(item) => prop_assert!(made.insert(item.entry.path.clone(), item).is_none()),
                Change::Removed(item) => prop_assert_eq!(made.remove(&item.entry.path), Some(item)),
                Change::Changed { old, new, .. } => {
                    prop_assert_eq!(made.insert(new.entry.path.clone(), *new), Some(*old));
                }
            }
        }

        // What has no digest on one side is compared by size and time.
        let shown = |tree: &Tree| tree.values().map(|item| item.entry.clone()).collect::<Vec<_>>();
        prop_assert_eq!(shown(&made), shown(&by_path(&new)));
        prop_assert!(found.is_sorted_by(|one, other| one.path() < other.path()));
        prop_assert!(changes(&new, &new).is_empty());
    }

    #[test]
    fn the_way_back_is_the_way_there_reversed(old in any_tree(), new in any_tree()) {
        let back: Vec<Change<u8>> = changes(&new, &old).into_iter().map(|change| match change {
            Change::Added(item) => Change::Removed(item),
            Change::Removed(item) => Change::Added(item),
            Change::Changed { old, new, difference } => Change::Changed { old: new, new: old, difference },
        }).collect();

        prop_assert_eq!(changes(&old, &new), back);
    }

    #[test]
    fn joining_moves_loses_and_invents_nothing(old in any_tree(), new in any_tree()) {
        let found = changes(&old, &new);
        let mut parts: Vec<Change<u8>> = Vec::new();
        for moved in find_renames(found.clone(), 100) {
            match moved {
                Moved::Change(change) => parts.push(change),
                Moved::Renamed { from, to } => {
                    prop_assert_eq!((&from.entry.kind, from.digest), (&to.entry.kind, to.digest));
                    parts.extend([Change::Removed(*from), Change::Added(*to)]);
                }
            }
        }
        parts.sort_by(|one, other| one.path().cmp(other.path()));

        prop_assert_eq!(parts, found);
    }
}
