use super::*;
use crate::tree::walk::{self, WalkSettings};
use stasis_model::tree::{Entry, EntryKind, FileTime};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

fn metadata_of(mode: u32, seconds: i64) -> Metadata {
    Metadata {
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        modified: FileTime {
            seconds,
            nanos: 123_456_789,
        },
    }
}

fn writer(home: &TempDir, settings: WriteSettings) -> TreeWriter {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = fs::open(home.path(), flags, Mode::empty()).unwrap();
    TreeWriter::new(root, settings).unwrap()
}

fn new_writer() -> (TempDir, TreeWriter) {
    let home = tempfile::tempdir().unwrap();
    let writer = writer(&home, WriteSettings::default());
    (home, writer)
}

fn write(writer: &TreeWriter, at: &str, bytes: &[u8], metadata: &Metadata) {
    let file = writer.file(&path(at), bytes.len() as u64).unwrap();
    file.write_at(0, bytes).unwrap();
    file.finish(metadata, &[]).unwrap();
}

fn entries(root: &Path) -> Vec<Entry> {
    let root = RootDir::open(root, Mounts::Stay).unwrap();
    walk::list(&root, &WalkSettings::default()).unwrap().0
}

/// One of everything, sorted by path.
fn everything() -> Vec<Entry> {
    let attribute = Attribute {
        name: b"user.note".as_slice().into(),
        value: b"\0 kept".as_slice().into(),
    };
    let entry = |at: &str, kind, metadata, attributes: &[Attribute]| Entry {
        path: path(at),
        kind,
        metadata,
        attributes: attributes.to_vec(),
    };
    let kept = std::slice::from_ref(&attribute);
    let link = |target: &[u8]| EntryKind::Symlink {
        target: target.into(),
    };
    let file = |size| EntryKind::File { size };
    let hard = EntryKind::HardLink {
        to: path("deep/er/file"),
    };
    vec![
        entry("closed", EntryKind::Directory, metadata_of(0, 1), &[]),
        entry("closed/in", file(3), metadata_of(0o444, 2), &[]),
        entry("deep", EntryKind::Directory, metadata_of(0o755, -9), kept),
        entry("deep/er", EntryKind::Directory, metadata_of(0o500, 4), &[]),
        entry("deep/er/file", file(5), metadata_of(0o640, 5), kept),
        entry("deep/link", link(b"/etc"), metadata_of(0o777, 6), &[]),
        entry("pipe", EntryKind::Fifo, metadata_of(0o622, 7), &[]),
        entry("sticky", EntryKind::Directory, metadata_of(0o1777, 8), &[]),
        entry("zero", file(0), metadata_of(0o644, 9), &[]),
        entry("zz", hard, metadata_of(0o640, 5), &[]),
    ]
}

fn announce(writer: &TreeWriter, entry: &Entry) {
    let Entry {
        path,
        kind,
        metadata,
        attributes,
    } = entry;
    match kind {
        EntryKind::Directory => writer.directory(path, metadata, attributes).unwrap(),
        EntryKind::File { size } => {
            let file = writer.file(path, *size).unwrap();
            let bytes = vec![b'x'; usize::try_from(*size).unwrap()];
            file.write_at(0, &bytes).unwrap();
            file.finish(metadata, attributes).unwrap();
        }
        EntryKind::Symlink { target } => writer.symlink(path, target, metadata).unwrap(),
        EntryKind::HardLink { to } => writer.hard_link(path, to).unwrap(),
        _ => writer.fifo(path, metadata).unwrap(),
    }
}

#[test]
fn a_tree_is_what_was_announced_in_whatever_order_it_came() {
    let tree = everything();
    for backwards in [false, true] {
        let (home, writer) = new_writer();
        let mut order: Vec<&Entry> = tree.iter().collect();
        if backwards {
            order.reverse();
        }

        for entry in order {
            announce(&writer, entry);
        }
        let root = metadata_of(0o750, 10);
        let report = writer.finish(Some(&root)).unwrap();

        if rustix::process::geteuid().is_root() {
            assert_eq!(entries(home.path()), tree);
        }
        let seen = metadata::Seen::from(&fs::stat(home.path()).unwrap());
        assert_eq!(seen.metadata(), root);
        assert_eq!((report.files, report.directories), (3, 4));
        assert_eq!(
            (report.symlinks, report.hard_links, report.fifos),
            (1, 1, 1)
        );
        assert_eq!((report.bytes, report.directories_unannounced), (8, 0));
        open_up(home.path());
    }
}

/// So that the directory can be removed by somebody who is not root.
fn open_up(root: &Path) {
    let _ = std::process::Command::new("chmod")
        .arg("-R")
        .arg("u+rwX")
        .arg(root)
        .status();
}

