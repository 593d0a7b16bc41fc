//! Directories of snapshots as plain tars, read by GNU tar and by our own reader.

use super::*;
use crate::form::archive::{self, Archive, UnpackSettings};
use crate::form::chunked::tar::{TarError, TarParts, TarReport, write_tar};
use crate::tree::restore::RestoreOrigin;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use stasis_model::format::manifest::FileList;
use stasis_model::tree::{EntryKind, EntryPath, Metadata};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(super) fn path(bytes: &[u8]) -> EntryPath {
    EntryPath::parse(bytes).unwrap()
}

fn parts<'s>(
    world: &'s World,
    saved: &'s Saved,
    directory: &'s EntryPath,
    name: &'s EntryPath,
    cancel: &'s AtomicBool,
) -> TarParts<'s> {
    TarParts {
        source: &world.chunks,
        list: &saved.list,
        root: saved.root,
        root_attributes: &saved.root_attributes,
        directory,
        name,
        workers: NonZeroUsize::new(2).unwrap(),
        cancel,
    }
}

pub(super) fn tar_of(
    world: &World,
    saved: &Saved,
    directory: &str,
    name: &str,
) -> Result<(Vec<u8>, TarReport), TarError> {
    let (directory, name) = (path(directory.as_bytes()), path(name.as_bytes()));
    let (cancel, mut bytes) = (AtomicBool::new(false), Vec::new());
    let report = write_tar(&parts(world, saved, &directory, &name, &cancel), &mut bytes)?;
    Ok((bytes, report))
}

