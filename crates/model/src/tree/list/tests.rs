use super::wire::disorder;
use super::*;
use crate::chunk_name::GcEpoch;
use crate::digest::ChunkDigest;
use crate::invalid::Invalid;
use crate::tree::{Attribute, EntryKind, EntryPath, FileTime, Metadata};
use proptest::prelude::*;

fn chunk(number: u32) -> StoredChunk {
    let digest = ChunkDigest::of(&number.to_le_bytes());
    StoredChunk {
        name: ChunkName::new(digest, GcEpoch::from_number(number % 3)),
        plain_len: 1 << 20,
    }
}

fn slice() -> impl Strategy<Value = Slice> {
    (0_u32..5, 0_u32..1 << 19, 1_u32..1 << 19).prop_map(|(number, offset, length)| Slice {
        chunk: chunk(number),
        offset,
        length,
    })
}

fn content() -> impl Strategy<Value = FileContent> {
    let extent = prop_oneof![
        slice().prop_map(Extent::Stored),
        (1_u64..1 << 40).prop_map(Extent::Hole)
    ];
    let extents = prop::collection::vec(extent, 0..4);
    (
        any::<[u8; 32]>(),
        extents,
        prop::collection::vec(slice(), 0..3),
    )
        .prop_map(|(digest, extents, pieces)| FileContent {
            digest: FileDigest::from_document(digest),
            extents,
            pieces,
        })
}

fn path() -> impl Strategy<Value = EntryPath> {
    let name = prop::collection::vec(1_u8..=255, 1..12).prop_map(|mut name| {
        name.iter_mut()
            .filter(|byte| **byte == b'/')
            .for_each(|byte| *byte = b'_');
        if matches!(&*name, b"." | b"..") {
            name.push(b'x');
        }
        name
    });
    prop::collection::vec(name, 1..4).prop_map(|names| {
        EntryPath::parse(&names.join(&b'/')).expect("names were made to be names")
    })
}

fn row() -> impl Strategy<Value = ListRow> {
    let kind = prop_oneof![
        content().prop_map(|content| {
            let size = content.extents.iter().map(Extent::length).sum();
            (EntryKind::File { size }, Some(content))
        }),
        (any::<[u8; 32]>(), 1_u64..1 << 40).prop_map(|(digest, size)| {
            let content = FileContent::version(FileDigest::from_document(digest), size);
            (EntryKind::File { size }, Some(content))
        }),
        Just((EntryKind::Directory, None)),
        Just((EntryKind::Fifo, None)),
        any::<[u8; 9]>().prop_map(|target| (
            EntryKind::Symlink {
                target: target.into()
            },
            None
        )),
        path().prop_map(|to| (EntryKind::HardLink { to }, None)),
    ];
    let metadata = (
        0_u32..=0o7777,
        0_u32..3,
        any::<u32>(),
        any::<i64>(),
        0_u32..1_000_000_000,
    );
    let metadata = metadata.prop_map(|(mode, uid, gid, seconds, nanos)| Metadata {
        mode,
        uid,
        gid,
        modified: FileTime { seconds, nanos },
    });
    let value = prop::collection::vec(any::<u8>(), 0..9);
    let attributes = prop::collection::btree_map("[a-c]{1,3}", value, 0..3);
    (path(), kind, metadata, attributes).prop_map(
        |(path, (kind, content), metadata, attributes)| {
            let attributes = attributes.into_iter().map(|(name, value)| Attribute {
                name: format!("user.{name}").into_bytes().into(),
                value: value.into(),
            });
            let entry = crate::tree::Entry {
                path,
                kind,
                metadata,
                attributes: attributes.collect(),
            };
            ListRow { entry, content }
        },
    )
}

fn rows(most: usize) -> impl Strategy<Value = Vec<ListRow>> {
    prop::collection::vec(row(), 0..most).prop_map(|mut rows| {
        rows.sort_by(|one, other| one.entry.path.cmp(&other.entry.path));
        rows.dedup_by(|one, other| one.entry.path == other.entry.path);
        rows
    })
}

fn written(rows: &[ListRow]) -> Vec<u8> {
    let mut writer = SectionWriter::default();
    for row in rows {
        writer.push(row);
    }
    writer.finish()
}

