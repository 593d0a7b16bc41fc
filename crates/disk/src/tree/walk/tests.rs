#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use super::*;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::Mutex;
use tempfile::TempDir;

fn tree() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn root_of(tree: &TempDir) -> RootDir {
    RootDir::open(tree.path(), Mounts::Stay).unwrap()
}

fn settings() -> WalkSettings {
    WalkSettings {
        workers: NonZeroUsize::new(4).unwrap(),
        ..WalkSettings::default()
    }
}

fn paths(tree: &TempDir, settings: &WalkSettings) -> (Vec<String>, WalkReport) {
    let (entries, report) = list(&root_of(tree), settings).unwrap();
    let paths = entries.iter().map(|entry| entry.path.to_string()).collect();
    (paths, report)
}

/// Directories inside one another, each with a name of `length` bytes.
fn deep(tree: &TempDir, levels: usize, length: usize) {
    let name = vec![b'd'; length];
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut at = rustix::fs::open(tree.path(), flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, &*name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*name, flags, Mode::empty()).unwrap();
    }
}

/// Removes what `std` would need too many descriptors for.
fn remove_deep(tree: &TempDir) {
    let at = rustix::fs::open(tree.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for entry in fs::read_dir(tree.path()).unwrap() {
        let name = std::ffi::CString::new(entry.unwrap().file_name().as_bytes()).unwrap();
        crate::fs::remove::tree(&at, &name).unwrap();
    }
}

#[test]
fn odd_names_are_kept_byte_for_byte_and_sorted() {
    let tree = tree();
    let long = [b'n'; 255];
    for name in [
        &b"-rf"[..],
        b"new\nline",
        b"\xff\xfe",
        b"a b",
        &long,
        b"...",
    ] {
        fs::write(tree.path().join(OsStr::from_bytes(name)), "x").unwrap();
    }

    let (entries, report) = list(&root_of(&tree), &settings()).unwrap();

    let names: Vec<&[u8]> = entries.iter().map(|entry| entry.path.as_bytes()).collect();
    let expected = [
        &b"-rf"[..],
        b"...",
        b"a b",
        b"new\nline",
        &long,
        b"\xff\xfe",
    ];
    assert_eq!(names, expected);
    assert_eq!((report.files, report.bytes), (6, 6));
}

#[test]
fn the_first_name_of_a_file_is_the_file_whoever_comes_first() {
    let tree = tree();
    for directory in ["b", "a-", "a"] {
        fs::create_dir(tree.path().join(directory)).unwrap();
    }
    fs::write(tree.path().join("b/x"), "shared").unwrap();
    for name in ["a-/y", "a/z", "c"] {
        fs::hard_link(tree.path().join("b/x"), tree.path().join(name)).unwrap();
    }
    fs::write(tree.path().join("alone"), "has a name elsewhere").unwrap();
    let elsewhere = tempfile::tempdir_in(tree.path().parent().unwrap()).unwrap();
    fs::hard_link(tree.path().join("alone"), elsewhere.path().join("other")).unwrap();

    for _ in 0..50 {
        let (entries, report) = list(&root_of(&tree), &settings()).unwrap();

        let links: Vec<_> = entries
            .iter()
            .filter_map(|entry| match &entry.kind {
                EntryKind::HardLink { to } => Some((entry.path.to_string(), to.to_string())),
                _ => None,
            })
            .collect();
        let expected = ["a-/y", "b/x", "c"].map(|name| (name.to_owned(), "a/z".to_owned()));
        assert_eq!(links, expected);
        assert_eq!((report.files, report.hard_links), (2, 3));
    }
}

#[test]
fn pipes_sockets_and_devices_are_reported_and_never_opened() {
    let tree = tree();
    let pipe = tree.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(tree.path().join("socket")).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let device = tree.path().join("device");
    let kind = rustix::fs::FileType::CharacterDevice;
    let has_device = rustix::fs::mknodat(CWD, &device, kind, Mode::RWXU, null).is_ok();

    let (entries, report) = list(&root_of(&tree), &settings()).unwrap();

    let kinds: Vec<_> = entries.iter().map(|entry| &entry.kind).collect();
    assert_eq!(kinds, [&EntryKind::Fifo]);
    let skipped = report.skipped.iter();
    let skipped: Vec<_> = skipped
        .map(|one| (one.path.to_string(), one.reason))
        .collect();
    let mut expected = vec![
        ("pipe".to_owned(), WalkSkip::Fifo),
        ("socket".to_owned(), WalkSkip::Socket),
    ];
    if has_device {
        expected.insert(0, ("device".to_owned(), WalkSkip::Device));
    }
    assert_eq!(skipped, expected);
}

#[test]
fn five_hundred_levels_are_fine_and_twelve_hundred_are_a_limit() {
    let (fine, too_deep) = (tree(), tree());
    deep(&fine, 500, 40);
    deep(&too_deep, 1200, 3);

    let (entries, report) = list(&root_of(&fine), &settings()).unwrap();
    let slow = list(&root_of(&fine).without_openat2(), &settings()).unwrap();
    let refused = list(&root_of(&too_deep), &settings()).unwrap_err();
    remove_deep(&fine);
    remove_deep(&too_deep);

    assert_eq!(report.directories, 500);
    assert_eq!(entries[499].path.as_bytes().len(), 500 * 41 - 1);
    assert_eq!(slow.0, entries);
    assert!(
        matches!(refused, WalkError::TooDeep { limit: 1000, .. }),
        "{refused}"
    );
}

#[test]
fn links_are_read_and_never_followed() {
    let tree = tree();
    symlink("loop", tree.path().join("loop")).unwrap();
    symlink("/etc", tree.path().join("absolute")).unwrap();
    symlink("../../..", tree.path().join("up")).unwrap();

    for root in [root_of(&tree), root_of(&tree).without_openat2()] {
        let (entries, report) = list(&root, &settings()).unwrap();

        let target = |entry: &stasis_model::tree::Entry| match &entry.kind {
            EntryKind::Symlink { target } => target.to_vec(),
            other => panic!("{other:?}"),
        };
        let targets: Vec<_> = entries.iter().map(target).collect();
        assert_eq!(targets, [&b"/etc"[..], b"loop", b"../../.."]);
        assert_eq!((report.symlinks, report.skipped_count), (3, 0));
        let refused = [Errno::LOOP, Errno::NOTDIR];
        assert!(refused.contains(&root.directory(b"absolute").unwrap_err()));
        assert!(refused.contains(&root.directory(b"up/etc").unwrap_err()));
    }
}

#[test]
fn patterns_exclude_as_in_a_gitignore() {
    let tree = tree();
    for directory in ["src", "src/target", "target", "target/deep"] {
        fs::create_dir(tree.path().join(directory)).unwrap();
    }
    for file in [
        "a.log",
        "keep.log",
        "src/b.log",
        "src/target/x",
        "target/deep/y",
        "z",
    ] {
        fs::write(tree.path().join(file), "").unwrap();
    }
    let excludes = ["*.log", "!keep.log", "/target/"]
        .map(str::to_owned)
        .to_vec();
    let (paths, report) = paths(
        &tree,
        &WalkSettings {
            excludes,
            ..settings()
        },
    );

    assert_eq!(
        paths,
        ["keep.log", "src", "src/target", "src/target/x", "z"]
    );
    assert_eq!(report.excluded, 3);
}

#[test]
fn a_pattern_that_is_none_is_refused_and_named() {
    let tree = tree();
    let walked = |pattern: &str| {
        let excludes = vec!["*.log".to_owned(), pattern.to_owned()];
        let settings = WalkSettings {
            excludes,
            ..settings()
        };
        list(&root_of(&tree), &settings)
    };

    for bad in [
        "[", "a[b", "[z-a]", "{a", "a}", "a\\", "", " ", "/", "!", "!/", "# notes",
    ] {
        let refused = walked(bad).unwrap_err();
        assert!(
            matches!(&refused, WalkError::Pattern { pattern, .. } if pattern == bad),
            "`{bad}`: {refused}"
        );
    }
    for good in ["a**b", "**", "\\[", "[ab]", "{a,b}", "\\#", "!keep", "/a/"] {
        assert!(walked(good).is_ok(), "`{good}`");
    }
}

/// Removes a file after its directory was listed, and remembers in which order it was called.
struct Saboteur {
    victim: std::path::PathBuf,
    calls: Mutex<Vec<String>>,
    most_descriptors: Mutex<usize>,
}

impl Saboteur {
    fn of(victim: std::path::PathBuf) -> Self {
        Self {
            victim,
            calls: Mutex::default(),
            most_descriptors: Mutex::default(),
        }
    }
}

impl Visitor for Saboteur {
    type Error = WalkError;

    fn enter(&self, _: &WalkedDir<'_>) -> Result<(), WalkError> {
        let _ = fs::remove_file(&self.victim);
        let open = fs::read_dir("/proc/self/fd").unwrap().count();
        let mut most = self.most_descriptors.lock().unwrap();
        *most = open.max(*most);
        Ok(())
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let names = entries.iter().map(|found| place.child(found.name).unwrap());
        let names = names.map(|path| path.to_string());
        self.calls.lock().unwrap().extend(names);
        Ok(())
    }

    fn leave(&self, path: &EntryPath, _: &Seen) -> Result<(), WalkError> {
        self.calls.lock().unwrap().push(format!("leave {path}"));
        Ok(())
    }
}

#[test]
fn what_vanishes_is_counted_and_fails_only_a_strict_walk() {
    let tree = tree();
    let victim = tree.path().join("victim");
    let strict = WalkSettings {
        strict: true,
        ..settings()
    };
    fs::write(tree.path().join("stays"), "").unwrap();

    fs::write(&victim, "").unwrap();
    let saboteur = Saboteur::of(victim.clone());
    let report = walk(&root_of(&tree), &saboteur, &settings()).unwrap();
    fs::write(&victim, "").unwrap();
    let refused = walk(&root_of(&tree), &Saboteur::of(victim), &strict).unwrap_err();

    assert_eq!((report.files, report.vanished_count), (1, 1));
    assert_eq!(report.vanished, [EntryPath::parse(b"victim").unwrap()]);
    let reason = WalkSkip::Vanished;
    assert!(matches!(refused, WalkError::Incomplete { reason: found, .. } if found == reason));
}

#[test]
fn a_wide_tree_is_shown_once_in_order_with_few_descriptors() {
    let tree = tree();
    for n in 0..1200 {
        let directory = tree.path().join(format!("d{n}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), "").unwrap();
    }
    let saboteur = Saboteur::of(tree.path().join("nobody"));

    let report = walk(&root_of(&tree), &saboteur, &settings()).unwrap();

    assert_eq!((report.files, report.directories), (1200, 1200));
    let calls = saboteur.calls.into_inner().unwrap();
    assert_eq!(calls.last().unwrap(), "leave .");
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), 3601);
    let at = |call: &str| calls.iter().position(|one| one == call).unwrap();
    for n in [0, 7, 999, 1199] {
        assert!(at(&format!("d{n}")) < at(&format!("d{n}/file")));
        assert!(at(&format!("d{n}/file")) < at(&format!("leave d{n}")));
    }
    let most = saboteur.most_descriptors.into_inner().unwrap();
    assert!(most < 100, "{most} descriptors were open");
}

#[test]
fn a_walk_that_is_cancelled_ends_as_cancelled() {
    let tree = tree();
    let settings = settings();
    settings.cancel.store(true, Ordering::Relaxed);

    let refused = list(&root_of(&tree), &settings).unwrap_err();

    assert!(matches!(refused, WalkError::Cancelled));
}

#[test]
fn a_directory_swapped_for_a_link_while_we_walk_leads_nobody_out() {
    let (tree, outside) = (tree(), tree());
    fs::create_dir(outside.path().join("inner")).unwrap();
    fs::write(outside.path().join("inner/canary"), "secret").unwrap();
    let (inside, decoy) = (tree.path().join("dir"), tree.path().join("link"));
    fs::create_dir_all(inside.join("inner")).unwrap();
    fs::write(inside.join("inner/honest"), "").unwrap();
    symlink(outside.path(), &decoy).unwrap();
    let is_done = AtomicBool::new(false);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10_000 {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &inside, CWD, &decoy, flags).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let roots = [root_of(&tree), root_of(&tree).without_openat2()];
        while !is_done.load(Ordering::Relaxed) {
            for root in &roots {
                let (entries, _) = list(root, &settings()).unwrap();
                let names: Vec<_> = entries.iter().map(|entry| entry.path.to_string()).collect();
                assert!(
                    !names.iter().any(|name| name.contains("canary")),
                    "{names:?}"
                );
            }
        }
    });
}
