#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that are sent"
)]

use super::*;
use crate::form::archive::header::{Header, padding};
use crate::form::archive::spelling::END;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::{self, WalkSettings};
use crate::tree::write::TreeWriteError;
use rustix::fs::XattrFlags;
use stasis_model::tree::FileTime;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

/// A tar in the making.
#[derive(Default)]
struct SentTar(Vec<u8>);

impl SentTar {
    fn add(mut self, kind: u8, name: &str, target: &str, content: &[u8]) -> Self {
        let header = Header {
            name: name.as_bytes().to_vec(),
            mode: 0o751,
            uid: 1234,
            gid: 4321,
            size: content.len() as u64,
            seconds: 1_700_000_000,
            kind,
            target: target.as_bytes().to_vec(),
        };
        self.0.extend_from_slice(&header.encode());
        self.0.extend_from_slice(content);
        self.0
            .resize(self.0.len() + padding(content.len() as u64), 0);
        self
    }

    fn directory(self, name: &str) -> Self {
        self.add(b'5', name, "", b"")
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.add(b'0', name, "", content.as_bytes())
    }

    fn hard_link(self, name: &str, to: &str) -> Self {
        self.add(b'1', name, to, b"")
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.add(b'2', name, target, b"")
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&END);
        self.0
    }
}

struct ReceivePlace {
    home: tempfile::TempDir,
    target: PathBuf,
}

impl ReceivePlace {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("target");
        fs::create_dir(&target).unwrap();
        Self { home, target }
    }

    fn receive(&self, tar: &[u8]) -> Result<ReceivedTree, ArchiveError> {
        let name = Path::new("the volume data");
        receive_tar(tar, name, &self.target, &ReadSettings::default())
    }

    fn entries(&self) -> Vec<Entry> {
        entries(&self.target)
    }
}

fn entries(tree: &Path) -> Vec<Entry> {
    let root = RootDir::open(tree, Mounts::Stay).unwrap();
    walk::list(&root, &WalkSettings::default()).unwrap().0
}

