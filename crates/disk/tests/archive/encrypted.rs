//! Encrypted archives: what comes out is what went in, what was tampered with is refused, and nothing can be seen.

use crate::differential::settings;
use crate::seed::{Seed, cases};
use crate::tree::{Taste, assert_restored, grow};
use stasis_disk::crypt::DataKey;
use stasis_disk::form::archive::{
    Archive, ArchiveError, AssembleTarget, CreateSettings, EncryptReport, EncryptSettings,
    EncryptedArchive, Problem, ReadAt, ReadSettings, assemble_encrypted, create, encrypt,
    encrypt_nameless, nameless,
};
use stasis_disk::tree::write::{TreeWriter, WriteSettings};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::Lineage;
use stasis_model::tree::EntryPath;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PLAIN: &[u8] = include_bytes!("golden/v1.tar.zst");
const ENCRYPTED: &[u8] = include_bytes!("golden/v1.tar.zst.enc");
const TAG: usize = 16;
const FOOTER: usize = 44;

/// Bytes here that count how many of them were read.
#[derive(Debug, Default)]
struct Bytes(Vec<u8>, AtomicU64);

impl ReadAt for Bytes {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap().min(self.0.len());
        let length = buffer.len().min(self.0.len() - from);
        buffer[..length].copy_from_slice(&self.0[from..from + length]);
        self.1.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

fn key_of(lineage: &str, byte: u8) -> DataKey {
    let lineage: Lineage = lineage.parse().unwrap();
    DataKey::from_random(&mut [byte; 32], lineage.into())
}

fn key() -> DataKey {
    key_of("acme/ada@131", 0x42)
}

fn name() -> &'static Path {
    Path::new("profile.tar.zst.enc")
}

fn over(bytes: &[u8]) -> Arc<dyn ReadAt> {
    Arc::new(Bytes(bytes.to_vec(), AtomicU64::default()))
}

fn open(bytes: &[u8]) -> Result<EncryptedArchive, ArchiveError> {
    EncryptedArchive::open(over(bytes), name(), &key())
}

/// Opens and reads everything.
fn read(bytes: &[u8], key: &DataKey) -> Result<(), ArchiveError> {
    let encrypted = EncryptedArchive::open(over(bytes), name(), key)?;
    let _ = Archive::over(Arc::new(encrypted), name())?.verify(&alone())?;
    Ok(())
}

fn alone() -> ReadSettings {
    ReadSettings {
        workers: NonZeroUsize::MIN,
        ..ReadSettings::default()
    }
}

fn all_of(bytes: &dyn ReadAt) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(bytes.length().unwrap()).unwrap()];
    bytes.read_exact_at(&mut all, 0).unwrap();
    all
}

/// Encrypts the bytes of an archive.
fn encrypted(plain: &[u8], key: &DataKey) -> (EncryptReport, Vec<u8>) {
    let home = tempfile::tempdir().unwrap();
    let plain = Archive::over(over(plain), name()).unwrap();
    let settings = EncryptSettings::default();
    let (report, file) = encrypt_nameless(&plain, key, home.path(), &settings).unwrap();
    (report, all_of(&file))
}

/// Where the frames of an archive lie, before and after it was encrypted.
fn frames(plain: &[u8]) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (mut at, mut frames) = (0, Vec::new());
    while plain[at..].starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
        let end = at + zstd::zstd_safe::find_frame_compressed_size(&plain[at..]).unwrap();
        let more = frames.len() * TAG;
        frames.push((at..end, at + more..end + more + TAG));
        at = end;
    }
    frames
}