#[test]
fn what_is_never_written_is_a_hole() {
    let (home, writer) = new_writer();
    let file = writer.file(&path("sparse"), 1 << 30).unwrap();

    file.write_at(500 << 20, b"middle").unwrap();
    let beyond = file.write_at((1 << 30) - 2, b"end").unwrap_err();
    file.finish(&metadata_of(0o600, 0), &[]).unwrap();
    let report = writer.finish(None).unwrap();

    assert!(matches!(beyond, TreeWriteError::BeyondEnd { .. }));
    let made = std::fs::metadata(home.path().join("sparse")).unwrap();
    assert_eq!((made.len(), report.bytes), (1 << 30, 1 << 30));
    assert!(made.blocks() < 64, "{} blocks", made.blocks());
}

#[test]
fn trees_that_contradict_themselves_are_refused() {
    use TreeWriteError::{BadLink, Duplicate, NotDirectory, Unfinished};
    let refused = |build: &dyn Fn(&TreeWriter) -> Result<(), TreeWriteError>| {
        let (_home, writer) = new_writer();
        let built = build(&writer).and_then(|()| writer.finish(None).map(|_| ()));
        built.unwrap_err()
    };
    let meta = metadata_of(0o755, 0);
    let file = |writer: &TreeWriter, at: &str| writer.file(&path(at), 0)?.finish(&meta, &[]);
    let directory = |writer: &TreeWriter, at: &str| writer.directory(&path(at), &meta, &[]);

    let twice = refused(&|w| file(w, "a").and_then(|()| file(w, "a")));
    assert!(matches!(twice, Duplicate(_)), "{twice}");
    let twice = refused(&|w| directory(w, "a").and_then(|()| directory(w, "a")));
    assert!(matches!(twice, Duplicate(_)), "{twice}");
    let both = refused(&|w| file(w, "a").and_then(|()| directory(w, "a")));
    assert!(matches!(both, Duplicate(_)), "{both}");
    let both = refused(&|w| directory(w, "a").and_then(|()| file(w, "a")));
    assert!(matches!(both, Duplicate(_)), "{both}");
    let within = refused(&|w| file(w, "a").and_then(|()| file(w, "a/b")));
    assert!(matches!(within, NotDirectory(_)), "{within}");
    let within = refused(&|w| file(w, "a/b").and_then(|()| file(w, "a")));
    assert!(matches!(within, NotDirectory(_)), "{within}");
    let through = refused(&|w| {
        w.symlink(&path("a"), b"/etc", &meta)
            .and_then(|()| file(w, "a/b"))
    });
    assert!(matches!(through, NotDirectory(_)), "{through}");
    let through = refused(&|w| {
        w.symlink(&path("a"), b"b", &meta)?;
        w.hard_link(&path("c"), &path("a"))
    });
    assert!(matches!(through, BadLink { .. }), "{through}");
    for to in ["absent", "no/where", "dir", "x", "y", "pipe"] {
        let dangling = refused(&|w| {
            directory(w, "dir")?;
            w.fifo(&path("pipe"), &meta)?;
            w.hard_link(&path("y"), &path("file"))?;
            file(w, "file")?;
            w.hard_link(&path("x"), &path(to))
        });
        assert!(matches!(dangling, BadLink { .. }), "{dangling}");
    }
    let links = refused(&|w| {
        w.symlink(&path("a"), b"b", &meta)?;
        w.symlink(&path("a"), b"c", &meta)
    });
    assert!(matches!(links, Duplicate(_)), "{links}");
    let half = refused(&|w| w.file(&path("a"), 5).map(drop));
    assert!(matches!(half, Unfinished(1)), "{half}");
    let root = refused(&|w| w.symlink(&EntryPath::root(), b"b", &meta));
    assert!(matches!(root, Duplicate(_)), "{root}");
}

#[test]
fn limits_hold_and_a_cancelled_writer_stops() {
    let limited = |limits| {
        let home = tempfile::tempdir().unwrap();
        let settings = WriteSettings {
            limits,
            ..WriteSettings::default()
        };
        let writer = writer(&home, settings);
        (home, writer)
    };
    let (_home, few) = limited(WriteLimits {
        entries: 3,
        ..WriteLimits::default()
    });
    let (_home2, short) = limited(WriteLimits {
        bytes: 10,
        ..WriteLimits::default()
    });
    let (_home3, flat) = limited(WriteLimits {
        deepest: 2,
        ..WriteLimits::default()
    });

    let entries = few.file(&path("a/b/c/d"), 0).unwrap_err();
    let _ = short.file(&path("a"), 10).unwrap();
    let bytes = short.file(&path("b"), 1).unwrap_err();
    let wrapped = short.file(&path("c"), u64::MAX).unwrap_err();
    flat.directory(&path("a/b"), &Metadata::default(), &[])
        .unwrap();
    let deep = flat.symlink(&path("a/b/c/d"), b"x", &Metadata::default());
    let deeper = flat.directory(&path("a/b/c"), &Metadata::default(), &[]);
    flat.settings.cancel.store(true, Ordering::Relaxed);
    let cancelled = flat.file(&path("z"), 0).unwrap_err();

    assert!(matches!(entries, TreeWriteError::TooManyEntries(3)));
    assert!(matches!(bytes, TreeWriteError::TooManyBytes(10)));
    assert!(matches!(wrapped, TreeWriteError::TooManyBytes(10)));
    assert!(matches!(
        deep,
        Err(TreeWriteError::TooDeep { limit: 2, .. })
    ));
    assert!(matches!(
        deeper,
        Err(TreeWriteError::TooDeep { limit: 2, .. })
    ));
    assert!(matches!(cancelled, TreeWriteError::Cancelled));
}