/// A tree for GNU tar to send: owners of others, if root makes it.
fn a_tree(place: &ReceivePlace) -> PathBuf {
    let tree = place.home.path().join("data");
    fs::create_dir_all(tree.join("void")).unwrap();
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub").join("n".repeat(200)), "long").unwrap();
    fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    fs::hard_link(tree.join("large"), tree.join("sub/again")).unwrap();
    symlink("t".repeat(200), tree.join("link")).unwrap();
    rustix::fs::setxattr(tree.join("large"), "user.note", b"1", XattrFlags::empty()).unwrap();
    if rustix::process::geteuid().is_root() {
        lchown(tree.join("large"), Some(3_000_000), Some(70)).unwrap();
        lchown(tree.join("link"), Some(999), Some(999)).unwrap();
        lchown(&tree, Some(999), Some(999)).unwrap();
        fs::set_permissions(tree.join("void"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(tree.join("empty"), fs::Permissions::from_mode(0o000)).unwrap();
    }
    fs::set_permissions(tree.join("large"), fs::Permissions::from_mode(0o4511)).unwrap();
    tree
}

#[test]
fn what_gnu_tar_sends_is_ours_on_the_disk_and_theirs_in_what_is_said_of_it() {
    for format in ["posix", "gnu"] {
        let place = ReceivePlace::new();
        let tree = a_tree(&place);
        let mut command = Command::new("tar");
        command.arg("-C").arg(place.home.path());
        command.args(["--format", format, "-c", "data"]);
        if format == "posix" {
            command.arg("--xattrs");
        }
        let tar = command.output().unwrap().stdout;

        let received = place.receive(&tar).unwrap();

        let sent = entries(&tree);
        assert_eq!(received.entries.len(), sent.len() + 1);
        assert!(received.devices.is_empty());
        let has_all = format == "posix";
        for entry in &sent {
            let stated = &received.entries[&entry.path];
            let mut expected = entry.metadata;
            if !has_all {
                expected.modified.nanos = 0;
            }
            assert_eq!(stated.metadata, expected, "{:?}", entry.path);
            let is_file = matches!(entry.kind, EntryKind::File { .. });
            if has_all && is_file {
                assert_eq!(stated.attributes, entry.attributes, "{:?}", entry.path);
            }
        }
        let top = fs::metadata(&tree).unwrap();
        let stated = received.entries[&EntryPath::root()].metadata;
        assert_eq!((stated.uid, stated.gid), (top.uid(), top.gid()));
        let kinds = |entries: Vec<Entry>| -> Vec<_> {
            let both = entries.into_iter().map(|entry| (entry.path, entry.kind));
            both.collect()
        };
        assert_eq!(kinds(place.entries()), kinds(sent));
        for entry in place.entries() {
            assert_eq!(entry.metadata.uid, rustix::process::geteuid().as_raw());
            assert!(entry.attributes.is_empty());
            match entry.kind {
                EntryKind::Directory => assert_eq!(entry.metadata.mode, 0o700),
                EntryKind::Symlink { .. } => {}
                _ => assert_eq!(entry.metadata.mode, 0o600),
            }
        }
        let large = fs::read(place.target.join("sub/again")).unwrap();
        assert_eq!(large, vec![7; 3 << 20]);
    }
}

#[test]
fn all_names_of_a_file_have_what_is_said_of_the_file() {
    let place = ReceivePlace::new();
    let mut tar = SentTar::default().directory("data/").file("data/file", "x");
    // A name of which the tar says something else.
    let at = tar.0.len();
    tar = tar.hard_link("data/name", "data/file");
    let mut header = Header::decode(tar.0[at..].first_chunk().unwrap()).unwrap();
    header.uid = 1;
    tar.0[at..].copy_from_slice(&header.encode());

    let received = place.receive(&tar.end()).unwrap();

    let (file, name) = (path("file"), path("name"));
    assert_eq!(received.entries[&file].metadata.uid, 1234);
    assert_eq!(received.entries[&name], received.entries[&file]);
    assert_eq!(received.written.hard_links, 1);
}

#[test]
fn devices_are_named_and_further_names_of_links_and_pipes_are_made() {
    let place = ReceivePlace::new();
    let tar = SentTar::default()
        .directory("data/")
        .add(b'3', "data/null", "", b"")
        .add(b'4', "data/disk", "", b"")
        .hard_link("data/null2", "data/null")
        .symlink("data/link", "nowhere")
        .hard_link("data/link2", "data/link")
        .add(b'6', "data/pipe", "", b"")
        .hard_link("data/pipe2", "data/pipe")
        .end();

    let received = place.receive(&tar).unwrap();

    assert_eq!(
        received.devices,
        [path("disk"), path("null"), path("null2")]
    );
    let mut kinds = place.entries().into_iter().map(|entry| entry.kind);
    let link = EntryKind::Symlink {
        target: b"nowhere"[..].into(),
    };
    let found: Vec<_> = kinds.by_ref().collect();
    assert_eq!(
        found,
        [link.clone(), link, EntryKind::Fifo, EntryKind::Fifo]
    );
    assert_eq!(received.entries.len(), 5);
}

#[test]
fn the_directory_may_be_called_anything_or_nothing_or_not_be_sent() {
    let is_said = |tar: SentTar| {
        let place = ReceivePlace::new();
        let received = place.receive(&tar.end()).unwrap();
        assert_eq!(fs::read(place.target.join("a/b")).unwrap(), b"x");
        assert_eq!(received.entries[&path("a/b")].metadata.mode, 0o751);
        let at = (path("volumes/data"), path("volumes/data/a/b"));
        let stated = received.stated(&at.0, &at.1).unwrap();
        assert_eq!(stated, received.entries[&path("a/b")]);
        assert!(received.stated(&at.0, &path("volumes/data2")).is_none());
        let time = FileTime {
            seconds: 1_700_000_000,
            nanos: 0,
        };
        assert_eq!(stated.metadata.modified, time);
        received.entries.contains_key(&EntryPath::root())
    };
    let under = |top: &str, tar: SentTar| {
        tar.directory(&format!("{top}a/"))
            .file(&format!("{top}a/b"), "x")
    };

    assert!(is_said(under(
        "data/",
        SentTar::default().directory("data/")
    )));
    assert!(is_said(under("./", SentTar::default().directory("./"))));
    assert!(is_said(under(
        "./data/",
        SentTar::default().directory("./data")
    )));
    assert!(!is_said(under("data/", SentTar::default())));
}

#[test]
fn what_would_lead_out_of_the_target_is_refused() {
    let begun = || SentTar::default().directory("data/");
    let refused = |tar: SentTar| match ReceivePlace::new().receive(&tar.end()).unwrap_err() {
        ArchiveError::Refused { problem, .. } => problem,
        error => panic!("{error}"),
    };

    assert!(matches!(
        refused(begun().file("data/../x", "")),
        Problem::Name(_)
    ));
    assert!(matches!(
        refused(begun().file("../x", "")),
        Problem::Name(_)
    ));
    assert_eq!(refused(begun().file("/x", "")), Problem::Absolute);
    assert_eq!(refused(begun().file("other/x", "")), Problem::Outside);
    assert_eq!(refused(begun().file("data2", "")), Problem::Outside);
    assert_eq!(refused(begun().directory("./")), Problem::Outside);
    let device = begun().add(b'3', "other/x", "", b"");
    assert_eq!(refused(device), Problem::Outside);
    let link = begun().hard_link("data/x", "other/x");
    assert_eq!(refused(link), Problem::Outside);
    let link = begun().hard_link("data/x", "/etc/passwd");
    assert_eq!(refused(link), Problem::Absolute);
    assert_eq!(
        refused(SentTar::default().file("data", "x")),
        Problem::NoTree
    );
}

#[test]
fn nothing_is_written_through_a_link_and_nothing_twice() {
    let place = ReceivePlace::new();
    let outside = place.home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let through = SentTar::default()
        .directory("data/")
        .symlink("data/l", outside.to_str().unwrap())
        .file("data/l/x", "leaked");
    let twice = SentTar::default()
        .directory("data/")
        .file("data/x", "1")
        .file("data/x", "2");

    let through = place.receive(&through.end()).unwrap_err();
    let twice = ReceivePlace::new().receive(&twice.end()).unwrap_err();

    assert!(matches!(through, ArchiveError::Write(_)), "{through}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    let duplicate = ArchiveError::Write(TreeWriteError::Duplicate(path("x")));
    assert_eq!(twice.to_string(), duplicate.to_string());
}

/// Sends some bytes; then the line is dead.
struct BrokenStream<'t>(&'t [u8]);

impl Read for BrokenStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            read => Ok(read),
        }
    }
}

