//! What can be wrong with the bytes of an archive.

use stasis_model::invalid::Invalid;
use stasis_model::varint::BadVarint;

/// Why the bytes of an archive are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A header was changed, or is none.
    #[error("the checksum of a header is wrong")]
    Checksum,
    /// A field of a header is no number, or no sensible one.
    #[error("a header's {0} is not a number that can be used")]
    Number(&'static str),
    /// A pax header is not made of records.
    #[error("a pax header is malformed")]
    PaxRecord,
    /// A key that nobody should write, or that stands where it must not.
    #[error("the pax key `{0}` is not understood here")]
    PaxKey(String),
    /// A key that is there twice.
    #[error("the pax key `{0}` is there twice")]
    PaxTwice(String),
    /// A value that does not fit its key.
    #[error("the value of the pax key `{0}` is malformed")]
    PaxValue(&'static str),
    /// A header that is longer than any honest one.
    #[error("a header has {0} bytes, which is too much")]
    LongHeader(u64),
    /// A header that belongs to the next entry, and there is none, or another header of the same kind.
    #[error("a header for the next entry is followed by something else")]
    Stray,
    /// Two headers speak of different sizes.
    #[error("the headers of an entry disagree about its size")]
    SizeDisagrees,
    /// Two headers call one entry by different names, or lead it to different places.
    #[error("the headers of an entry disagree about its {0}")]
    Disagree(&'static str),
    /// A directory, a link or a pipe with content.
    #[error("an entry that has no content comes with some")]
    Content,
    /// `/…`
    #[error("the name of an entry is absolute")]
    Absolute,
    /// A name that no entry of a tree has.
    #[error("the name of an entry cannot be used")]
    Name(#[source] Invalid),
    /// A directory's name at something else, or a missing target.
    #[error("an entry's name or target does not fit what it is")]
    Misfit,
    /// A device is never made.
    #[error("an entry is a device, and those are never made")]
    Device,
    /// We read the newest of the four ways to store a sparse file.
    #[error(
        "an entry is stored as a sparse file in an old way; `--format=posix` stores it in the new one"
    )]
    Sparse,
    /// The parts of a sparse file are nonsense.
    #[error("the map of a sparse file is malformed")]
    SparseMap,
    /// A type that is not known.
    #[error("an entry has the unknown type `{}`", .0.escape_ascii())]
    Kind(u8),
    /// Our own archives have one spelling only.
    #[error("the headers of an entry are not spelled as this archive's writer spells them")]
    Spelling,
    /// Our own archives are sorted, without duplicates.
    #[error("the entry does not come after the one before it")]
    Order,
    /// Something beside the directory whose tar it is.
    #[error(
        "the entry, or the file that it is another name of, lies outside of the directory that the tar begins with"
    )]
    Outside,
    /// A file, where a tree was asked for.
    #[error("it holds a single entry that is no directory")]
    NoTree,
    /// Something in nothing, in a file, or in a link.
    #[error("the entry lies in something that is no directory of the archive")]
    NoDirectory,
    /// A hard link to nothing, to something later, or to something that is no file.
    #[error("the hard link does not lead to an earlier file of the archive")]
    NoFile,
    /// Directories in directories in directories.
    #[error("directories lie deeper in one another than {0}")]
    TooDeep(usize),
    /// More entries than allowed.
    #[error("there are more than {0} entries")]
    TooMany(u64),
    /// More bytes than allowed.
    #[error("the entries have more than {0} bytes")]
    TooLarge(u64),
    /// The archive ends too early.
    #[error("the archive ends in the middle, or without its end mark")]
    Truncated,
    /// Something follows the end mark.
    #[error("something follows the end of the archive")]
    Trailing,
    /// The compressed stream is damaged.
    #[error("the compressed bytes are damaged: {0}")]
    Compression(String),
    /// A frame is not what the index says.
    #[error("frame {frame} at byte {at} is not what the index says: {what}")]
    Frame {
        /// Which, counted from 0.
        frame: usize,
        /// Where it begins in the file.
        at: u64,
        /// What differs.
        what: &'static str,
    },
    /// The index is damaged or nonsense.
    #[error("the index is damaged: {0}")]
    Index(&'static str),
    /// The index says one thing and the headers another.
    #[error("the index says something else than the headers: {0}")]
    IndexDisagrees(&'static str),
    /// The encrypted form is not what it should be.
    #[error("it cannot be decrypted")]
    Encryption(#[source] Invalid),
    /// The tree is not the one whose digest is stored.
    #[error("the tree is not the one that was archived")]
    OtherTree,
}

impl From<Invalid> for Problem {
    fn from(bad: Invalid) -> Self {
        Self::Name(bad)
    }
}

impl From<BadVarint> for Problem {
    fn from(bad: BadVarint) -> Self {
        Self::Index(match bad {
            BadVarint::Short => "it ends too early",
            BadVarint::Padded | BadVarint::TooLarge => "a number is malformed",
        })
    }
}

impl Problem {
    /// The bytes do not end as an encrypted archive does.
    pub fn not_encrypted() -> Self {
        let what = "it is no encrypted archive, or its end is missing";
        Self::Encryption(Invalid::new(what))
    }

    /// Another build encrypted it.
    pub fn unknown_encryption(version: u8) -> Self {
        let what = format!("its version is {version}, which is not known");
        Self::Encryption(Invalid::new(what))
    }

    /// The index of an encrypted archive does not open: nothing of it is believed.
    pub fn closed_index() -> Self {
        let what = "its index does not open: it is damaged, or was encrypted with another data key, or for another lineage";
        Self::Encryption(Invalid::new(what))
    }

    /// The index of an encrypted archive opens and is nonsense.
    pub(super) fn nonsense_index(what: &str) -> Self {
        let what = format!("its index makes no sense: {what}");
        Self::Encryption(Invalid::new(what))
    }

    /// Whether a limit was reached, rather than something damaged or forged.
    pub fn is_a_limit(&self) -> bool {
        matches!(self, Self::TooMany(_) | Self::TooLarge(_))
    }
}
