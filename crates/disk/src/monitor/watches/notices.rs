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
        Some(read.map(|(notice, _)| notice).ok_or(Torn))
    }
}

/// The first notice, and what is behind it.
fn notice(bytes: &[u8]) -> Option<(Notice<'_>, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(at(bytes, 0)?)).ok()?;
    let [version] = at(bytes, 4)?;
    let head = usize::from(u16::from_ne_bytes(at(bytes, 6)?));
    let mask = u64::from_ne_bytes(at(bytes, 8)?);
    if version != VERSION || head < HEAD {
        return None;
    }
    let (own, rest) = bytes.split_at_checked(length)?;
    let place = place(own.get(head..)?)?;
    Some((Notice { mask, place }, rest))
}

/// The place in the records of a notice, if there is one; nothing at all if they are torn.
fn place(mut records: &[u8]) -> Option<Option<Place<'_>>> {
    let mut found = None;
    while !records.is_empty() {
        let [kind] = at(records, 0)?;
        let length = usize::from(u16::from_ne_bytes(at(records, 2)?));
        // Each has at least its own head; less would never end.
        let (record, rest) = records.split_at_checked(length).filter(|_| length >= 4)?;
        if matches!(kind, DIRECTORY_AND_NAME | DIRECTORY) {
            found.get_or_insert(directory(record, kind)?);
        }
        records = rest;
    }
    Some(found)
}

fn directory(record: &[u8], kind: u8) -> Option<Place<'_>> {
    let handle = record.get(BEFORE_HANDLE..)?;
    let length = usize::try_from(u32::from_ne_bytes(at(handle, 0)?)).ok()?;
    // The kind of the handle is before its bytes.
    let end = length.checked_add(8)?;
    let directory = handle.get(4..end)?;
    let name = match kind {
        DIRECTORY_AND_NAME => {
            let name = &handle[end..];
            &name[..name.iter().position(|byte| *byte == 0)?]
        }
        _ => &[],
    };
    Some(Place { directory, name })
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