#[test]
fn a_tar_that_ends_too_early_or_is_cancelled_is_no_tree() {
    let tar = SentTar::default()
        .directory("data/")
        .file("data/x", "content")
        .end();
    let name = Path::new("the volume data");
    for length in (0..tar.len()).step_by(500) {
        let refused = ReceivePlace::new().receive(&tar[..length]).unwrap_err();
        assert!(matches!(
            refused,
            ArchiveError::Refused {
                problem: Problem::Truncated,
                ..
            }
        ));
    }

    let place = ReceivePlace::new();
    let broken = receive_tar(
        BrokenStream(&tar),
        name,
        &place.target,
        &ReadSettings::default(),
    );
    let settings = ReadSettings {
        cancel: Arc::new(AtomicBool::new(true)),
        ..ReadSettings::default()
    };
    let place = ReceivePlace::new();
    let cancelled = receive_tar(&*tar, name, &place.target, &settings);

    let broken = broken.unwrap_err();
    assert!(broken.to_string().contains("the volume data"), "{broken}");
    assert!(matches!(cancelled, Err(ArchiveError::Cancelled)));
}

#[test]
fn a_target_that_is_not_empty_is_left_as_it_is() {
    let place = ReceivePlace::new();
    fs::write(place.target.join("own"), "own").unwrap();
    let tar = SentTar::default()
        .directory("data/")
        .file("data/x", "x")
        .end();

    let refused = place.receive(&tar).unwrap_err();

    assert!(matches!(refused, ArchiveError::Failed(_)), "{refused}");
    assert_eq!(place.entries().len(), 1);
}