#[test]
fn what_is_not_ours_to_give_is_counted() {
    let home = tempfile::tempdir().unwrap();
    let settings = WriteSettings {
        rights: Rights::Own,
        ..WriteSettings::default()
    };
    let writer = writer(&home, settings);
    let theirs = Metadata {
        uid: 12_345,
        ..metadata_of(0o6755, 0)
    };
    let label = Attribute {
        name: b"security.evil".as_slice().into(),
        value: b"1".as_slice().into(),
    };

    let file = writer.file(&path("file"), 0).unwrap();
    file.finish(&theirs, &[label]).unwrap();
    writer.directory(&path("dir"), &theirs, &[]).unwrap();
    writer.fifo(&path("pipe"), &theirs).unwrap();
    writer.symlink(&path("link"), b"x", &theirs).unwrap();
    let report = writer.finish(None).unwrap();

    assert_eq!((report.owners_not_kept, report.privileges_not_kept), (4, 3));
    assert_eq!(report.attributes_not_kept, 1);
    for name in ["file", "dir", "pipe"] {
        let made = std::fs::metadata(home.path().join(name)).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o755, "{name}");
        assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
    }
}

#[test]
fn several_workers_write_one_tree() {
    let (home, writer) = new_writer();
    let meta = metadata_of(0o600, 7);
    let directory = metadata_of(0o751, 8);

    std::thread::scope(|scope| {
        for worker in 0..4_usize {
            let (writer, meta, directory) = (&writer, &meta, &directory);
            scope.spawn(move || {
                for number in (worker..2000).step_by(4) {
                    let folder = format!("d{}/e{}", number % 7, number % 11);
                    write(
                        writer,
                        &format!("{folder}/{number}"),
                        folder.as_bytes(),
                        meta,
                    );
                    if number < 77 {
                        writer.directory(&path(&folder), directory, &[]).unwrap();
                    }
                }
            });
        }
    });
    let report = writer.finish(None).unwrap();

    assert_eq!((report.files, report.directories), (2000, 84));
    assert_eq!(report.directories_unannounced, 7);
    let made = entries(home.path());
    assert_eq!(made.len(), 2084);
    let inner = made.iter().filter(|entry| {
        entry.kind == EntryKind::Directory && entry.path.as_bytes().contains(&b'/')
    });
    for entry in inner {
        assert_eq!(entry.metadata, directory);
    }
}

#[test]
fn bytes_are_taken_from_an_old_file_only_if_they_are_the_right_ones() {
    let (home, writer) = new_writer();
    let old = tempfile::tempfile().unwrap();
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::os::unix::fs::FileExt::write_all_at(&old, &bytes, 0).unwrap();
    let right = blake3::hash(&bytes);
    let meta = metadata_of(0o644, 0);

    let same = writer.file(&path("same"), bytes.len() as u64).unwrap();
    assert!(same.reuse(old.as_fd(), &right).unwrap());
    same.finish(&meta, &[]).unwrap();
    let other = writer.file(&path("other"), bytes.len() as u64).unwrap();
    assert!(!other.reuse(old.as_fd(), &blake3::hash(b"")).unwrap());
    other.finish(&meta, &[]).unwrap();
    let shorter = writer.file(&path("shorter"), 5).unwrap();
    assert!(!shorter.reuse(old.as_fd(), &right).unwrap());
    let _ = shorter.fill_from(old.as_fd(), 5).unwrap();
    shorter.finish(&meta, &[]).unwrap();
    let report = writer.finish(None).unwrap();

    let read = |name: &str| std::fs::read(home.path().join(name)).unwrap();
    assert!(read("same") == bytes);
    assert!(read("other") == vec![0; bytes.len()]);
    assert_eq!(read("shorter"), bytes[..5]);
    assert_eq!(report.bytes_reused, bytes.len() as u64 + 5);
}