/// A tree whose content does not compress, archived.
fn archived(home: &Path, seed: u64) -> (PathBuf, Vec<u8>) {
    let tree = home.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mut seed = Seed::new(seed);
    for name in ["a", "b", "c"] {
        std::fs::write(tree.join(name), seed.bytes(2_400_000)).unwrap();
    }
    for name in 0..100 {
        std::fs::write(tree.join(format!("s{name}")), seed.bytes(36_000)).unwrap();
    }
    let _ = create(&tree, &home.join("plain"), &settings(2)).unwrap();
    let plain = std::fs::read(home.join("plain")).unwrap();
    (tree, plain)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_was_encrypted_comes_back_byte_for_byte_and_as_a_tree() {
    for case in 0..cases(12) {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        grow(&at("tree"), &mut Seed::new(case), Taste::All);
        let _ = create(&at("tree"), &at("plain"), &settings(2)).unwrap();
        let plain = Archive::open(&at("plain")).unwrap();

        let report = encrypt(
            &plain,
            &key(),
            &at("encrypted"),
            &EncryptSettings::default(),
        )
        .unwrap();
        let file = File::open(at("encrypted")).unwrap();
        let opened =
            Arc::new(EncryptedArchive::open(Arc::new(file), &at("encrypted"), &key()).unwrap());
        let archive = Archive::over(opened.clone(), &at("encrypted")).unwrap();
        std::fs::create_dir(at("into")).unwrap();
        let into = File::open(at("into")).unwrap().into();
        let writer = TreeWriter::new(into, WriteSettings::default()).unwrap();
        let root = archive.extract(&writer, &ReadSettings::default()).unwrap();
        let _ = writer.finish(root.as_ref()).unwrap();

        assert!(all_of(&*opened) == std::fs::read(at("plain")).unwrap());
        assert_restored(&at("tree"), &at("into"), &format!("case {case}"));
        assert_eq!(archive.summary(), plain.summary());
        let stored = std::fs::read(at("encrypted")).unwrap();
        assert_eq!(report.archive_sha256, ArchiveDigest::of(&stored));
        assert_eq!(report.stored_bytes, stored.len() as u64);
        assert_eq!(report.plain_bytes, opened.length().unwrap());
        let digest = opened.digest(&AtomicBool::new(false)).unwrap();
        assert_eq!(digest, (report.archive_sha256, report.stored_bytes));
    }
}

#[test]
fn the_same_archive_gives_the_same_bytes_with_any_number_of_threads() {
    let home = tempfile::tempdir().unwrap();
    let (_, plain) = archived(home.path(), 1);
    let archive = Archive::over(over(&plain), name()).unwrap();
    let (report, first) = encrypted(&plain, &key());
    for workers in [1, 2, 7] {
        let settings = EncryptSettings {
            workers: NonZeroUsize::new(workers).unwrap(),
            ..EncryptSettings::default()
        };
        let (again, file) = encrypt_nameless(&archive, &key(), home.path(), &settings).unwrap();
        assert_eq!(again, report);
        assert!(all_of(&file) == first, "{workers} threads");
    }
}

#[test]
fn small_reads_at_any_place_see_the_archive() {
    let home = tempfile::tempdir().unwrap();
    let (_, plain) = archived(home.path(), 2);
    let opened = open(&encrypted(&plain, &key()).1).unwrap();
    let mut seed = Seed::new(3);
    for _ in 0..300 {
        let offset = usize::try_from(seed.below(plain.len() as u64 + 10)).unwrap();
        let length = *seed.pick(&[0, 1, 8, 5000, 300_000]);
        let mut buffer = vec![0; length];

        let got = opened.read_at(&mut buffer, offset as u64).unwrap();

        let expected = plain.get(offset..).unwrap_or_default();
        assert!(got > 0 || length == 0 || expected.is_empty());
        assert!(buffer[..got] == expected[..got]);
    }
}

#[test]
fn every_flipped_bit_and_every_missing_end_is_refused() {
    read(ENCRYPTED, &key()).unwrap();
    for bit in 0..8 * ENCRYPTED.len() {
        let mut flipped = ENCRYPTED.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped, &key()).is_err(), "bit {bit}");
    }
    for length in 0..ENCRYPTED.len() {
        assert!(
            read(&ENCRYPTED[..length], &key()).is_err(),
            "{length} bytes"
        );
        assert!(read(&ENCRYPTED[ENCRYPTED.len() - length..], &key()).is_err());
    }
    for extra in [&[0][..], &[0; 512], ENCRYPTED] {
        assert!(read(&[ENCRYPTED, extra].concat(), &key()).is_err());
        assert!(read(&[extra, ENCRYPTED].concat(), &key()).is_err());
    }
}

