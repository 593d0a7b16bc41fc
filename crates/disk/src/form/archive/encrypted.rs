//! The encrypted form of an archive: the same frames, each encrypted for itself.
//!
//! ```text
//! encrypted = frame* index footer
//! frame  = a stored frame of the archive, encrypted, and a tag of 16 bytes
//! index  = the same of: version:varint frames:varint, then per frame its length without the tag:varint, its id:32;
//!          then the end of the archive, which is its own index in a skippable frame
//! footer = id of the index:32, stored length of the index:4, `STASEAL\x01`:8
//! ```
//!
//! How a piece is encrypted is said in [`crypt`](crate::crypt). The same archive, data key and lineage give the same
//! bytes; a frame that an older archive of the lineage has too has the same encrypted bytes there, and can be copied.
//!
//! **Writing** ([`encrypt`]):
//!
//! 1. make a temporary file
//! 2. workers read frames, check them, encrypt them and write each to its place, which is known from the index; one
//!    thread digests what is written without a gap
//! 3. index and footer
//! 4. give the file its name, if it gets one
//!
//! The same as for an archive holds of crashes: the target is what it was before, or whole.
//!
//! **Reading** ([`EncryptedArchive`]): the footer is used only to find the index and its key, and a footer that lies leads to an
//! index that does not open. *Always true of one that was opened:* its frames tile the file, and every byte that is
//! read through it was authenticated as this frame of this archive of this lineage.

mod frame_table;
mod layout;
mod view;
mod writer;

pub use view::EncryptedArchive;
pub use writer::{EncryptReport, EncryptSettings, encrypt, encrypt_nameless};

pub(super) use layout::EncryptedFrames;
