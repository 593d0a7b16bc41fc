//! Saves of trees whose metadata somebody states, and the way of a tar through one.

use super::tar::{path, tar_of};
use super::*;
use crate::form::archive::{ReadSettings, TAR_END, receive_tar, tar_headers, tar_padding};
use crate::tree::stated::StatedEntry;
use rustix::fs::XattrFlags;
use stasis_model::format::manifest::FileList;
use stasis_model::tree::{Attribute, EntryKind, EntryPath, FileTime, Metadata};
use std::os::unix::fs::MetadataExt;

fn attribute(name: &str, value: &[u8]) -> Attribute {
    Attribute {
        name: name.as_bytes().into(),
        value: value.into(),
    }
}

fn stated(mode: u32, uid: u32, modified: (i64, u32)) -> StatedEntry {
    StatedEntry {
        metadata: Metadata {
            mode,
            uid,
            gid: uid + 1,
            modified: FileTime {
                seconds: modified.0,
                nanos: modified.1,
            },
        },
        attributes: Vec::new(),
    }
}

fn row<'s>(saved: &'s Saved, name: &str) -> &'s Entry {
    let FileList::Inline(rows) = &saved.list else {
        panic!("the list is short");
    };
    let mut rows = rows.iter().map(|row| &row.entry);
    rows.find(|entry| entry.path == path(name.as_bytes()))
        .unwrap()
}

/// The entry, as it is on the disk.
fn on_disk(world: &World, name: &str) -> Entry {
    let mut entries = entries(&world.tree()).into_iter();
    entries
        .find(|entry| entry.path == path(name.as_bytes()))
        .unwrap()
}

#[test]
fn what_is_stated_replaces_what_the_system_says_and_nothing_else() {
    let mut world = World::new();
    world.write("d/file", b"content");
    world.write("d/other", b"other");
    fs::hard_link(world.tree().join("d/file"), world.tree().join("d/name")).unwrap();
    std::os::unix::fs::symlink("nowhere", world.tree().join("d/link")).unwrap();
    let mut said = stated(0o104_755, 3_000_000, (-5, 7));
    said.attributes = vec![
        attribute("user.z", b"1"),
        attribute("security.selinux", b"label"),
        attribute("user.a", b"2"),
    ];
    let kept = vec![attribute("user.a", b"2"), attribute("user.z", b"1")];
    let metadata = Metadata {
        mode: 0o4755,
        ..said.metadata
    };

    let of = |at: &EntryPath| (*at != path(b"d/other")).then(|| said.clone());
    let saved = world.save_as(2, Some(&of));

    assert_eq!((saved.root, &saved.root_attributes), (metadata, &kept));
    for name in ["d", "d/file"] {
        let row = row(&saved, name);
        assert_eq!((row.metadata, &row.attributes), (metadata, &kept), "{name}");
    }
    assert_eq!(row(&saved, "d/file").kind, EntryKind::File { size: 7 });
    let (link, name) = (row(&saved, "d/link"), row(&saved, "d/name"));
    assert_eq!(
        link.metadata,
        Metadata {
            mode: 0o777,
            ..metadata
        }
    );
    assert!(link.attributes.is_empty());
    let to = path(b"d/file");
    assert_eq!(name.kind, EntryKind::HardLink { to });
    assert_eq!((name.metadata, name.attributes.len()), (metadata, 0));
    assert_eq!(*row(&saved, "d/other"), on_disk(&world, "d/other"));
    // The label of the root, of `d` and of the file, and all that is stated of the link.
    assert_eq!(saved.report.attributes_left_out, 6);
}

#[test]
fn what_is_cached_never_comes_with_what_was_stated_at_another_time() {
    let mut world = World::new();
    world.write("d/file", b"content");
    world.settle();
    let seen = fs::metadata(world.tree().join("d/file")).unwrap();
    let modified = (seen.mtime(), u32::try_from(seen.mtime_nsec()).unwrap());
    let plain = world.save();
    assert_eq!(plain.report.files_read, 1);
    // The time is that of the file itself: nothing that the cache compares differs.
    let mut first = stated(0o640, 1234, modified);
    first.attributes = vec![attribute("user.first", b"1")];
    let second = stated(0o600, 1235, modified);
    let of_file = |said: &StatedEntry| {
        let said = said.clone();
        move |at: &EntryPath| (*at == path(b"d/file")).then(|| said.clone())
    };

    let with_first = world.save_as(2, Some(&of_file(&first)));
    let again = world.save_as(2, Some(&of_file(&first)));
    let with_second = world.save_as(2, Some(&of_file(&second)));
    let without = world.save();
    let unchanged = world.save();

    // The content that the first save cached is still known.
    assert_eq!(with_first.report.files_read, 0);
    for saved in [&with_first, &again] {
        let row = row(saved, "d/file");
        assert_eq!(
            (row.metadata, &row.attributes),
            (first.metadata, &first.attributes)
        );
    }
    assert_eq!(again.report.files_read, 1, "what was stated is not cached");
    let row_of_second = row(&with_second, "d/file");
    assert_eq!(row_of_second.metadata, second.metadata);
    assert!(row_of_second.attributes.is_empty());
    assert!(!with_second.is_same && !without.is_same);
    assert_eq!(*row(&without, "d/file"), on_disk(&world, "d/file"));
    assert_eq!(without.digest, plain.digest);
    assert_eq!((unchanged.is_same, unchanged.report.files_read), (true, 0));
}