#[test]
fn damage_is_told_as_damage_of_the_frame() {
    let home = tempfile::tempdir().unwrap();
    let (_, plain) = archived(home.path(), 4);
    let mut bytes = encrypted(&plain, &key()).1;
    let third = frames(&plain)[2].1.clone();
    bytes[third.start + 5] ^= 1;

    let refused = read(&bytes, &key()).unwrap_err();

    let is_told = matches!(&refused, ArchiveError::Refused { problem: Problem::Frame { frame: 2, at, .. }, .. }
        if *at == third.start as u64);
    assert!(is_told, "{refused:?}");
}

#[test]
fn frames_that_changed_places_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let (_, plain) = archived(home.path(), 5);
    let bytes = encrypted(&plain, &key()).1;
    let frames = frames(&plain);
    let mut swapped = 0;
    for (at, (_, one)) in frames.iter().enumerate() {
        let other = frames[at + 1..].iter().find(|(_, r)| r.len() == one.len());
        let Some((_, other)) = other else { continue };
        let mut forged = bytes.clone();
        forged[one.clone()].copy_from_slice(&bytes[other.clone()]);
        forged[other.clone()].copy_from_slice(&bytes[one.clone()]);

        assert!(read(&forged, &key()).is_err());
        swapped += 1;
    }
    assert!(swapped > 0, "frames of one length are there");
}

#[test]
fn another_key_or_another_lineage_under_the_same_key_opens_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (_, plain) = archived(home.path(), 6);
    let (ours, theirs) = (key(), key_of("acme/eve@131", 0x42));
    let (mine, foreign) = (encrypted(&plain, &ours).1, encrypted(&plain, &theirs).1);
    let is_refused = |key: &DataKey| {
        let refused = read(&mine, key).unwrap_err();
        let problem = Problem::closed_index();
        matches!(refused, ArchiveError::Refused { problem: found, .. } if found == problem)
    };

    assert!(is_refused(&key_of("acme/ada@131", 0x43)));
    assert!(is_refused(&theirs));
    for (_, frame) in frames(&plain) {
        let mut forged = mine.clone();
        forged[frame.clone()].copy_from_slice(&foreign[frame]);
        assert!(read(&forged, &ours).is_err(), "a frame of another lineage");
    }
    let secret = &mine[..mine.len() - FOOTER];
    let shared = secret.chunks(16).zip(foreign.chunks(16));
    let shared = shared.filter(|(one, other)| one == other);
    assert_eq!(shared.count(), 0, "lineages have nothing in common");
}

#[test]
fn what_is_not_encrypted_is_never_taken_for_it() {
    for bytes in [PLAIN, b"", b"short", &[0; 4096]] {
        let refused = open(bytes).unwrap_err();
        let problem = Problem::not_encrypted();
        let is_told =
            matches!(&refused, ArchiveError::Refused { problem: found, .. } if *found == problem);
        assert!(is_told, "{refused:?}");
    }
}

#[test]
fn neither_content_nor_names_nor_digests_can_be_seen() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let mut seed = Seed::new(8);
    let marker = seed.bytes(48);
    let mut odd = seed.bytes(200);
    odd.retain(|byte| ![0, b'/'].contains(byte));
    std::fs::create_dir(at("tree")).unwrap();
    let path = at("tree").join(OsStr::from_bytes(&odd));
    std::fs::write(
        path,
        [&seed.bytes(9000), &*marker, &seed.bytes(9000)].concat(),
    )
    .unwrap();
    let report = create(&at("tree"), &at("plain"), &settings(1)).unwrap();
    let plain = std::fs::read(at("plain")).unwrap();

    let bytes = encrypted(&plain, &key()).1;

    let digest = report.tree_digest.as_bytes();
    assert!(contains(&plain, &marker), "the marker was there");
    assert!(contains(&plain, &odd[..32]), "the name was there");
    assert!(contains(&plain, &digest[..8]), "the digest was there");
    for part in [&marker[..], &odd, digest, &plain[plain.len() - 40..]] {
        let is_seen = part.windows(6).any(|part| contains(&bytes, part));
        assert!(!is_seen, "{part:?} can be seen");
    }
}