/// Extracts a tar with GNU tar; attributes and everything else that whoever runs it may give.
fn gnu_extract(tar: &[u8], target: &Path) {
    fs::create_dir(target).unwrap();
    let mut child = Command::new("tar")
        .args(["--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf-"])
        .arg("-C")
        .arg(target)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(tar).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Extracts a tar with our own reader.
fn own_extract(tar: &[u8], target: &Path) {
    let file = target.with_extension("tar");
    fs::write(&file, tar).unwrap();
    let origin = RestoreOrigin {
        at: Timestamp::from_millis(0),
        from: String::new(),
    };
    let archive = Archive::open(&file).unwrap();
    let _ = archive::unpack(&archive, target, &UnpackSettings::default(), &origin).unwrap();
}

/// Everything that a tree keeps but the content of files, the root among it.
fn facts(root: &Path) -> Vec<Entry> {
    let top = fs::File::open(root).unwrap();
    let mut facts = vec![Entry {
        path: EntryPath::root(),
        kind: EntryKind::Directory,
        metadata: crate::fs::metadata::of(&top).unwrap().metadata(),
        attributes: crate::fs::metadata::attributes(&top).unwrap().user,
    }];
    facts.extend(entries(root));
    facts
}

/// Content by content, as far as whoever runs this may read it.
fn assert_same_contents(one: &Path, other: &Path) {
    for entry in entries(one) {
        if let EntryKind::File { .. } = entry.kind {
            let name = OsStr::from_bytes(entry.path.as_bytes());
            let (a, b) = (fs::read(one.join(name)), fs::read(other.join(name)));
            assert!(a.unwrap() == b.unwrap(), "{:?}", entry.path);
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A volume in which everything is that a volume can have; `outside.bin` has two of its names in it.
fn a_volume(world: &World) -> PathBuf {
    let volume = world.tree().join("volumes/data");
    world.write("outside.bin", &noise(7, 10_000));
    for number in 0..300_u32 {
        let name = format!("volumes/data/small/f{number}");
        world.write(&name, &noise(number.into(), 11 * number as usize));
    }
    world.write("volumes/data/large.bin", &noise(1, 5 << 20));
    world.write("volumes/data/empty", b"");
    world.write("volumes/datax/other", b"not in the volume");
    fs::create_dir(volume.join("void")).unwrap();
    let deep = volume.join("d".repeat(120)).join("e".repeat(120));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f".repeat(200)), "deep").unwrap();
    fs::write(volume.join("n".repeat(101)), "long").unwrap();
    fs::write(volume.join(OsStr::from_bytes(b"\xff\xfe name")), "bytes").unwrap();
    let odd = [b"\x80".repeat(110), b"x".to_vec()].concat();
    fs::write(volume.join(OsStr::from_bytes(&odd)), "odd").unwrap();
    symlink("t".repeat(300), volume.join("symlink")).unwrap();
    symlink("/etc/passwd", volume.join("short")).unwrap();
    fs::hard_link(volume.join("large.bin"), volume.join("again")).unwrap();
    fs::hard_link(volume.join("large.bin"), volume.join("small/third")).unwrap();
    for name in ["out1", "out2"] {
        fs::hard_link(world.tree().join("outside.bin"), volume.join(name)).unwrap();
    }
    rustix::fs::mknodat(CWD, volume.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let sparse = fs::File::create(volume.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 2 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
    for name in ["empty", "void"] {
        let value = noise(3, 900);
        let name = volume.join(name);
        rustix::fs::setxattr(&name, "user.odd=%3D\nname", &value, XattrFlags::empty()).unwrap();
    }
    dress(&volume);
    volume
}

fn dress(volume: &Path) {
    if is_root() {
        for (number, name) in (0..).zip(["large.bin", "void", "symlink", "fifo", "empty", "."]) {
            let name = volume.join(name);
            lchown(&name, Some(2_097_151 + number), Some(4_000_000_000)).unwrap();
        }
        set_mode(&volume.join("empty"), 0o000);
        set_mode(&volume.join("void"), 0o000);
    }
    set_mode(&volume.join("large.bin"), 0o4755);
    set_mode(&volume.join("small"), 0o3777);
    set_mode(&volume.join("fifo"), 0o640);
    set_mode(volume, 0o1750);
    set_time(&volume.join("empty"), -2, 750_000_001);
    set_time(&volume.join("void"), -86_400, 0);
    set_time(&volume.join("large.bin"), 1_700_000_000, 123_456_789);
    set_time(&volume.join("symlink"), 0, 1);
    set_time(&volume.join("fifo"), 9_000_000_000, 5);
    set_time(volume, -1, 999_999_999);
}

#[test]
fn a_directory_of_a_snapshot_comes_back_from_its_tar() {
    let mut world = World::new();
    let volume = a_volume(&world);
    let saved = world.save();

    let (tar, report) = tar_of(&world, &saved, "volumes/data", "").unwrap();
    let (gnu, own) = (
        world.scratch.path().join("gnu"),
        world.scratch.path().join("own"),
    );
    gnu_extract(&tar, &gnu);
    own_extract(&tar, &own);

    let mut expected = facts(&volume);
    assert_eq!(facts(&gnu), expected);
    assert_same_contents(&volume, &gnu);
    if !is_root() {
        // Only root gets setuid and setgid from our restore.
        for entry in &mut expected {
            entry.metadata.mode &= !0o6000;
        }
    }
    assert_eq!(facts(&own), expected);
    assert_same_contents(&volume, &own);
    let counted = |wanted: fn(&EntryKind) -> bool| {
        expected.iter().filter(|entry| wanted(&entry.kind)).count() as u64
    };
    let counts = TarReport {
        files: counted(|kind| matches!(kind, EntryKind::File { .. })),
        directories: counted(|kind| *kind == EntryKind::Directory),
        symlinks: 2,
        hard_links: 3,
        fifos: 1,
        bytes: report.bytes,
    };
    assert_eq!(report, counts);
    assert!(
        report.bytes > 10 << 20,
        "the sparse file is as long as it is"
    );
}

#[test]
fn a_directory_of_a_snapshot_comes_back_to_somebody_who_is_not_root() {
    as_nobody("form::chunked::tests::tar::a_directory_of_a_snapshot_comes_back_from_its_tar");
}

#[test]
fn the_root_of_a_snapshot_and_one_without_anything_come_back_too() {
    for is_full in [true, false] {
        let mut world = World::new();
        if is_full {
            a_volume(&world);
        }
        set_mode(&world.tree(), 0o751);
        set_time(&world.tree(), 1_600_000_000, 5);
        let saved = world.save();

        let (tar, report) = tar_of(&world, &saved, "", "").unwrap();
        let gnu = world.scratch.path().join("gnu");
        gnu_extract(&tar, &gnu);

        assert_eq!(facts(&gnu), facts(&world.tree()));
        assert_eq!(report.directories == 1, !is_full);
    }
}

#[test]
fn the_tar_calls_the_directory_as_it_was_asked_to() {
    let mut world = World::new();
    a_volume(&world);
    let saved = world.save();

    let (tar, _) = tar_of(&world, &saved, "volumes/data", "srv/data").unwrap();
    let back = world.scratch.path().join("back");
    gnu_extract(&tar, &back);

    assert_eq!(
        facts(&back.join("srv/data")),
        facts(&world.tree().join("volumes/data"))
    );
}

#[test]
fn a_list_in_chunks_and_more_entries_than_are_held_back_come_in_order() {
    let mut world = World::new();
    for number in 0..6000_u32 {
        let name = format!("v/d{}/{}{number}", number % 7, "n".repeat(90));
        world.write(&name, &number.to_le_bytes());
    }
    let saved = world.save();

    let (tar, report) = tar_of(&world, &saved, "v", "").unwrap();
    let file = world.scratch.path().join("tar");
    fs::write(&file, &tar).unwrap();
    let mut listed = Vec::new();
    let archive = Archive::open(&file).unwrap();
    let settings = crate::form::archive::ReadSettings::default();
    archive
        .list(&settings, |entry| {
            listed.push(entry.clone());
            Ok::<(), crate::form::archive::ArchiveError>(())
        })
        .unwrap();

    assert_eq!((report.files, report.directories), (6000, 8));
    assert_eq!(listed, facts(&world.tree().join("v")));
}

#[test]
fn what_is_no_directory_is_refused_before_anything_is_written() {
    let mut world = World::new();
    world.write("v/file", b"content");
    let saved = world.save();

    let none = tar_of(&world, &saved, "v/nothing", "").unwrap_err();
    let file = tar_of(&world, &saved, "v/file", "").unwrap_err();

    assert!(
        matches!(none, TarError::Chunk(ChunkError::NoSuchEntry(at)) if at == path(b"v/nothing"))
    );
    assert!(matches!(file, TarError::NotADirectory(at) if at == path(b"v/file")));
}

#[test]
fn a_damaged_chunk_ends_the_tar_without_its_end() {
    let mut world = World::new();
    world.write("v/large", &noise(1, 5 << 20));
    let saved = world.save();
    for bytes in world.chunks.0.lock().unwrap().values_mut().take(1) {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    }
    let (directory, root) = (path(b"v"), EntryPath::root());
    let (cancel, mut tar) = (AtomicBool::new(false), Vec::new());

    let refused = write_tar(&parts(&world, &saved, &directory, &root, &cancel), &mut tar);

    assert!(matches!(
        refused,
        Err(TarError::Chunk(ChunkError::Damaged { .. }))
    ));
    assert!(tar.len() < 5 << 20);
}

/// Takes so many bytes; then it refuses, or somebody cancels.
struct Narrow<'c> {
    left: AtomicUsize,
    cancel: Option<&'c AtomicBool>,
}

impl Write for Narrow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.get_mut();
        let taken = bytes.len().min(100_000);
        if *left > taken {
            *left -= taken;
        } else if let Some(cancel) = self.cancel {
            cancel.store(true, Ordering::Relaxed);
        } else {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whoever_takes_no_more_or_cancels_ends_the_tar() {
    let mut world = World::new();
    world.write("v/large", &noise(1, 20 << 20));
    let saved = world.save();
    let (directory, root) = (path(b"v"), EntryPath::root());
    let cancel = AtomicBool::new(false);
    let parts = parts(&world, &saved, &directory, &root, &cancel);
    let narrow = |cancel| Narrow {
        left: AtomicUsize::new(1 << 20),
        cancel,
    };

    let refused = write_tar(&parts, narrow(None)).unwrap_err();
    let cancelled = write_tar(&parts, narrow(Some(&cancel))).unwrap_err();

    assert!(
        matches!(refused, TarError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    );
    assert!(matches!(cancelled, TarError::Cancelled));
}

#[test]
fn a_content_that_is_not_as_long_as_its_file_is_refused() {
    let mut world = World::new();
    world.write("v/file", b"content");
    let mut saved = world.save();
    let FileList::Inline(rows) = &mut saved.list else {
        panic!("the list is short");
    };
    let row = rows.last_mut().unwrap();
    row.entry.kind = EntryKind::File { size: 8 };
    row.entry.metadata = Metadata::default();

    let refused = tar_of(&world, &saved, "v", "").unwrap_err();

    assert!(matches!(refused, TarError::Chunk(ChunkError::Unfit { .. })));
}

/// A source that holds one version of a file whole, if it is still there.
struct OneVersion(Chunks, PathBuf);

impl ChunkSource for OneVersion {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        self.0.fetch(name)
    }

    fn version(&self, digest: &FileDigest) -> Result<std::os::fd::OwnedFd, ChunkError> {
        let file = fs::File::open(&self.1);
        Ok(file.map_err(|_| ChunkError::NoVersion(*digest))?.into())
    }
}

#[test]
fn a_file_that_is_held_whole_is_written_only_if_it_is_what_it_was() {
    let mut world = World::new();
    world.write("v/a", b"first");
    world.write("v/b", &noise(1, 700_000));
    world.write("v/c", b"last");
    let mut saved = world.save();
    let (expected, _) = tar_of(&world, &saved, "v", "").unwrap();
    let FileList::Inline(rows) = &mut saved.list else {
        panic!("the list is short");
    };
    rows[2].content = Some(FileContent::version(
        FileDigest::of(&noise(1, 700_000)),
        700_000,
    ));
    let (directory, root) = (path(b"v"), EntryPath::root());
    let version = world.scratch.path().join("version");
    let source = OneVersion(std::mem::take(&mut world.chunks), version.clone());
    let cancel = AtomicBool::new(false);
    let write = || {
        let mut tar = Vec::new();
        let parts = parts(&world, &saved, &directory, &root, &cancel);
        let parts = TarParts {
            source: &source,
            ..parts
        };
        match write_tar(&parts, &mut tar) {
            Ok(_) => Ok(tar),
            Err(TarError::Chunk(ChunkError::LostVersion { damage, .. })) => Err(damage),
            Err(error) => panic!("{error}"),
        }
    };

    assert_eq!(write(), Err(VersionDamage::Missing));
    fs::write(&version, noise(1, 700_000)).unwrap();
    assert!(write().unwrap() == expected);
    fs::write(&version, noise(2, 700_000)).unwrap();
    assert_eq!(write(), Err(VersionDamage::Content));
    fs::write(&version, noise(1, 600_000)).unwrap();
    assert_eq!(write(), Err(VersionDamage::Size));
}
