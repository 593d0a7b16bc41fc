//! The entries of a small snapshot, as they stand in its `metadata.json`.
//!
//! What is read here goes through the same door as a binary list: it is written as a section and read back, so that both
//! forms obey the same rules.

use crate::base64;
use crate::chunk_name::ChunkName;
use crate::digest::FileDigest;
use crate::invalid::{Invalid, InvalidPart};
use crate::tree::list::{
    Extent, FileContent, ListRow, SectionWriter, Slice, StoredChunk, bad_number, read_section,
};
use crate::tree::{Attribute, Entry, EntryKind, EntryPath, FileTime, Metadata, acl};
use serde::{Deserialize, Serialize};

const BAD_PATH: &str = "a path in the snapshot is not one";

fn not_base64() -> Invalid {
    Invalid::new("bytes of an entry are not spelled in base64")
}

/// A file without content, or content without a file.
fn two_kinds() -> Invalid {
    Invalid::new("an entry says of what kind it is in two ways")
}

fn not_a_list(rule: Invalid) -> Invalid {
    Invalid::new("the entries of the snapshot are not a list").because(rule)
}

/// Bytes in a field of their own: as text where they are text, else in base64 under another name.
fn spelled(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64::encode(bytes))),
    }
}

fn read(text: Option<&String>, encoded: Option<&String>) -> Result<Option<Vec<u8>>, Invalid> {
    match (text, encoded) {
        (Some(text), None) => Ok(Some(text.clone().into_bytes())),
        (None, Some(encoded)) => base64::decode(encoded).map(Some).ok_or_else(not_base64),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(two_kinds()),
    }
}

/// One entry in a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct InlineEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    kind: InlineKind,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: (i64, u32),
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<InlineAttribute>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_b64: Option<String>,
    #[serde(flatten)]
    content: Option<InlineContent>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct InlineAttribute {
    name_b64: String,
    value_b64: String,
}

impl From<&Attribute> for InlineAttribute {
    fn from(one: &Attribute) -> Self {
        Self {
            name_b64: base64::encode(&one.name),
            value_b64: base64::encode(&one.value),
        }
    }
}

