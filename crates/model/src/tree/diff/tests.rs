use super::*;
use crate::tree::{Attribute, FileTime, Metadata};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

type Tree = BTreeMap<EntryPath, DigestedEntry<u8>>;

fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

fn item(at: &str, kind: EntryKind, digest: Option<u8>) -> DigestedEntry<u8> {
    let (metadata, attributes) = (Metadata::default(), Vec::new());
    let entry = Entry {
        path: path(at),
        kind,
        metadata,
        attributes,
    };
    DigestedEntry { entry, digest }
}

fn file(at: &str, size: u64, digest: u8) -> DigestedEntry<u8> {
    item(at, EntryKind::File { size }, Some(digest))
}

fn sure(
    items: &[DigestedEntry<u8>],
) -> impl Iterator<Item = Result<DigestedEntry<u8>, Infallible>> {
    items.iter().cloned().map(Ok)
}

fn changes(
    old: &[DigestedEntry<u8>],
    new: &[DigestedEntry<u8>],
) -> Vec<EntryChange<DigestedEntry<u8>>> {
    diff(sure(old), sure(new), DigestedEntry::difference)
        .map(Result::unwrap)
        .collect()
}

fn difference(old: DigestedEntry<u8>, new: DigestedEntry<u8>) -> Option<EntryDifference> {
    match changes(&[old], &[new]).pop()? {
        EntryChange::Changed { difference, .. } => Some(difference),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_says_in_what_the_two_differ() {
    let nothing = EntryDifference {
        kind: false,
        content: ContentChange::Same,
        metadata: false,
        attributes: false,
    };
    let content = EntryDifference {
        content: ContentChange::Changed,
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
    let metadata = EntryDifference {
        metadata: true,
        ..nothing
    };
    assert_eq!(difference(file("a", 1, 1), newer.clone()), Some(metadata));
    let attributes = EntryDifference {
        attributes: true,
        ..nothing
    };
    assert_eq!(difference(file("a", 1, 1), tagged), Some(attributes));
    let kind = EntryDifference {
        kind: true,
        ..content
    };
    assert_eq!(difference(file("a", 1, 1), link(b"x")), Some(kind));
    newer.digest = None;
    let unknown = EntryDifference {
        content: ContentChange::Unknown,
        ..metadata
    };
    assert_eq!(difference(file("a", 1, 1), newer), Some(unknown));
}

#[test]
fn a_stream_that_is_not_sorted_ends_the_diff() {
    let twice = [file("a", 1, 1), file("b", 1, 1), file("b", 1, 1)];

    let mut found = diff(sure(&[]), sure(&twice), DigestedEntry::difference);

    assert!(found.next().unwrap().is_ok() && found.next().unwrap().is_ok());
    let late = DiffError::Unsorted {
        side: TreeSide::New,
        path: path("b"),
    };
    assert_eq!(found.next(), Some(Err(late)));
    assert_eq!(found.next(), None);
}

#[test]
fn an_entry_that_cannot_be_read_ends_the_diff() {
    let broken = [Ok(file("b", 1, 1)), Err("torn")];

    let found: Vec<_> = diff(
        broken,
        [Ok(file("a", 1, 1)), Ok(file("b", 1, 1))],
        DigestedEntry::difference,
    )
    .collect();

    assert_eq!(found.len(), 2);
    let torn = DiffError::Unreadable {
        side: TreeSide::Old,
        source: "torn",
    };
    assert_eq!(found[1], Err(torn));
}

#[test]
fn the_first_that_applies_is_the_word_for_a_change() {
    let link = item(
        "c",
        EntryKind::Symlink {
            target: Box::from(*b"x"),
        },
        None,
    );
    let mut touched = file("d", 1, 1);
    touched.entry.metadata.mode = 0o600;
    let mut unknown = file("e", 1, 1);
    unknown.entry.metadata.modified.seconds = 7;
    unknown.digest = None;
    let old = [
        file("a", 1, 1),
        file("b", 1, 1),
        file("c", 1, 1),
        file("d", 1, 1),
        file("e", 1, 1),
    ];
    let new = [file("aa", 1, 1), file("b", 1, 2), link, touched, unknown];

    let found = changes(&old, &new);

    let words: Vec<(String, &str)> = found
        .iter()
        .map(|change| (change.path().to_string(), change.kind().word()))
        .collect();
    let wanted = [
        ("a", "removed"),
        ("aa", "added"),
        ("b", "content"),
        ("c", "kind"),
        ("d", "metadata"),
        ("e", "content"),
    ];
    assert_eq!(words, wanted.map(|(path, word)| (path.to_owned(), word)));
    let spelled = wanted.map(|(_, word)| serde_json::json!(word));
    let kinds = found.iter().map(EntryChange::kind);
    let kinds: Vec<_> = kinds
        .map(|kind| serde_json::to_value(kind).unwrap())
        .collect();
    assert_eq!(kinds, spelled, "results spell it as its word");
    assert_eq!(diff_lists(&old, &new, DigestedEntry::difference).len(), 6);
}

fn any_tree() -> impl Strategy<Value = Vec<DigestedEntry<u8>>> {
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

fn by_path(items: &[DigestedEntry<u8>]) -> Tree {
    let entry = |item: &DigestedEntry<u8>| (item.entry.path.clone(), item.clone());
    items.iter().map(entry).collect()
}

proptest! {
    #[test]
    fn the_old_tree_and_the_changes_make_the_new_tree(old in any_tree(), new in any_tree()) {
        let found = changes(&old, &new);
        let mut made = by_path(&old);
        for change in &found {
            match change.clone() {
                EntryChange::Added(item) => prop_assert!(made.insert(item.entry.path.clone(), item).is_none()),
                EntryChange::Removed(item) => prop_assert_eq!(made.remove(&item.entry.path), Some(item)),
                EntryChange::Changed { old, new, .. } => {
                    prop_assert_eq!(made.insert(new.entry.path.clone(), new), Some(old));
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
        let back: Vec<EntryChange<DigestedEntry<u8>>> = changes(&new, &old).into_iter().map(|change| match change {
            EntryChange::Added(item) => EntryChange::Removed(item),
            EntryChange::Removed(item) => EntryChange::Added(item),
            EntryChange::Changed { old, new, difference } => EntryChange::Changed { old: new, new: old, difference },
        }).collect();

        prop_assert_eq!(changes(&old, &new), back);
    }
}
