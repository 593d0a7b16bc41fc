//! How an entry is written: the one spelling of its headers.
//!
//! ustar where it fits. What does not fit is said in a pax header before it, and stands in the ustar block as 0 or cut
//! off: `hdrcharset` (`BINARY`, before names that are no UTF-8, which bsdtar doubts otherwise), `path` (names that cannot be divided), `linkpath` (over 100 bytes), `size` (8 GiB and more), `uid`, `gid` (over
//! seven octal digits), `mtime` (with nanoseconds, before 1970, after 2242), then attributes sorted by name: access lists as `SCHILY.acl.access` and `SCHILY.acl.default` in words with numbers for ids,
//! others as `SCHILY.xattr.…`. No
//! names of owners are written. The root is `./`, other directories end with a slash, nothing else begins with `./`.

use super::header::{BLOCK, Header, OCTAL_ID, OCTAL_SIZE, padding, split_name};
use super::pax;
use stasis_model::tree::acl::Acl;
use stasis_model::tree::{Entry, EntryKind, EntryPath};

/// The name of the root.
pub(super) const ROOT: &[u8] = b"./";
/// The name under which pax headers are written.
const PAX_NAME: &[u8] = b"././@PaxHeader";

/// What ends an archive.
pub(in crate::form) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// The headers of an entry; of a file the content follows, filled up with zeros to whole blocks.
///
/// `None` when its attributes are larger than a header may be.
pub(in crate::form) fn headers(entry: &Entry) -> Option<Vec<u8>> {
    let name = name(&entry.path, &entry.kind);
    let (kind, target, size): (u8, &[u8], u64) = match &entry.kind {
        EntryKind::File { size } => (b'0', b"", *size),
        EntryKind::HardLink { to } => (b'1', to.as_bytes(), 0),
        EntryKind::Symlink { target } => (b'2', target, 0),
        EntryKind::Directory => (b'5', b"", 0),
        _ => (b'6', b"", 0),
    };
    let records = records(entry, &name, target, size);
    let mut bytes = Vec::with_capacity(3 * BLOCK);
    if records.len() > pax::LONGEST {
        return None;
    }
    if !records.is_empty() {
        bytes.extend_from_slice(&pax_header(records.len()).encode());
        bytes.extend_from_slice(&records);
        bytes.resize(bytes.len() + padding(records.len() as u64), 0);
    }
    let header = Header {
        name,
        mode: entry.metadata.mode,
        uid: entry.metadata.uid.into(),
        gid: entry.metadata.gid.into(),
        size,
        seconds: entry.metadata.modified.seconds,
        kind,
        target: target.to_vec(),
    };
    bytes.extend_from_slice(&header.encode());
    Some(bytes)
}

fn name(path: &EntryPath, kind: &EntryKind) -> Vec<u8> {
    if path.is_root() {
        return ROOT.to_vec();
    }
    let mut name = path.as_bytes().to_vec();
    if *kind == EntryKind::Directory {
        name.push(b'/');
    }
    name
}

fn records(entry: &Entry, name: &[u8], target: &[u8], size: u64) -> Vec<u8> {
    let mut records = Vec::new();
    let mut put = |key: &[u8], value: &[u8]| pax::put(&mut records, key, value);
    let long_name = split_name(name).is_none().then_some(name);
    let long_target = (target.len() > 100).then_some(target);
    let names = [long_name, long_target].into_iter().flatten();
    if names
        .into_iter()
        .any(|name| std::str::from_utf8(name).is_err())
    {
        put(b"hdrcharset", b"BINARY");
    }
    if let Some(name) = long_name {
        put(b"path", name);
    }
    if let Some(target) = long_target {
        put(b"linkpath", target);
    }
    if size >= OCTAL_SIZE {
        put(b"size", size.to_string().as_bytes());
    }
    let metadata = &entry.metadata;
    for (key, id) in [(b"uid", metadata.uid), (b"gid", metadata.gid)] {
        if id >= OCTAL_ID {
            put(key, id.to_string().as_bytes());
        }
    }
    let modified = metadata.modified;
    let is_plain = u64::try_from(modified.seconds).is_ok_and(|seconds| seconds < OCTAL_SIZE);
    if modified.nanos != 0 || !is_plain {
        put(b"mtime", pax::spell_time(modified).as_bytes());
    }
    for attribute in &entry.attributes {
        let list = pax::list_key(&attribute.name);
        let text = list.and_then(|_| Acl::from_bytes(&attribute.value));
        match (list, text) {
            (Some(key), Some(list)) => put(key, list.to_text().as_bytes()),
            _ => put(&pax::spell_attribute(&attribute.name), &attribute.value),
        }
    }
    records
}

fn pax_header(length: usize) -> Header {
    Header {
        name: PAX_NAME.to_vec(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: length as u64,
        seconds: 0,
        kind: b'x',
        target: Vec::new(),
    }
}