#[test]
fn one_file_is_read_without_the_others() {
    let home = tempfile::tempdir().unwrap();
    let (tree, plain) = archived(home.path(), 9);
    let bytes = Arc::new(Bytes(encrypted(&plain, &key()).1, AtomicU64::default()));
    let opened = EncryptedArchive::open(bytes.clone(), name(), &key()).unwrap();
    let archive = Archive::over(Arc::new(opened), name()).unwrap();
    let (path, mut content) = (EntryPath::parse(b"s50").unwrap(), Vec::new());

    archive.cat(&path, &mut content, &alone()).unwrap();

    assert!(content == std::fs::read(tree.join("s50")).unwrap());
    let (read, all) = (bytes.1.load(Ordering::Relaxed), bytes.0.len() as u64);
    assert!(read < all / 3, "{read} of {all} bytes");
}

#[test]
fn an_archive_made_upon_an_encrypted_one_has_the_same_bytes() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let (tree, plain) = archived(home.path(), 10);
    let old = open(&encrypted(&plain, &key()).1).unwrap();
    std::fs::write(tree.join("s50"), vec![1; 20_000]).unwrap();
    let upon = CreateSettings {
        base: Some(Arc::new(Archive::over(Arc::new(old), name()).unwrap())),
        ..settings(2)
    };

    let report = create(&tree, &at("upon"), &upon).unwrap();
    let alone = create(&tree, &at("alone"), &settings(2)).unwrap();

    assert!(report.frames_reused > 5, "{report:?}");
    assert_eq!(report.archive_sha256, alone.archive_sha256);
}

#[test]
fn what_an_older_archive_under_the_same_key_has_too_is_said() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let (tree, plain) = archived(home.path(), 12);
    std::fs::write(tree.join("s50"), vec![1; 20_000]).unwrap();
    let _ = create(&tree, &at("newer"), &settings(2)).unwrap();
    let newer = Archive::over(Arc::new(File::open(at("newer")).unwrap()), name()).unwrap();
    let upon = |base: &[u8], with: &DataKey| {
        let bytes = Arc::new(Bytes(base.to_vec(), AtomicU64::default()));
        let settings = EncryptSettings {
            base: Some(Arc::new(
                EncryptedArchive::open(bytes, name(), with).unwrap(),
            )),
            ..EncryptSettings::default()
        };
        encrypt(&newer, &key(), &at("new.enc"), &settings).unwrap()
    };
    let base = encrypted(&plain, &key()).1;

    let report = upon(&base, &key());

    let new = std::fs::read(at("new.enc")).unwrap();
    crate::own::assert_shared(&report.shared, &new, &base);
    assert!(report.shared.bytes() > new.len() as u64 / 2, "{report:?}");
    let other = key_of("acme/ada@131", 0x43);
    let elsewhere = upon(&encrypted(&plain, &other).1, &other);
    assert_eq!(elsewhere.shared.bytes(), 0);
    assert_eq!(elsewhere.archive_sha256, report.archive_sha256);
}

