//! Where things are in an encrypted archive.

use super::super::frames::LARGEST;
use super::super::index::{LARGEST_INDEX, bounded};
use super::super::problem::Problem;
use crate::crypt::{ID, PieceId, TAG};
use stasis_model::varint::{self, ByteReader};

const VERSION: u64 = 1;
const MAGIC: &[u8; 7] = b"STASEAL";
const FOOTER_VERSION: u8 = 1;
pub(in super::super) const FOOTER: usize = ID + 12;
/// No index is larger: that of the largest archive, and an id for each of its frames.
const MOST: usize = 3 * LARGEST_INDEX;

/// The end of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EncryptedFooter {
    pub(super) id: PieceId,
    /// How long the index is, its tag included.
    pub(super) stored: usize,
}

impl EncryptedFooter {
    /// Reads the last bytes of a file.
    pub(super) fn read(bytes: &[u8; FOOTER]) -> Result<Self, Problem> {
        let (id, rest) = bytes
            .split_first_chunk()
            .ok_or_else(Problem::not_encrypted)?;
        let (stored, mark) = rest
            .split_first_chunk()
            .ok_or_else(Problem::not_encrypted)?;
        match mark.split_last() {
            Some((&FOOTER_VERSION, magic)) if magic == MAGIC => {}
            Some((version, magic)) if magic == MAGIC => {
                return Err(Problem::unknown_encryption(*version));
            }
            _ => return Err(Problem::not_encrypted()),
        }
        let stored = u32::from_le_bytes(*stored) as usize;
        if !(TAG..=MOST).contains(&stored) {
            return Err(Problem::closed_index());
        }
        let id = PieceId::from_document(*id);
        Ok(Self { id, stored })
    }

    pub(super) fn spell(&self) -> Vec<u8> {
        let stored = u32::try_from(self.stored).expect("an index is small");
        let mut bytes = Vec::with_capacity(FOOTER);
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(&stored.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes.push(FOOTER_VERSION);
        bytes
    }
}

/// The frames of an encrypted archive, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct EncryptedFrames {
    ids: Vec<PieceId>,
    /// Where each begins in the archive, and where the last ends.
    starts: Vec<u64>,
}

impl EncryptedFrames {
    pub(super) fn new(frames: impl Iterator<Item = (u32, PieceId)>) -> Self {
        let (mut table, mut end) = (Self::default(), 0);
        for (length, id) in frames {
            table.ids.push(id);
            table.starts.push(end);
            end += u64::from(length);
        }
        table.starts.push(end);
        table
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn id(&self, frame: usize) -> PieceId {
        self.ids[frame]
    }

    /// Where the frames end in the archive.
    pub(super) fn end(&self) -> u64 {
        self.starts[self.len()]
    }

    /// Where a frame begins in the archive, and its length there.
    pub(super) fn plain(&self, frame: usize) -> (u64, u64) {
        let start = self.starts[frame];
        (start, self.starts[frame + 1] - start)
    }

    /// Where a frame begins in the encrypted file, and its length there.
    pub(super) fn stored(&self, frame: usize) -> (u64, u64) {
        let (start, length) = self.plain(frame);
        (start + (frame * TAG) as u64, length + TAG as u64)
    }

    /// Where the frames end in the encrypted file.
    pub(super) fn stored_end(&self) -> u64 {
        self.end() + (self.len() * TAG) as u64
    }

    /// The frame in which this byte of the archive is.
    pub(super) fn frame_at(&self, offset: u64) -> usize {
        self.starts.partition_point(|start| *start <= offset) - 1
    }

    /// Spells what the index encrypts; `None` when that is too much.
    pub(in super::super) fn spell(&self, tail: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.len() * (ID + 3) + tail.len() + 20);
        varint::put(&mut bytes, VERSION);
        varint::put(&mut bytes, self.len() as u64);
        for frame in 0..self.len() {
            varint::put(&mut bytes, self.plain(frame).1);
            bytes.extend_from_slice(self.ids[frame].as_bytes());
        }
        bytes.extend_from_slice(tail);
        (bytes.len() + TAG <= MOST).then_some(bytes)
    }

