use super::*;
use crate::tree::FileTime;

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry {
        path: EntryPath::parse(path.as_bytes()).unwrap(),
        kind,
        metadata: Metadata {
            mode: 0o4755,
            uid: 1000,
            gid: 3_000_000_000,
            modified: FileTime {
                seconds: -86_400,
                nanos: 123_456_789,
            },
        },
        attributes: vec![Attribute {
            name: b"user.note".as_slice().into(),
            value: b"kept \0 whole".as_slice().into(),
        }],
    }
}

fn a_tree() -> Vec<Entry> {
    let target = b"/etc/passwd".as_slice().into();
    let to = EntryPath::parse(b"a/file").unwrap();
    vec![
        entry("", EntryKind::Directory),
        entry("a", EntryKind::Directory),
        entry("a/file", EntryKind::File { size: 5 }),
        entry("a/link", EntryKind::Symlink { target }),
        entry("a/twin", EntryKind::HardLink { to }),
        entry("b", EntryKind::Fifo),
    ]
}

fn digest(entries: &[Entry], content: &[u8]) -> TreeDigest {
    let content = FileDigest::of(content);
    let mut hasher = TreeHasher::new();
    for entry in entries {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        hasher.entry(entry, is_file.then_some(&content));
    }
    hasher.finish()
}

#[test]
fn these_trees_have_these_digests_for_ever() {
    let all = digest(&a_tree(), b"hello");
    let none = digest(&[], b"");

    // Computed apart from this code, with struct.pack and hashlib of Python, from the description above.
    assert_eq!(
        all.to_string(),
        "1625d75f8c0f9cdcf527636327b2cd3baebb5db2e3cd1f2fb471b761b7703635"
    );
    assert_eq!(
        none.to_string(),
        "408b386f1f2b4d58ea94beaa7c0274021af00ab7e91ef52159d0b1e7b9db2e22"
    );
}

#[test]
fn every_fact_that_a_tree_keeps_changes_its_digest() {
    type Change = fn(&mut Vec<Entry>);
    let changes: [(&str, Change); 15] = [
        ("a name", |tree| {
            tree[5].path = EntryPath::parse(b"c").unwrap();
        }),
        ("a kind", |tree| tree[5].kind = EntryKind::Directory),
        ("a mode", |tree| tree[2].metadata.mode = 0o755),
        ("a directory's mode", |tree| tree[1].metadata.mode = 0o700),
        ("an owner", |tree| tree[2].metadata.uid += 1),
        ("a group", |tree| tree[3].metadata.gid += 1),
        ("a second", |tree| tree[0].metadata.modified.seconds += 1),
        ("a nanosecond", |tree| tree[3].metadata.modified.nanos += 1),
        ("a size", |tree| tree[2].kind = EntryKind::File { size: 6 }),
        ("a target", |tree| {
            let target = b"/etc/passwe".as_slice().into();
            tree[3].kind = EntryKind::Symlink { target };
        }),
        ("a hard link's target", |tree| {
            let to = EntryPath::parse(b"a/other").unwrap();
            tree[4].kind = EntryKind::HardLink { to };
        }),
        ("an attribute's name", |tree| {
            tree[1].attributes[0].name = b"user.nota".as_slice().into();
        }),
        ("an attribute's value", |tree| {
            tree[1].attributes[0].value = b"".as_slice().into();
        }),
        ("an attribute more", |tree| {
            let mut more = tree[2].attributes[0].clone();
            more.name = b"user.zzz".as_slice().into();
            tree[2].attributes.push(more);
        }),
        ("an entry less", |tree| {
            tree.pop();
        }),
    ];
    let mut seen = vec![digest(&a_tree(), b"hello"), digest(&a_tree(), b"hellO")];

    for (what, change) in changes {
        let mut tree = a_tree();
        change(&mut tree);
        let digest = digest(&tree, b"hello");

        assert!(!seen.contains(&digest), "{what} goes unnoticed");
        seen.push(digest);
    }
}

#[test]
fn what_only_the_file_behind_a_hard_link_can_have_does_not_count_at_the_link() {
    let mut tree = a_tree();
    tree[4].metadata.mode = 0;
    tree[4].attributes.clear();
    tree[3].metadata.mode = 0o755; // a symbolic link has no permissions

    assert_eq!(digest(&tree, b"hello"), digest(&a_tree(), b"hello"));
}

#[test]
#[should_panic(expected = "a tree is digested in order")]
fn entries_out_of_order_are_a_mistake_of_the_caller() {
    let mut tree = a_tree();
    tree.swap(1, 5);
    let _ = digest(&tree, b"hello");
}
