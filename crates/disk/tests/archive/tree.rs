//! Trees of every kind, and everything that can be known of one.

use crate::seed::Seed;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use stasis_disk::fs::metadata::Seen;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{WalkSettings, list};
use stasis_model::tree::{Entry, EntryKind, Metadata};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const SIZES: [usize; 16] = [
    0, 0, 1, 5, 100, 511, 512, 513, 1024, 4096, 70_000, 131_072, 262_143, 262_144, 262_145, 700_000,
];

/// What the tools that a tree is meant for can do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taste {
    /// Everything that a tree can have.
    All,
    /// Without what bsdtar does not carry: fractions before 1970, odd names of attributes.
    Bsd,
}

/// Makes a random tree in the new directory `root`.
pub(crate) fn grow(root: &Path, seed: &mut Seed, taste: Taste) {
    std::fs::create_dir(root).unwrap();
    let mut directories = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    let mut all: Vec<PathBuf> = Vec::new();
    for _ in 0..5 + seed.below(40) {
        let parent = seed.pick(&directories).clone();
        let path = parent.join(OsStr::from_bytes(&name(seed)));
        if path.symlink_metadata().is_ok() || path.as_os_str().len() > 3500 {
            continue;
        }
        match seed.below(12) {
            0..=3 => {
                std::fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            4..=8 => {
                file(&path, seed);
                files.push(path.clone());
            }
            9 => {
                let length = *seed.pick(&[1, 50, 99, 100, 101, 300, 2000]);
                let mut target = seed.bytes(length);
                for byte in &mut target {
                    *byte = b'a' + *byte % 26;
                }
                target[0] = *seed.pick(b"/.a");
                symlink(OsStr::from_bytes(&target), &path).unwrap();
            }
            10 if !files.is_empty() => std::fs::hard_link(seed.pick(&files), &path).unwrap(),
            _ => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        }
        all.push(path);
    }
    for path in all.iter().rev() {
        dress(path, seed, taste);
    }
    dress(root, seed, taste);
}

fn name(seed: &mut Seed) -> Vec<u8> {
    let letters = |seed: &mut Seed, length: usize| {
        let bytes = seed.bytes(length).into_iter();
        bytes.map(|byte| b'a' + byte % 26).collect::<Vec<u8>>()
    };
    match seed.below(14) {
        0 => letters(seed, 255),
        1 => letters(seed, 99),
        2 => letters(seed, 100),
        3 => letters(seed, 101),
        4 => letters(seed, 156),
        5 => "ünï©ødé 名前 🦀".as_bytes().to_vec(),
        6 => b"-rf".to_vec(),
        7 => b" leading and trailing ".to_vec(),
        8 => b"new\nline\\and\ttab".to_vec(),
        9 => b"\xff\xfe not text \x80".to_vec(),
        10 => b"quote\"'`$*?[".to_vec(),
        _ => {
            let length = 1 + usize::try_from(seed.below(12)).unwrap();
            letters(seed, length)
        }
    }
}

fn file(path: &Path, seed: &mut Seed) {
    let size = *seed.pick(&SIZES);
    let made = File::create(path).unwrap();
    match seed.below(4) {
        0 => {
            made.set_len(size as u64).unwrap();
            if size > 10 {
                made.write_all_at(b"middle", size as u64 / 2).unwrap();
            }
        }
        1 => made.write_all_at(&vec![b'x'; size], 0).unwrap(),
        _ => made.write_all_at(&seed.bytes(size), 0).unwrap(),
    }
}

/// Owner, permissions, attributes, time: in the order in which none undoes another.
fn dress(path: &Path, seed: &mut Seed, taste: Taste) {
    let is = path.symlink_metadata().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root && seed.one_in(3) {
        let ids = [0, 1, 1000, 65_534, 2_097_151, 2_097_152, 4_000_000_000];
        let (uid, gid) = (*seed.pick(&ids), *seed.pick(&ids));
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    }
    let can_have_attributes = is.is_file() || is.is_dir();
    if can_have_attributes && seed.one_in(4) {
        let length = *seed.pick(&[0, 1, 20, 900]);
        let value = seed.bytes(length);
        let odd = "user.odd=%3D\nname";
        let name = match taste {
            Taste::All if seed.one_in(2) => odd,
            _ => "user.note",
        };
        set_attributes(path, name, &value);
    }
    if !is.is_symlink() && seed.one_in(2) {
        let modes = [
            0o400, 0o444, 0o600, 0o644, 0o755, 0o777, 0o1777, 0o2755, 0o4755, 0o6711,
        ];
        let mut mode = *seed.pick(&modes);
        if is.is_dir() {
            mode |= 0o700;
        }
        if !is_root && can_have_attributes && attribute_count(path) > 0 {
            // GNU tar gives attributes to a read-only file only as root; what we do is a test of its own.
            mode |= 0o200;
        }
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let seconds = [
        -86_400 * 365 * 3,
        -1,
        0,
        1,
        1_700_000_000,
        8_589_934_591,
        8_589_934_592,
    ];
    let mut last_modification = Timespec {
        tv_sec: *seed.pick(&seconds),
        tv_nsec: *seed.pick(&[0, 1, 500_000_000, 123_456_789, 999_999_999]),
    };
    if taste == Taste::Bsd && last_modification.tv_sec < 0 {
        last_modification.tv_nsec = 0;
    }
    let last_access = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    };
    let times = Timestamps {
        last_access,
        last_modification,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Gives attributes to an entry that may be read-only, because a name of the same file was given its mode before.
fn set_attributes(path: &Path, name: &str, value: &[u8]) {
    let mode = path.symlink_metadata().unwrap().permissions().mode();
    std::fs::set_permissions(path, Permissions::from_mode(mode | 0o200)).unwrap();
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(path, "user.second", b"2", XattrFlags::empty()).unwrap();
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

fn attribute_count(path: &Path) -> usize {
    let file = File::open(path).unwrap();
    stasis_disk::fs::metadata::attributes(file)
        .unwrap()
        .user
        .len()
}

/// Everything that a tree keeps, its contents and its root among it.
pub(crate) fn facts(root: &Path) -> Vec<(Entry, Option<blake3::Hash>)> {
    let beneath = RootDir::open(root, Mounts::Stay).unwrap();
    let (entries, report) = list(&beneath, &WalkSettings::default()).unwrap();
    assert_eq!(report.vanished_count, 0);
    let content = |entry: &Entry| {
        let path = root.join(OsStr::from_bytes(entry.path.as_bytes()));
        matches!(entry.kind, EntryKind::File { .. })
            .then(|| blake3::hash(&std::fs::read(path).unwrap()))
    };
    let mut facts: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            let content = content(&entry);
            (entry, content)
        })
        .collect();
    let attributes = stasis_disk::fs::metadata::attributes(File::open(root).unwrap()).unwrap();
    let top = Entry {
        path: stasis_model::tree::EntryPath::root(),
        kind: EntryKind::Directory,
        metadata: root_metadata(root),
        attributes: attributes.user,
    };
    facts.insert(0, (top, None));
    facts
}

pub(crate) fn root_metadata(root: &Path) -> Metadata {
    Seen::from(&rustix::fs::lstat(root).unwrap()).metadata()
}

/// Fails with the first difference.
#[track_caller]
pub(crate) fn assert_same(one: &Path, other: &Path, what: &str) {
    assert_equal(&facts(one), &facts(other), what);
}

/// What our own restore of a tree gives back: everything to root, and everything but setuid and setgid to an ordinary user.
pub(crate) fn restorable(root: &Path) -> Vec<(Entry, Option<blake3::Hash>)> {
    let mut facts = facts(root);
    if !rustix::process::geteuid().is_root() {
        for (entry, _) in &mut facts {
            entry.metadata.mode &= !0o6000;
        }
    }
    facts
}

/// Fails with the first difference between a tree and what our own restore made of it.
#[track_caller]
pub(crate) fn assert_restored(tree: &Path, back: &Path, what: &str) {
    assert_equal(&restorable(tree), &facts(back), what);
}

/// The same for a tree that bsdtar extracted, which never sets the time of the directory it extracts into.
#[track_caller]
pub(crate) fn assert_same_but_root_time(one: &Path, other: &Path, what: &str) {
    let (one, mut other) = (facts(one), facts(other));
    other[0].0.metadata.modified = one[0].0.metadata.modified;
    assert_equal(&one, &other, what);
}

pub(crate) type Facts = [(Entry, Option<blake3::Hash>)];

#[track_caller]
pub(crate) fn assert_equal(one: &Facts, other: &Facts, what: &str) {
    for (a, b) in one.iter().zip(other) {
        assert_eq!(a, b, "{what}");
    }
    assert_eq!(one.len(), other.len(), "{what}");
}
