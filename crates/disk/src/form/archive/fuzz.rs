//! Bodies for whoever throws arbitrary bytes at the readers: none may panic, hang or take much memory.

use super::encrypted::EncryptedFrames;
use super::frames::{LARGEST, Opener};
use super::index::{FOOTER, HEAD, Index, IndexFooter};
use super::parser::Parser;
use super::rules::{ArchiveLimits, TarDialect};
use super::tar_event::TarEvent;
use super::{pax, spelling};
use stasis_model::tree::EntryKind;

/// Reads bytes as a decompressed index whose frames fill as many bytes as the first eight say.
pub fn index(bytes: &[u8]) {
    let Some((before, body)) = bytes.split_first_chunk() else {
        return;
    };
    let Ok(index) = Index::parse(body, u64::from_le_bytes(*before)) else {
        return;
    };
    assert_eq!(index.offsets().count(), index.frames.len());
    for frame in index.frames.iter().filter_map(|frame| frame.start.as_ref()) {
        let found = index
            .frame_of(&frame.1)
            .expect("a name in the index is found");
        assert!(index.frames[found].start.is_some());
    }
}

/// Reads bytes as the end of a file.
pub fn footer(bytes: &[u8]) {
    let Some((rest, footer)) = bytes.split_last_chunk::<FOOTER>() else {
        return;
    };
    if let Ok(Some(footer)) = IndexFooter::read(footer)
        && let Some(before) = rest.len().checked_sub(footer.stored + HEAD)
    {
        let _ = footer.index(&rest[before..], before as u64);
    }
}

/// Reads bytes as the decrypted index of an encrypted archive whose frames fill as many bytes as the first eight say.
pub fn encrypted_index(bytes: &[u8]) {
    let Some((before, body)) = bytes.split_first_chunk() else {
        return;
    };
    if let Ok((table, tail)) = EncryptedFrames::parse(body, u64::from_le_bytes(*before)) {
        let again = table.spell(tail).expect("what was read can be written");
        assert!(again == body, "an index has one spelling");
    }
}

/// Reads bytes as a stored frame; its tar is as long as the first four say.
pub fn frame(bytes: &[u8]) {
    let Some((length, stored)) = bytes.split_first_chunk() else {
        return;
    };
    let length = u32::from_le_bytes(*length) as usize;
    let mut tar = Vec::new();
    let mut opener = Opener::new().expect("there is memory for one decompressor");
    if opener.open(stored, length, &mut tar).is_ok() {
        assert!(tar.len() == length && length <= LARGEST);
    }
}

/// Reads bytes as a tar in both dialects, whole and in small pieces.
pub fn tar(bytes: &[u8]) {
    for dialect in [TarDialect::Ours, TarDialect::Any] {
        let whole = parse(dialect, bytes, bytes.len().max(1));
        let pieces = parse(dialect, bytes, 77);
        assert_eq!(whole, pieces, "where the bytes are cut makes no difference");
    }
}

/// The entries of a tar, the length of its contents, and whether it is one.
fn parse(dialect: TarDialect, bytes: &[u8], piece: usize) -> (Vec<TarEvent>, u64, bool) {
    let limits = ArchiveLimits {
        entries: 100_000,
        ..ArchiveLimits::default()
    };
    let mut parser = Parser::new(dialect, limits);
    let (mut entries, mut events, mut content) = (Vec::new(), Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        let fed = parser.feed(piece, &mut events);
        for event in events.drain(..) {
            match event {
                TarEvent::Content(range) => content += piece[range].len() as u64,
                TarEvent::Hole(length) => content += length,
                TarEvent::Entry(entry, at) => {
                    let again = spelling::headers(&entry);
                    assert!(again.is_none_or(|headers| headers.len() % 512 == 0));
                    assert!(!entry.path.is_root() || entry.kind == EntryKind::Directory);
                    entries.push(TarEvent::Entry(entry, at));
                }
            }
        }
        if fed.is_err() {
            // How much of the content was seen before the mistake depends on the pieces.
            return (entries, 0, false);
        }
    }
    (entries, content, parser.finish().is_ok())
}

/// Reads bytes as the records of a pax header, and as a moment.
pub fn pax(bytes: &[u8]) {
    if let Some(time) = pax::read_time(bytes) {
        let spelled = pax::spell_time(time);
        assert_eq!(pax::read_time(spelled.as_bytes()), Some(time));
    }
    let Ok(records) = pax::records(bytes) else {
        return;
    };
    let mut again = Vec::new();
    for (key, value) in records {
        pax::put(&mut again, key, value);
    }
    // A length may have a digit more than it needs, if it counts that too.
    assert!(again.len() <= bytes.len());
}
