use super::*;
use proptest::prelude::*;

fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let empty = || Err(Invalid::new("a component of the path is empty"));
    let dots = || Err(Invalid::new("a component of the path is `.` or `..`"));
    let forbidden = || Err(Invalid::new("a name holds a slash or a NUL"));
    let long = Invalid::new("a name of 256 bytes is longer than 255");
    assert_eq!(EntryPath::parse(b"/a"), empty());
    assert_eq!(EntryPath::parse(b"a//b"), empty());
    assert_eq!(EntryPath::parse(b"a/"), empty());
    assert_eq!(EntryPath::parse(b"a/../b"), dots());
    assert_eq!(EntryPath::parse(b"./a"), dots());
    assert_eq!(EntryPath::parse(b"a\0b"), forbidden());
    assert_eq!(path("a").child(b"b/c"), forbidden());
    assert_eq!(EntryPath::parse(&[b'n'; 256]), Err(long));
    assert!(EntryPath::parse(&[b'n'; 255]).is_ok());
    assert!(EntryPath::parse(b"...").is_ok());
}

#[test]
fn within_is_asked_component_by_component() {
    let is_within = |one: &str, above: &str| path(one).is_within(&path(above));

    assert!(is_within("volumes/db", "volumes/db"));
    assert!(is_within("volumes/db/app.db", "volumes/db"));
    assert!(is_within("volumes/db", ""));
    assert!(!is_within("volumes/db2", "volumes/db"));
    assert!(!is_within("volumes/db2/app.db", "volumes/db"));
    assert!(!is_within("volumes", "volumes/db"));
}

#[test]
fn a_database_and_its_log_belong_together() {
    let is_companion = |one: &str, database: &str| path(one).is_companion_of(&path(database));

    assert!(is_companion("data/app.db-wal", "data/app.db"));
    assert!(is_companion("data/app.db-journal", "data/app.db"));
    assert!(!is_companion("data/app.db", "data/app.db"));
    assert!(!is_companion("data/app.db-wal2", "data/app.db"));
    assert!(!is_companion("data/app.db2-wal", "data/app.db"));
}

#[test]
fn a_directory_comes_directly_before_what_it_holds() {
    let mut paths = ["a-b", "a/z", "a.txt", "a", "a/b/c", "a/b", ""].map(path);

    paths.sort();

    assert_eq!(
        paths,
        ["", "a", "a/b", "a/b/c", "a/z", "a-b", "a.txt"].map(path)
    );
}

#[test]
fn a_path_is_printed_without_loss_and_without_moving_the_cursor() {
    let odd = EntryPath::parse(b"caf\xc3\xa9/\xff\n\x1b[2J\\").unwrap();

    assert_eq!(odd.to_string(), "café/\\xff\\x0a\\x1b[2J\\\\");
    assert_eq!(EntryPath::root().to_string(), ".");
}

proptest! {
    #[test]
    fn a_path_is_its_components(names in prop::collection::vec("[a-z.\\-\u{e9}]{3,9}", 0..6)) {
        let mut built = EntryPath::root();
        for name in &names {
            built = built.child(name.as_bytes()).unwrap();
        }

        prop_assert_eq!(built.components().collect::<Vec<_>>(), names.iter().map(String::as_bytes).collect::<Vec<_>>());
        prop_assert_eq!(EntryPath::parse(built.as_bytes()), Ok(built.clone()));
        if let Some((parent, name)) = built.split_last() {
            prop_assert_eq!(parent.child(name), Ok(built.clone()));
            prop_assert!(parent < built);
        }
    }

    #[test]
    fn paths_are_ordered_name_by_name(
        one in prop::collection::vec("[ab!0\u{e9}]{1,9}", 0..5),
        other in prop::collection::vec("[ab!0\u{e9}]{1,9}", 0..5),
        shared in prop::collection::vec("[ab!]{1,9}", 0..4),
    ) {
        let names = |own: &[String]| [&shared[..], own].concat();
        let (one, other) = (names(&one), names(&other));
        let joined = |names: &[String]| EntryPath::parse(names.join("/").as_bytes()).unwrap();

        prop_assert_eq!(joined(&one).cmp(&joined(&other)), one.cmp(&other));
    }
}

#[test]
fn what_is_displayed_is_read_back() {
    let odd: [&[u8]; 6] = [
        b"plain/name",
        b"back\\slash",
        b"new\nline",
        b"no\xfftext",
        "bi\u{202e}di".as_bytes(),
        b"",
    ];
    for bytes in odd {
        let path = EntryPath::parse(bytes).unwrap();
        let shown = path.to_string();
        assert_eq!(shown.parse(), Ok(path), "{shown}");
    }
    for bad in ["a\\", "a\\q", "a\\x1", "a\\xzz", "a//b", "../a", "a\\x00"] {
        assert!(bad.parse::<EntryPath>().is_err(), "{bad}");
    }
}