impl InlineAttribute {
    pub(super) fn attribute(&self) -> Result<Attribute, Invalid> {
        let decoded = |text: &str| base64::decode(text).ok_or_else(not_base64);
        let name: Box<[u8]> = decoded(&self.name_b64)?.into();
        if !acl::is_kept(&name) {
            return Err(two_kinds());
        }
        let value = decoded(&self.value_b64)?.into();
        Ok(Attribute { name, value })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum InlineKind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct InlineContent {
    size: u64,
    blake3: FileDigest,
    /// In order; a stretch without a chunk is a hole.
    chunks: Vec<InlineExtent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<InlineExtent>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct InlineExtent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk: Option<ChunkName>,
    #[serde(default)]
    chunk_length: u32,
    #[serde(default)]
    offset: u32,
    length: u64,
    /// Whether the bytes are a whole version of the file, held under its digest.
    #[serde(default, skip_serializing_if = "is_false")]
    version: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl From<&Slice> for InlineExtent {
    fn from(slice: &Slice) -> Self {
        Self {
            chunk: Some(slice.chunk.name),
            chunk_length: slice.chunk.plain_len,
            offset: slice.offset,
            length: slice.length.into(),
            version: false,
        }
    }
}

impl From<&Extent> for InlineExtent {
    fn from(extent: &Extent) -> Self {
        match extent {
            Extent::Stored(slice) => Self::from(slice),
            Extent::Hole(length) | Extent::Version(length) => Self {
                chunk: None,
                chunk_length: 0,
                offset: 0,
                length: *length,
                version: matches!(extent, Extent::Version(_)),
            },
        }
    }
}

impl InlineExtent {
    fn extent(&self) -> Result<Extent, Invalid> {
        let Some(name) = self.chunk else {
            return Ok(if self.version {
                Extent::Version(self.length)
            } else {
                Extent::Hole(self.length)
            });
        };
        let too_long = || not_a_list(bad_number("a length"));
        Ok(Extent::Stored(Slice {
            chunk: StoredChunk {
                name,
                plain_len: self.chunk_length,
            },
            offset: self.offset,
            length: u32::try_from(self.length).ok().ok_or_else(too_long)?,
        }))
    }
}

impl From<&ListRow> for InlineEntry {
    fn from(ListRow { entry, content }: &ListRow) -> Self {
        let (kind, target) = match &entry.kind {
            EntryKind::File { .. } => (InlineKind::File, None),
            EntryKind::Directory => (InlineKind::Directory, None),
            EntryKind::Fifo => (InlineKind::Fifo, None),
            EntryKind::Symlink { target } => (InlineKind::Symlink, Some(&target[..])),
            EntryKind::HardLink { to } => (InlineKind::HardLink, Some(to.as_bytes())),
        };
        let content = content.as_ref().map(|content| InlineContent {
            size: content.extents.iter().map(Extent::length).sum(),
            blake3: content.digest,
            chunks: content.extents.iter().map(InlineExtent::from).collect(),
            pieces: content.pieces.iter().map(InlineExtent::from).collect(),
        });
        let Metadata {
            mode,
            uid,
            gid,
            modified,
        } = entry.metadata;
        let (path, path_b64) = spelled(entry.path.as_bytes());
        let (target, target_b64) = target.map_or((None, None), spelled);
        Self {
            path,
            path_b64,
            kind,
            mode,
            uid,
            gid,
            mtime: (modified.seconds, modified.nanos),
            xattrs: entry.attributes.iter().map(InlineAttribute::from).collect(),
            target,
            target_b64,
            content,
        }
    }
}

impl InlineEntry {
    fn row(&self) -> Result<ListRow, Invalid> {
        let target = read(self.target.as_ref(), self.target_b64.as_ref())?;
        let path = read(self.path.as_ref(), self.path_b64.as_ref())?.unwrap_or_default();
        let kind = match (self.kind, target, &self.content) {
            (InlineKind::File, None, Some(content)) => EntryKind::File { size: content.size },
            (InlineKind::Directory, None, None) => EntryKind::Directory,
            (InlineKind::Fifo, None, None) => EntryKind::Fifo,
            (InlineKind::Symlink, Some(target), None) => EntryKind::Symlink {
                target: target.into(),
            },
            (InlineKind::HardLink, Some(to), None) => EntryKind::HardLink {
                to: EntryPath::parse(&to).invalid(BAD_PATH)?,
            },
            _ => return Err(two_kinds()),
        };
        let (seconds, nanos) = self.mtime;
        let entry = Entry {
            path: EntryPath::parse(&path).invalid(BAD_PATH)?,
            kind,
            metadata: Metadata {
                mode: self.mode,
                uid: self.uid,
                gid: self.gid,
                modified: FileTime { seconds, nanos },
            },
            attributes: self
                .xattrs
                .iter()
                .map(InlineAttribute::attribute)
                .collect::<Result<_, Invalid>>()?,
        };
        let content = self
            .content
            .as_ref()
            .map(InlineContent::content)
            .transpose()?;
        Ok(ListRow { entry, content })
    }
}

impl InlineContent {
    fn content(&self) -> Result<FileContent, Invalid> {
        let slice = |extent: &InlineExtent| match extent.extent()? {
            Extent::Hole(_) | Extent::Version(_) => Err(two_kinds()),
            Extent::Stored(slice) => Ok(slice),
        };
        let pieces = self.pieces.iter().map(slice).collect::<Result<_, _>>()?;
        let extents = self.chunks.iter().map(InlineExtent::extent);
        let content = FileContent {
            digest: self.blake3,
            extents: extents.collect::<Result<_, _>>()?,
            pieces,
        };
        let has_version = self.chunks.iter().any(|one| one.version);
        if has_version && !(content.is_version() && content.pieces.is_empty()) {
            return Err(two_kinds());
        }
        Ok(content)
    }
}

/// The rows of a document.
pub(super) fn rows(entries: &[InlineEntry]) -> Result<Vec<ListRow>, Invalid> {
    let mut writer = SectionWriter::default();
    for entry in entries {
        writer.push(&entry.row()?);
    }
    let mut rows = Vec::with_capacity(entries.len());
    let read = read_section(&writer.finish(), None, |row| {
        rows.push(row);
        Ok::<(), Invalid>(())
    });
    read.map_err(not_a_list)?;
    Ok(rows)
}

#[cfg(test)]
mod tests;