    /// Reads the index of an encrypted archive: the frames, which fill the first `before` bytes of the file, and the archive's end.
    pub(in super::super) fn parse(bytes: &[u8], before: u64) -> Result<(Self, &[u8]), Problem> {
        let nonsense = Problem::nonsense_index;
        let mut body = ByteReader::new(bytes);
        if body.varint()? != VERSION {
            return Err(nonsense("its version is not known"));
        }
        let count = body.varint()?;
        let mut frames = Vec::new();
        for _ in 0..count {
            let length = bounded(&mut body, 2 * LARGEST)?;
            if length == 0 {
                return Err(nonsense("a frame is empty"));
            }
            let length = u32::try_from(length).expect("less than two frames");
            frames.push((length, PieceId::from_document(body.array()?)));
        }
        let table = Self::new(frames.into_iter());
        if table.stored_end() != before {
            return Err(nonsense("its frames do not fill the file"));
        }
        let tail = body.take(body.remaining())?;
        Ok((table, tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lengths: &[u32]) -> EncryptedFrames {
        let frames = lengths.iter().zip(1..);
        EncryptedFrames::new(frames.map(|(length, id)| (*length, PieceId::from_document([id; ID]))))
    }

    #[test]
    fn a_table_knows_where_every_byte_is() {
        let table = table(&[10, 1, 30]);

        assert_eq!((table.end(), table.stored_end()), (41, 41 + 48));
        assert_eq!((table.plain(2), table.stored(2)), ((11, 30), (43, 46)));
        let frames = [0, 9, 10, 11, 40].map(|offset| table.frame_at(offset));
        assert_eq!(frames, [0, 0, 1, 2, 2]);
    }

    #[test]
    fn what_was_spelled_is_read_and_only_where_its_frames_fill_the_file() {
        let table = table(&[10, 1, 30]);
        let spelled = table.spell(b"tail").unwrap();

        let read = EncryptedFrames::parse(&spelled, 41 + 48).unwrap();

        assert_eq!(read, (table, &b"tail"[..]));
        for before in [0, 41, 41 + 47, 41 + 49, u64::MAX] {
            assert!(
                EncryptedFrames::parse(&spelled, before).is_err(),
                "{before}"
            );
        }
        for length in 0..spelled.len() - 4 {
            assert!(EncryptedFrames::parse(&spelled[..length], 41 + 48).is_err());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let id = [7; ID];
        let no_version = [&[2, 1, 5][..], &id].concat();
        let empty = [&[1, 1, 0][..], &id].concat();
        let huge = [&[1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &id].concat();
        let endless = [&[1, 0xff, 0xff, 0xff, 0xff, 0x0f, 5][..], &id].concat();
        for bytes in [no_version, empty, huge, endless] {
            assert!(
                EncryptedFrames::parse(&bytes, 5 + TAG as u64).is_err(),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_footer_has_one_spelling_and_says_what_is_wrong() {
        let id = PieceId::from_document([7; ID]);
        let footer = EncryptedFooter { id, stored: 500 };
        let spelled: [u8; FOOTER] = footer.spell().try_into().unwrap();
        let with = |at: usize, byte: u8| {
            let mut changed = spelled;
            changed[at] = byte;
            EncryptedFooter::read(&changed)
        };

        assert_eq!(EncryptedFooter::read(&spelled), Ok(footer));
        assert_eq!(with(FOOTER - 1, 2), Err(Problem::unknown_encryption(2)));
        assert_eq!(with(FOOTER - 2, b'l'), Err(Problem::not_encrypted()));
        assert_eq!(
            with(ID + 3, 0xff),
            Err(Problem::closed_index()),
            "too large"
        );
        let short = EncryptedFooter { id, stored: 3 }
            .spell()
            .try_into()
            .unwrap();
        assert_eq!(
            EncryptedFooter::read(&short),
            Err(Problem::closed_index()),
            "no tag"
        );
    }
}