fn read(bytes: &[u8]) -> Result<Vec<ListRow>, Invalid> {
    let mut rows = Vec::new();
    read_section(bytes, None, |row| {
        rows.push(row);
        Ok::<(), Invalid>(())
    })?;
    Ok(rows)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_section_comes_back_as_it_was_written(rows in rows(40)) {
        prop_assert_eq!(read(&written(&rows)), Ok(rows));
    }

    #[test]
    fn bytes_that_are_not_a_section_are_refused_or_read_but_never_break_us(
        rows in rows(6), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let mut bytes = written(&rows);
        let length = bytes.len();
        bytes[at.index(length)] = byte;
        let _ = read(&bytes);
        let shorter = &written(&rows)[..cut.index(length)];
        prop_assert!(read(shorter).is_err());
        let mut longer = written(&rows);
        longer.push(byte);
        prop_assert!(read(&longer).is_err());
    }

    #[test]
    fn a_stretch_of_a_file_is_what_lies_there(content in content(), from in 0_u64..1 << 21, length in 0_u64..1 << 21) {
        let stretches = content.stretches();
        let stretch = stretches.get(from, length);

        let size: u64 = content.extents.iter().map(Extent::length).sum();
        let expected = size.min(from + length).saturating_sub(from);
        prop_assert_eq!(stretch.iter().map(Extent::length).sum::<u64>(), expected);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < size {
            for extent in stretches.get(at, 100_000) {
                append(&mut pieces, extent);
            }
            at += 100_000;
            if at > 1 << 30 { return Ok(()); }
        }
        let mut whole = Vec::new();
        content.extents.iter().for_each(|extent| append(&mut whole, *extent));
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn a_root_comes_back(slices in prop::collection::vec((slice(), any::<[u8; 16]>(), any::<u32>()), 0..30), at: prop::sample::Index, byte: u8) {
        let sections = slices.into_iter().map(|(slice, digest, entries)| SectionPlace { slice, digest, entries });
        let root = ListRoot { sections: sections.collect() };

        let mut bytes = root.to_bytes();

        prop_assert_eq!(ListRoot::from_bytes(&bytes), Ok(root));
        let length = bytes.len();
        bytes[at.index(length)] = byte;
        let _ = ListRoot::from_bytes(&bytes);
    }
}

fn plain(path: &str) -> ListRow {
    ListRow {
        entry: crate::tree::Entry {
            path: EntryPath::parse(path.as_bytes()).unwrap(),
            kind: EntryKind::Directory,
            metadata: Metadata::default(),
            attributes: Vec::new(),
        },
        content: None,
    }
}

#[test]
fn entries_out_of_order_are_refused() {
    assert_eq!(read(&written(&[plain("b"), plain("a")])), Err(disorder()));
    assert_eq!(read(&written(&[plain("a"), plain("a")])), Err(disorder()));
    let after = EntryPath::parse(b"c").unwrap();
    let shown = read_section(&written(&[plain("a")]), Some(&after), |_| {
        Ok::<(), Invalid>(())
    });
    assert_eq!(shown, Err(disorder()));
}

#[test]
fn a_file_that_appears_moves_few_sections() {
    let mut rows: Vec<ListRow> = (0..20_000)
        .map(|n| plain(&format!("d{:03}/f{n:05}", n / 50)))
        .collect();
    rows.sort_by(|one, other| one.entry.path.cmp(&other.entry.path));
    let sections = |rows: &[ListRow]| {
        let (mut writer, mut sections) = (SectionWriter::default(), Vec::new());
        for row in rows {
            if writer.push(row) {
                sections.push(writer.finish());
            }
        }
        sections.push(writer.finish());
        sections
    };
    let before = sections(&rows);
    rows.insert(7_000, plain("d139/f06999z"));

    let after = sections(&rows);

    let new = after
        .iter()
        .filter(|section| !before.contains(section))
        .count();
    assert!(before.len() > 60, "{}", before.len());
    assert!(new <= 2, "{new} of {} sections are new", after.len());
}

#[test]
fn the_bytes_of_a_section_are_part_of_the_format() {
    let mut file = plain("a/b");
    file.entry.kind = EntryKind::File { size: 7 };
    file.entry.metadata = Metadata {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        modified: FileTime {
            seconds: -1,
            nanos: 5,
        },
    };
    file.content = Some(FileContent {
        digest: FileDigest::of(b"content"),
        extents: vec![Extent::Stored(Slice {
            chunk: chunk(1),
            offset: 3,
            length: 7,
        })],
        pieces: Vec::new(),
    });

    let bytes = written(&[plain("a"), file]);

    assert_eq!(blake3::hash(&bytes).to_string()[..16], *"151b67361245488b");
}
