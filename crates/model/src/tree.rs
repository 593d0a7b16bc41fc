//! What a tree is made of, as it was read.
//!
//! A tree is a set of entries, one per path; sorted by path, every directory comes directly before what it holds.

pub mod blocks;
pub mod chunking;
pub mod diff;
pub mod list;

pub mod acl;
pub mod attributes;
pub mod canonical;

use crate::invalid::Invalid;
use std::cmp::Ordering;
use std::fmt;

/// The longest name that a filesystem of Linux gives to one entry.
pub const LONGEST_NAME: usize = 255;

/// The place of an entry, relative to the root of its tree, as raw bytes.
///
/// Always true: no component is empty, `.` or `..`, none holds a slash or a NUL, and none is longer than 255 bytes. The
/// path without any component is the root itself. Paths are ordered component by component, so that a directory comes
/// directly before what it holds.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct EntryPath(Box<[u8]>);

fn check_name(name: &[u8]) -> Result<(), Invalid> {
    match name {
        b"" => Err(Invalid::new("a component of the path is empty")),
        b"." | b".." => Err(Invalid::new("a component of the path is `.` or `..`")),
        _ if name.len() > LONGEST_NAME => Err(Invalid::new(format!(
            "a name of {} bytes is longer than {LONGEST_NAME}",
            name.len()
        ))),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(Invalid::new("a name holds a slash or a NUL"))
        }
        _ => Ok(()),
    }
}

impl EntryPath {
    /// The root of the tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads a path whose components are joined by single slashes; no bytes at all mean the root.
    pub fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        if !bytes.is_empty() {
            bytes.split(|byte| *byte == b'/').try_for_each(check_name)?;
        }
        Ok(Self(bytes.into()))
    }

    /// The entry called `name` in this directory.
    pub fn child(&self, name: &[u8]) -> Result<Self, Invalid> {
        check_name(name)?;
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !self.is_root() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Self(bytes.into()))
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The components joined by slashes; nothing for the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The names on the way from the root.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
    }

    /// Whether this is `above` itself or lies beneath it, component by component: `db2` is not within `db`.
    pub fn is_within(&self, above: &Self) -> bool {
        let rest = self.0.strip_prefix(&*above.0);
        above.is_root() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// The way to this entry from a directory that it lies in; none for that directory itself.
    pub fn seen_from(&self, above: &Self) -> Option<Self> {
        if above.is_root() {
            return (!self.is_root()).then(|| self.clone());
        }
        let rest = self.0.strip_prefix(&*above.0)?;
        Self::parse(rest.strip_prefix(b"/")?).ok()
    }

    /// Whether this is what SQLite keeps beside the database `database`: without it, or with another one's, that is another
    /// state, or none.
    pub fn is_companion_of(&self, database: &Self) -> bool {
        let end = self.0.strip_prefix(&*database.0);
        end.is_some_and(|end| matches!(end, b"-wal" | b"-journal" | b"-shm"))
    }

    /// The directory that holds this entry and its name in there; `None` for the root.
    pub fn split_last(&self) -> Option<(Self, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (Self(self.0[..slash].into()), &self.0[slash + 1..]),
            None => (Self::root(), &self.0),
        })
    }
}

/// Name by name, so that a directory comes right before what is in it.
impl Ord for EntryPath {
    fn cmp(&self, other: &Self) -> Ordering {
        // No name has a `/`, so where the paths part, the one whose name ends there is the lesser one.
        let (one, other) = (&*self.0, &*other.0);
        let same = common(one, other);
        match (one.get(same), other.get(same)) {
            (Some(b'/'), Some(_)) => Ordering::Less,
            (Some(_), Some(b'/')) => Ordering::Greater,
            (one, other) => one.cmp(&other),
        }
    }
}

/// How many bytes two paths begin with alike.
fn common(one: &[u8], other: &[u8]) -> usize {
    const WORD: usize = size_of::<u64>();
    let (words, _) = one.as_chunks::<WORD>();
    let (others, _) = other.as_chunks::<WORD>();
    let alike = words.iter().zip(others);
    let whole = WORD * alike.take_while(|(one, other)| one == other).count();
    let rest = one[whole..].iter().zip(&other[whole..]);
    whole + rest.take_while(|(one, other)| one == other).count()
}

impl PartialOrd for EntryPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Lossless and safe to print: a backslash is doubled, bytes that are no text and control characters become `\xNN`.
/// The root is `.`.
impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for piece in self.0.utf8_chunks() {
            for c in piece.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() || is_invisible(c) => {
                        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    c => write!(f, "{c}")?,
                }
            }
            for byte in piece.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Reads a path as it is displayed.
impl std::str::FromStr for EntryPath {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text == "." {
            return Ok(Self::root());
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            if *first != b'\\' {
                bytes.push(*first);
                continue;
            }
            let bad = || Invalid::new("a backslash stands before `xNN` or another backslash");
            let (byte, behind) = escaped(rest).ok_or_else(bad)?;
            bytes.push(byte);
            rest = behind;
        }
        Self::parse(&bytes)
    }
}

/// What stands behind a backslash: another one, or `xNN`.
fn escaped(rest: &[u8]) -> Option<(u8, &[u8])> {
    if let Some(behind) = rest.strip_prefix(b"\\") {
        return Some((b'\\', behind));
    }
    let (digits, behind) = rest.strip_prefix(b"x")?.split_first_chunk::<2>()?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(digits[0])? * 16 + digit(digits[1])?;
    Some((u8::try_from(value).ok()?, behind))
}

/// Characters that reorder or hide what stands beside them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its length, holes included.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points: any bytes, kept as they are and never followed.
        target: Box<[u8]>,
    },
    /// Another name of a file in the same tree.
    HardLink {
        /// The name of that file that comes first in order; always a [`EntryKind::File`] of the same tree.
        to: EntryPath,
    },
    /// A named pipe: recorded, never opened.
    Fifo,
}

/// A moment as a filesystem keeps it.
///
/// Always true: `nanos` is below 1,000,000,000 and counts forward, before 1970 too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileTime {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
}

/// What is kept of an entry besides its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Metadata {
    /// Permissions with setuid, setgid and sticky: twelve bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// When the content changed last.
    pub modified: FileTime,
}

/// One extended attribute that is part of a tree ([`acl::is_kept`]): `user.…`, an access list or capabilities, and its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attribute {
    /// The whole name.
    pub name: Box<[u8]>,
    /// Any bytes.
    pub value: Box<[u8]>,
}

/// One entry of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where it is.
    pub path: EntryPath,
    /// What it is.
    pub kind: EntryKind,
    /// Whose, since when, and who may do what.
    pub metadata: Metadata,
    /// Its extended attributes, sorted by name.
    pub attributes: Vec<Attribute>,
}

#[cfg(test)]
mod tests;
