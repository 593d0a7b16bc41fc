use super::*;
use crate::chunk_name::GcEpoch;
use crate::digest::ChunkDigest;
use crate::format::document;
use crate::format::manifest::{FileList, SnapshotManifest};
use crate::id::OpId;
use crate::time::Timestamp;

fn entry(path: &[u8], kind: EntryKind) -> ListRow {
    ListRow {
        entry: Entry {
            path: EntryPath::parse(path).unwrap(),
            kind,
            metadata: Metadata {
                mode: 0o640,
                uid: 7,
                gid: 8,
                modified: FileTime {
                    seconds: -3,
                    nanos: 9,
                },
            },
            attributes: Vec::new(),
        },
        content: None,
    }
}

fn tree() -> Vec<ListRow> {
    let chunk = StoredChunk {
        name: ChunkName::new(ChunkDigest::of(b"chunk"), GcEpoch::FIRST),
        plain_len: 40,
    };
    let slice = Slice {
        chunk,
        offset: 5,
        length: 9,
    };
    let mut file = entry(b"a\xff", EntryKind::File { size: 20 });
    file.content = Some(FileContent {
        digest: FileDigest::of(b"content"),
        extents: vec![Extent::Stored(slice), Extent::Hole(11)],
        pieces: vec![slice],
    });
    file.entry.attributes = vec![Attribute {
        name: b"user.k".as_slice().into(),
        value: b"\0v".as_slice().into(),
    }];
    let to = EntryPath::parse(b"a\xff").unwrap();
    vec![
        file,
        entry(b"d", EntryKind::Directory),
        entry(
            b"d/link",
            EntryKind::Symlink {
                target: b"../\xfe".as_slice().into(),
            },
        ),
        entry(b"d/other", EntryKind::HardLink { to }),
        entry(b"pipe", EntryKind::Fifo),
    ]
}

fn manifest(rows: Vec<ListRow>) -> SnapshotManifest {
    let (name, id) = ("default".parse().unwrap(), "one".parse().unwrap());
    let mut manifest = SnapshotManifest::new(name, id, OpId::default(), Timestamp::from_millis(0));
    manifest.set_list(&FileList::Inline(rows));
    manifest
}

#[test]
fn a_small_tree_comes_back_from_its_document() {
    let bytes = document::render(&manifest(tree()));

    let read: SnapshotManifest = document::parse(&bytes).unwrap();

    assert_eq!(read.list(), Ok(FileList::Inline(tree())));
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("\"path_b64\": \"Yf8=\""), "{text}");
}

#[test]
fn a_document_that_breaks_the_rules_of_lists_is_refused() {
    let mut disordered = tree();
    disordered.swap(0, 1);
    assert_eq!(
        manifest(disordered).list(),
        Err(not_a_list(Invalid::new("the list is not in order")))
    );

    let mut beyond = tree();
    let content = beyond[0].content.as_mut().unwrap();
    let Extent::Stored(slice) = &mut content.extents[0] else {
        panic!("it begins with bytes")
    };
    slice.offset = 39;
    assert_eq!(
        manifest(beyond).list(),
        Err(not_a_list(Invalid::new(
            "the list says a slice beyond its chunk, which cannot be"
        )))
    );
}

#[test]
fn a_document_with_a_feature_of_tomorrow_is_refused() {
    let mut manifest = manifest(tree());
    manifest.incompat.push("sparse-lists".to_owned());
    assert_eq!(
        manifest.list(),
        Err(Invalid::new(
            "the snapshot needs `sparse-lists`, which this build does not know"
        ))
    );
}

#[test]
fn a_link_with_content_is_refused() {
    let bytes = document::render(&manifest(tree()));
    let text = String::from_utf8(bytes)
        .unwrap()
        .replacen("\"symlink\"", "\"file\"", 1);
    let read: SnapshotManifest = document::parse(text.as_bytes()).unwrap();
    assert_eq!(read.list(), Err(two_kinds()));
}

#[test]
fn a_file_that_is_held_whole_comes_back_and_is_nothing_else_besides() {
    let mut file = entry(b"a", EntryKind::File { size: 20 });
    file.content = Some(FileContent::version(FileDigest::of(b"content"), 20));
    let bytes = document::render(&manifest(vec![file.clone()]));
    let text = String::from_utf8(bytes).unwrap();
    let list = |text: &str| {
        let read: SnapshotManifest = document::parse(text.as_bytes()).unwrap();
        read.list()
    };

    assert_eq!(list(&text), Ok(FileList::Inline(vec![file.clone()])));

    let content = file.content.as_mut().unwrap();
    content.extents = vec![Extent::Version(10), Extent::Hole(10)];
    let mixed = manifest(vec![file]);
    assert_eq!(mixed.list(), Err(two_kinds()));
}
