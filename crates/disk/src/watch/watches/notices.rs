//! What fanotify writes into a buffer, read as bytes.
//!
//! A notice is a head (its length, a version, the length of the head, a mask, two numbers of no use here) and records behind it.
//! Of the records, the one that names a directory by its handle, and perhaps an entry in it, is read; the others, and those
//! that later kernels may add, are passed over by their length.

/// What a head takes.
pub(super) const HEAD: usize = 24;
/// The version of all this.
const VERSION: u8 = 3;
/// What comes before the handle in a record: what it is, how long it is, and the filesystem.
const BEFORE_HANDLE: usize = 4 + 8;
/// A directory, and the name of an entry in it.
const DIRECTORY_AND_NAME: u8 = 2;
/// A directory.
const DIRECTORY: u8 = 3;

/// The bytes are not what the kernel writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Torn;

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Notice<'a> {
    /// What.
    pub(super) mask: u64,
    /// Where, if that is said.
    pub(super) place: Option<Place<'a>>,
}

/// An entry of a directory, or the directory itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place<'a> {
    /// The directory: the kind of its handle, then the handle.
    pub(super) directory: &'a [u8],
    /// The entry; nothing or a dot when it is the directory.
    pub(super) name: &'a [u8],
}

impl Place<'_> {
    pub(super) fn is_directory_itself(&self) -> bool {
        matches!(self.name, b"" | b".")
    }
}

/// The notices in a buffer, in their order; one that is torn is the last.
pub(super) struct Notices<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Notices<'a> {
    type Item = Result<Notice<'a>, Torn>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = notice(self.0);
        self.0 = read.map_or(&[], |(_, rest)| rest);
        Some(read.map(|(notice, _)| notice))
    }
}

/// The first notice, and what is behind it.
fn notice(bytes: &[u8]) -> Result<(Notice<'_>, &[u8]), Torn> {
    let length = usize::try_from(u32::from_ne_bytes(at(bytes, 0)?)).or(Err(Torn))?;
    let [version] = at(bytes, 4)?;
    let head = usize::from(u16::from_ne_bytes(at(bytes, 6)?));
    let mask = u64::from_ne_bytes(at(bytes, 8)?);
    if version != VERSION || head < HEAD {
        return Err(Torn);
    }
    let (own, rest) = bytes.split_at_checked(length).ok_or(Torn)?;
    let place = place(own.get(head..).ok_or(Torn)?)?;
    Ok((Notice { mask, place }, rest))
}

/// The place in the records of a notice, if there is one.
fn place(mut records: &[u8]) -> Result<Option<Place<'_>>, Torn> {
    let mut found = None;
    while !records.is_empty() {
        let [kind] = at(records, 0)?;
        let length = usize::from(u16::from_ne_bytes(at(records, 2)?));
        // Each has at least its own head; less would never end.
        let split = records.split_at_checked(length).filter(|_| length >= 4);
        let (record, rest) = split.ok_or(Torn)?;
        if matches!(kind, DIRECTORY_AND_NAME | DIRECTORY) {
            found.get_or_insert(directory(record, kind)?);
        }
        records = rest;
    }
    Ok(found)
}

fn directory(record: &[u8], kind: u8) -> Result<Place<'_>, Torn> {
    let handle = record.get(BEFORE_HANDLE..).ok_or(Torn)?;
    let length = usize::try_from(u32::from_ne_bytes(at(handle, 0)?)).or(Err(Torn))?;
    // The kind of the handle is before its bytes.
    let end = length.checked_add(8).ok_or(Torn)?;
    let directory = handle.get(4..end).ok_or(Torn)?;
    let name = match kind {
        DIRECTORY_AND_NAME => {
            let name = &handle[end..];
            let end = name.iter().position(|byte| *byte == 0).ok_or(Torn)?;
            &name[..end]
        }
        _ => &[],
    };
    Ok(Place { directory, name })
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> Result<[u8; N], Torn> {
    let found = bytes.get(from..).and_then(<[u8]>::first_chunk);
    found.copied().ok_or(Torn)
}

#[cfg(test)]
mod tests;