#[test]
fn a_directory_whose_metadata_is_stated_is_not_the_one_that_was_saved() {
    let mut world = World::new();
    fs::create_dir(world.tree().join("d")).unwrap();
    let plain = world.save();
    let said = stated(0o711, 1234, (5, 0));

    let of = |at: &EntryPath| (*at == path(b"d")).then(|| said.clone());
    let with = world.save_as(2, Some(&of));
    let without = world.save();

    assert_eq!(row(&with, "d").metadata, said.metadata);
    assert_eq!((without.is_same, without.digest), (false, plain.digest));
}

#[test]
fn own_attributes_do_not_stay_where_none_are_stated() {
    let mut world = World::new();
    world.write("file", b"content");
    let file = world.tree().join("file");
    rustix::fs::setxattr(&file, "user.own", b"1", XattrFlags::empty()).unwrap();

    let said = stated(0o644, 1, (1, 0));
    let saved = world.save_as(2, Some(&|_| Some(said.clone())));

    assert!(row(&saved, "file").attributes.is_empty());
}

/// The tar of the volume `data` in the making.
#[derive(Default)]
struct ForeignTar(Vec<u8>);

impl ForeignTar {
    fn entry(&mut self, name: &[u8], kind: EntryKind, said: StatedEntry) {
        let entry = Entry {
            path: path(&[b"data", name].concat()),
            kind,
            metadata: said.metadata,
            attributes: said.attributes,
        };
        self.0.extend(tar_headers(&entry).unwrap());
    }

    fn directory(&mut self, name: &[u8], said: StatedEntry) {
        self.entry(name, EntryKind::Directory, said);
    }

    fn file(&mut self, name: &[u8], content: &[u8], said: StatedEntry) {
        let size = content.len() as u64;
        self.entry(name, EntryKind::File { size }, said);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len() + tar_padding(size), 0);
    }
}

/// The tar of a volume as somebody else may send it: no entry is ours, and some are closed to everybody.
fn foreign_tar() -> Vec<u8> {
    let mut noted = stated(0o000, u32::MAX - 1, (-2, 750_000_001));
    noted.attributes = vec![
        attribute("user.a=b", b"\0\xff"),
        attribute("user.note", b""),
    ];
    let long = [b"/".to_vec(), b"d".repeat(130)].concat();
    let deep = [&long[..], b"/", &b"e".repeat(250)].concat();
    let target = b"t".repeat(300).into();
    let to = path(b"data/large");
    let mut tar = ForeignTar::default();
    tar.directory(b"", stated(0o2750, 999, (1_700_000_000, 1)));
    tar.directory(b"/closed", noted.clone());
    tar.file(b"/closed/inner", b"x", stated(0o4111, 2_097_152, (0, 0)));
    tar.directory(&long, stated(0o1777, 70, (-1, 0)));
    tar.file(&deep, b"deep", stated(0o644, 2_097_151, (9_000_000_000, 9)));
    tar.file(b"/empty", b"", noted);
    tar.entry(b"/fifo", EntryKind::Fifo, stated(0o620, 12, (3, 3)));
    tar.file(b"/large", &noise(1, 5 << 20), stated(0o400, 33, (4, 0)));
    let link = EntryKind::Symlink { target };
    tar.entry(b"/link", link, stated(0o777, 5, (-9, 1)));
    let name = EntryKind::HardLink { to };
    tar.entry(b"/name", name, stated(0o400, 33, (4, 0)));
    tar.directory(b"/void", stated(0o000, 6, (6, 6)));
    tar.file(b"/\xff\xfe", b"bytes", stated(0o666, 0, (7, 7)));
    tar.0.extend_from_slice(&TAR_END);
    tar.0
}

#[test]
fn a_tar_that_was_received_and_saved_comes_out_as_it_came_in() {
    for is_overlay in [false, true] {
        let mut world = World::new();
        fs::create_dir_all(world.tree().join("volumes/data")).unwrap();
        world.write("beside", b"not stated");
        let place = if is_overlay {
            world.scratch.path().join("volume")
        } else {
            world.tree().join("volumes/data")
        };
        if is_overlay {
            fs::create_dir(&place).unwrap();
            world.overlay = Some((path(b"volumes/data"), place.clone()));
        }
        let tar = foreign_tar();

        let name = Path::new("the volume data");
        let received = receive_tar(&*tar, name, &place, &ReadSettings::default()).unwrap();
        let at = path(b"volumes/data");
        let saved = world.save_as(2, Some(&|path| received.stated(&at, path)));
        let (again, report) = tar_of(&world, &saved, "volumes/data", "data").unwrap();

        assert!(again == tar, "{} and {} bytes", again.len(), tar.len());
        assert_eq!(
            (report.files, report.directories, report.hard_links),
            (5, 4, 1)
        );
        assert_eq!(
            saved.report.walk.skipped_count, 1,
            "the pipe, which is saved all the same"
        );
        assert_eq!(*row(&saved, "beside"), on_disk(&world, "beside"));
        for path in entries(&place) {
            let mode = path.metadata.mode & 0o700;
            let least = match path.kind {
                EntryKind::Directory => 0o700,
                EntryKind::Symlink { .. } => continue,
                _ => 0o600,
            };
            assert_eq!(mode & least, least, "{:?}", path.path);
        }
    }
}

#[test]
fn a_tar_goes_through_the_hands_of_somebody_who_is_not_root() {
    as_nobody(
        "form::chunked::tests::stated::a_tar_that_was_received_and_saved_comes_out_as_it_came_in",
    );
}
