use super::*;

fn path(name: &str) -> EntryPath {
    EntryPath::parse(name.as_bytes()).unwrap()
}

/// Frames of which some have names.
fn frames(names: &[Option<&str>]) -> Vec<Frame> {
    let frame = |(at, name): (usize, Option<&str>)| Frame {
        stored: 100 + u32::try_from(at).unwrap(),
        tar: 1000,
        digest: [u8::try_from(at).unwrap(); 16],
        stored_digest: [7; 8],
        start: name.map(|name| (u32::try_from(at).unwrap(), path(name))),
    };
    names.iter().copied().enumerate().map(frame).collect()
}

fn summary() -> Summary {
    Summary {
        encoder_id: "an encoder".to_owned(),
        tree_digest: TreeDigest::from_document([9; 32]),
        entries: 1,
        files: 2,
        bytes: u64::MAX,
    }
}

fn written(frames: &[Frame]) -> Vec<u8> {
    let mut writer = IndexWriter::default();
    for frame in frames {
        writer.add(frame);
    }
    writer.finish(&summary()).unwrap()
}

/// What is read back from the end of a file in which the frames fill `before` bytes.
fn read(bytes: &[u8], before: u64) -> Result<Option<Index>, Problem> {
    let (rest, footer) = bytes.split_last_chunk::<FOOTER>().unwrap();
    IndexFooter::read(footer)?
        .map(|footer| footer.index(rest, before))
        .transpose()
}

const NAMES: [Option<&str>; 9] = [
    Some(""),
    None,
    Some("a"),
    Some("a/b/c"),
    None,
    None,
    Some("a/b/d"),
    Some("z"),
    None,
];

#[test]
fn an_index_comes_back_as_it_was() {
    let frames = frames(&NAMES);
    let before = frames.iter().map(|frame| u64::from(frame.stored)).sum();

    let index = read(&written(&frames), before).unwrap().unwrap();

    assert_eq!(index.summary, summary());
    assert_eq!(index.frames, frames);
    assert_eq!(index.offsets().take(3).collect::<Vec<_>>(), [0, 100, 201]);
    assert_eq!(
        read(&written(&frames), before + 1),
        Err(Problem::Index("its frames do not fill the file"))
    );
}

#[test]
fn the_frame_of_a_name_is_the_last_that_begins_before_it() {
    let index = Index {
        summary: summary(),
        frames: frames(&NAMES),
    };
    let slow = |name: &EntryPath| {
        let before = |(_, frame): &(usize, &Frame)| {
            frame.start.as_ref().is_some_and(|(_, first)| first <= name)
        };
        let found = index.frames.iter().enumerate().filter(before);
        found.map(|(at, _)| at).next_back()
    };

    for name in [
        "", "0", "a", "a/a", "a/b", "a/b/c", "a/b/c/d", "a/b/d", "b", "z", "zz",
    ] {
        assert_eq!(index.frame_of(&path(name)), slow(&path(name)), "{name}");
    }
}

#[test]
fn an_index_returns_to_its_mark() {
    let frames = frames(&NAMES);
    let mut writer = IndexWriter::default();
    writer.add(&frames[0]);
    let mark = writer.mark();
    writer.add(&frames[3]);
    writer.add(&frames[1]);

    writer.return_to(mark);
    for frame in &frames[1..] {
        writer.add(frame);
    }

    assert_eq!(writer.frames(), 9);
    assert_eq!(writer.finish(&summary()).unwrap(), written(&frames));
}

#[test]
fn a_file_without_the_mark_has_no_index() {
    let mut bytes = written(&frames(&NAMES));
    *bytes.last_mut().unwrap() ^= 1;

    assert_eq!(read(&bytes, 0), Ok(None));
}