#[test]
fn an_encrypted_archive_is_brought_here_without_what_an_older_one_has() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let (tree, plain) = archived(home.path(), 11);
    let old = encrypted(&plain, &key()).1;
    std::fs::write(tree.join("s50"), vec![1; 20_000]).unwrap();
    let _ = create(&tree, &at("newer"), &settings(2)).unwrap();
    let (report, new) = encrypted(&std::fs::read(at("newer")).unwrap(), &key());
    let mut decayed = old.clone();
    decayed[frames(&plain)[1].1.start] ^= 1;
    let elsewhere = encrypted(&plain, &key_of("acme/ada@131", 0x43)).1;
    let elsewhere = EncryptedArchive::open(over(&elsewhere), name(), &key_of("acme/ada@131", 0x43));
    let bring = |base: Option<&EncryptedArchive>| {
        let (file, go_on) = (nameless(home.path()).unwrap(), AtomicBool::new(false));
        let wanted = open(&new).unwrap();
        let to = AssembleTarget {
            file: &file,
            path: home.path(),
        };
        let brought = assemble_encrypted(&wanted, base, to, &go_on).unwrap();
        assert!(all_of(&file) == new, "other bytes came");
        brought.bytes_fetched
    };

    let all = bring(None);
    let some = bring(Some(&open(&old).unwrap()));
    let more = bring(Some(&open(&decayed).unwrap()));
    let none = bring(Some(&elsewhere.unwrap()));

    assert_eq!((all, none), (report.stored_bytes, report.stored_bytes));
    assert!(some < all / 3, "{some} of {all}");
    assert!(some < more && more < all, "{some} {more} {all}");
}

#[test]
fn only_archives_of_ours_are_encrypted_and_only_undamaged_ones() {
    let home = tempfile::tempdir().unwrap();
    let encrypt = |plain: &[u8]| {
        let plain = Archive::over(over(plain), name())?;
        encrypt_nameless(&plain, &key(), home.path(), &EncryptSettings::default())
    };
    let tar = zstd::decode_all(PLAIN).unwrap();
    let mut decayed = PLAIN.to_vec();
    decayed[100] ^= 1;

    let foreign = encrypt(&tar).unwrap_err();
    let damaged = encrypt(&decayed).unwrap_err();

    assert!(matches!(foreign, ArchiveError::NotFramed(_)), "{foreign:?}");
    let is_refused = matches!(
        &damaged,
        ArchiveError::Refused {
            problem: Problem::Frame { .. },
            ..
        }
    );
    assert!(is_refused, "{damaged:?}");
}

/// An archive whose index decays as soon as it was read.
#[derive(Debug, Default)]
struct Decaying(AtomicBool);

impl ReadAt for Decaying {
    fn length(&self) -> io::Result<u64> {
        Ok(PLAIN.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut bytes = PLAIN.to_vec();
        let place = bytes.len() - 100;
        bytes[place] ^= u8::from(self.0.load(Ordering::Relaxed));
        Bytes(bytes, AtomicU64::default()).read_at(buffer, offset)
    }
}

#[test]
fn an_index_that_changed_since_the_archive_was_opened_is_not_encrypted() {
    let home = tempfile::tempdir().unwrap();
    let bytes = Arc::new(Decaying::default());
    let plain = Archive::over(bytes.clone(), name()).unwrap();
    bytes.0.store(true, Ordering::Relaxed);

    let refused = encrypt_nameless(&plain, &key(), home.path(), &EncryptSettings::default());

    let problem = |refused| match refused {
        ArchiveError::Refused { problem, .. } => Some(problem),
        _ => None,
    };
    let problem = problem(refused.unwrap_err());
    assert!(matches!(problem, Some(Problem::Index(_))), "{problem:?}");
}

#[test]
fn a_request_to_stop_ends_it_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let plain = Archive::over(over(PLAIN), name()).unwrap();
    let settings = EncryptSettings {
        cancel: Arc::new(AtomicBool::new(true)),
        ..EncryptSettings::default()
    };

    let stopped = encrypt(&plain, &key(), &home.path().join("encrypted"), &settings).unwrap_err();

    assert!(matches!(stopped, ArchiveError::Cancelled));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn an_encrypted_archive_of_the_first_version_is_read_for_ever_and_written_again_as_it_is() {
    let opened = open(ENCRYPTED).unwrap();

    assert!(all_of(&opened) == PLAIN);
    let (report, again) = encrypted(PLAIN, &key());
    assert!(again == ENCRYPTED, "other bytes");
    assert_eq!(
        report.archive_sha256.to_string(),
        "e835f91b63565f761bac2ec88f46d06f79e608ffbb1218a671b12a2bacc41b82"
    );
}
