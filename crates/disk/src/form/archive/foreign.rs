//! From headers to an entry, as any honest tar may have written them.

use super::Problem;
use super::header::Header;
use super::names;
use super::pax;
use stasis_model::tree::acl::{self, Acl};
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, FileTime, Metadata};

/// Headers that speak of the next entry, and those that speak of all.
#[derive(Debug, Default)]
pub(super) struct PendingHeaders {
    pax: Option<Vec<u8>>,
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    for_all: Facts,
}

/// What pax headers say.
#[derive(Clone, Debug, Default)]
struct Facts {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    modified: Option<FileTime>,
    attributes: Vec<Attribute>,
    sparse: Sparse,
}

/// What pax headers say of a file of which only the parts with data are stored.
#[derive(Clone, Debug, Default)]
struct Sparse {
    major: Option<u64>,
    minor: Option<u64>,
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Sparse {
    /// The name and the length of the file; `None` when it is not stored in this way.
    fn file(self) -> Result<Option<(Vec<u8>, u64)>, Problem> {
        match self {
            Self {
                major: None,
                minor: None,
                name: None,
                size: None,
            } => Ok(None),
            Self {
                major: Some(1),
                minor: Some(0),
                name: Some(name),
                size: Some(size),
            } => Ok(Some((name, size))),
            _ => Err(Problem::Sparse),
        }
    }
}

/// What a header block turned out to be.
#[derive(Debug)]
pub(super) struct Extra {
    /// The entry; `None` for a header that means nothing to us.
    pub(super) entry: Option<Entry>,
    /// How many bytes follow.
    pub(super) size: u64,
    /// Whether they are a map of a sparse file and its data, and how long that file is.
    pub(super) sparse: Option<u64>,
}

impl PendingHeaders {
    pub(super) fn is_empty(&self) -> bool {
        self.pax.is_none() && self.name.is_none() && self.target.is_none()
    }

    /// Keeps the body of a header until its entry comes.
    pub(super) fn add(&mut self, kind: u8, mut body: Vec<u8>) -> Result<(), Problem> {
        let place = match kind {
            b'g' => {
                let stated = Facts::read(&body, true)?;
                self.for_all.uid = stated.uid.or(self.for_all.uid);
                self.for_all.gid = stated.gid.or(self.for_all.gid);
                self.for_all.modified = stated.modified.or(self.for_all.modified);
                return Ok(());
            }
            b'x' => &mut self.pax,
            _ => {
                // A long name of GNU tar ends with a NUL that is not part of it.
                if body.pop() != Some(0) {
                    return Err(Problem::Misfit);
                }
                if kind == b'L' {
                    &mut self.name
                } else {
                    &mut self.target
                }
            }
        };
        if place.replace(body).is_some() {
            return Err(Problem::Stray);
        }
        Ok(())
    }
}

impl Facts {
    fn read(body: &[u8], is_for_all: bool) -> Result<Self, Problem> {
        let mut facts = Self::default();
        let mut keys: Vec<&[u8]> = Vec::new();
        for (key, value) in pax::records(body)? {
            facts.note(key, value, is_for_all)?;
            keys.push(key);
        }
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Problem::PaxTwice(key_text(twice[0])));
        }
        facts.attributes.sort();
        // A list in words and the same one in bytes.
        facts
            .attributes
            .dedup_by(|one, other| one.name == other.name);
        Ok(facts)
    }

    fn note(&mut self, key: &[u8], value: &[u8], is_for_all: bool) -> Result<(), Problem> {
        let number = |name| pax::decimal(value).ok_or(Problem::PaxValue(name));
        let id = |name| {
            let id = number(name)?;
            u32::try_from(id).map_err(|_| Problem::PaxValue(name))
        };
        match key {
            b"uid" => self.uid = Some(id("uid")?),
            b"gid" => self.gid = Some(id("gid")?),
            b"mtime" => {
                let time = pax::read_time(value).ok_or(Problem::PaxValue("mtime"))?;
                self.modified = Some(time);
            }
            b"atime" | b"ctime" | b"uname" | b"gname" | b"comment" | b"charset" | b"hdrcharset" => {
            }
            // What names or measures one entry cannot be true of all.
            _ if is_for_all && key.first().is_none_or(u8::is_ascii_lowercase) => {
                return Err(Problem::PaxKey(key_text(key)));
            }
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size = Some(number("size")?),
            _ if key.starts_with(b"GNU.sparse.") && is_for_all => return Err(Problem::Sparse),
            b"GNU.sparse.major" => self.sparse.major = Some(number("GNU.sparse.major")?),
            b"GNU.sparse.minor" => self.sparse.minor = Some(number("GNU.sparse.minor")?),
            b"GNU.sparse.name" => self.sparse.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" => self.sparse.size = Some(number("GNU.sparse.realsize")?),
            _ if key.starts_with(b"GNU.sparse.") => return Err(Problem::Sparse),
            _ if key.starts_with(pax::ATTRIBUTE) => {
                let name = pax::read_attribute(&key[pax::ATTRIBUTE.len()..]);
                self.note_attribute(name, value);
            }
            pax::ACCESS_LIST => self.note_list(acl::ACCESS, key, value),
            pax::DEFAULT_LIST => self.note_list(acl::DEFAULT, key, value),
            _ if key.starts_with(b"SCHILY.acl.") => self.note_unkept(key, value),
            // What vendors add begins with a capital letter; what we know of it changes nothing that we keep.
            _ if key.first().is_some_and(u8::is_ascii_uppercase) && !key.starts_with(b"GNU.") => {}
            _ => return Err(Problem::PaxKey(key_text(key))),
        }
        Ok(())
    }

    fn note_attribute(&mut self, name: Vec<u8>, value: &[u8]) {
        let is_list = [acl::ACCESS, acl::DEFAULT].contains(&&*name);
        let is_bad = is_list && Acl::from_bytes(value).is_none();
        if is_bad || name.contains(&0) {
            let key = [pax::ATTRIBUTE, &name].concat();
            return self.note_unkept(&key, value);
        }
        // Attributes that are no part of a tree stay too: whoever writes it counts what it does not keep.
        self.attributes.push(Attribute {
            name: name.into(),
            value: value.into(),
        });
    }

    /// Notes a list in words, whose names are those of this host.
    fn note_list(&mut self, name: &[u8], key: &[u8], value: &[u8]) {
        let text = std::str::from_utf8(value).ok();
        match text.and_then(|text| Acl::from_text(text, names::find)) {
            Some(list) => self.attributes.push(Attribute {
                name: name.into(),
                value: list.to_bytes().into(),
            }),
            None => self.note_unkept(key, value),
        }
    }

    /// Notes what cannot be kept under a name that no writer knows, so that it is counted.
    fn note_unkept(&mut self, key: &[u8], value: &[u8]) {
        self.attributes.push(Attribute {
            name: key.escape_ascii().to_string().into_bytes().into(),
            value: value.into(),
        });
    }
}

fn key_text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// Joins a header with those that came before it.
pub(super) fn entry(header: Header, pending: &mut PendingHeaders) -> Result<Extra, Problem> {
    let facts = match pending.pax.take() {
        Some(body) => Facts::read(&body, false)?,
        None => Facts::default(),
    };
    let metadata = metadata(&header, &facts, &pending.for_all)?;
    let size = facts.size.unwrap_or(header.size);
    if header.size != 0 && header.size != size {
        return Err(Problem::SizeDisagrees);
    }
    let sparse = facts.sparse.file()?;
    if sparse.is_some() && header.kind != b'0' {
        return Err(Problem::Sparse);
    }
    let (sparse_name, sparse) = sparse.unzip();
    let name = agreed(facts.path, pending.name.take(), "name")?;
    let name = sparse_name.or(name).unwrap_or(header.name);
    let target = agreed(facts.target, pending.target.take(), "target")?;
    let target = target.unwrap_or(header.target);
    // A label that GNU tar gives to a whole archive.
    if header.kind == b'V' {
        return match size {
            0 => Ok(Extra {
                entry: None,
                size,
                sparse,
            }),
            _ => Err(Problem::Content),
        };
    }
    let kind = kind(header.kind, &name, target, sparse.unwrap_or(size))?;
    let entry = Entry {
        path: path(&name, &kind)?,
        kind,
        metadata,
        attributes: facts.attributes,
    };
    if entry.path.is_root() && entry.kind != EntryKind::Directory {
        return Err(Problem::Misfit);
    }
    if !matches!(entry.kind, EntryKind::File { .. }) && (size != 0 || sparse.is_some()) {
        return Err(Problem::Content);
    }
    let entry = Some(entry);
    Ok(Extra {
        entry,
        size,
        sparse,
    })
}

/// What a pax header and a header of GNU tar say; two tars that believe another one of them would unpack different trees.
fn agreed(
    pax: Option<Vec<u8>>,
    gnu: Option<Vec<u8>>,
    what: &'static str,
) -> Result<Option<Vec<u8>>, Problem> {
    match (pax, gnu) {
        (Some(pax), Some(gnu)) if pax != gnu => Err(Problem::Disagree(what)),
        (pax, gnu) => Ok(pax.or(gnu)),
    }
}

fn metadata(header: &Header, facts: &Facts, all: &Facts) -> Result<Metadata, Problem> {
    let id = |stated: Option<u32>, all: Option<u32>, own: u64, field| match stated.or(all) {
        Some(id) => Ok(id),
        None => u32::try_from(own).map_err(|_| Problem::Number(field)),
    };
    Ok(Metadata {
        mode: header.mode,
        uid: id(facts.uid, all.uid, header.uid, "uid")?,
        gid: id(facts.gid, all.gid, header.gid, "gid")?,
        modified: facts.modified.or(all.modified).unwrap_or(FileTime {
            seconds: header.seconds,
            nanos: 0,
        }),
    })
}

fn kind(flag: u8, name: &[u8], target: Vec<u8>, size: u64) -> Result<EntryKind, Problem> {
    Ok(match flag {
        // Tars older than the type of directories marked them by their names.
        b'0' | 0 if name.ends_with(b"/") => EntryKind::Directory,
        b'0' | 0 | b'7' => EntryKind::File { size },
        b'1' => {
            let file = EntryKind::File { size: 0 };
            let to = path(&target, &file)?;
            if to.is_root() {
                return Err(Problem::Misfit);
            }
            EntryKind::HardLink { to }
        }
        b'2' if target.is_empty() || target.contains(&0) => return Err(Problem::Misfit),
        b'2' => EntryKind::Symlink {
            target: target.into(),
        },
        b'3' | b'4' => return Err(Problem::Device),
        b'5' => EntryKind::Directory,
        b'6' => EntryKind::Fifo,
        b'S' => return Err(Problem::Sparse),
        flag => return Err(Problem::Kind(flag)),
    })
}

/// A name without the `./` in front of it and, of a directory, the slashes behind it.
fn path(name: &[u8], kind: &EntryKind) -> Result<EntryPath, Problem> {
    if name.is_empty() {
        return Err(Problem::Misfit);
    }
    if name.starts_with(b"/") {
        return Err(Problem::Absolute);
    }
    let mut name = name;
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    if name == b"." {
        name = b"";
    }
    if *kind == EntryKind::Directory {
        while let Some(rest) = name.strip_suffix(b"/") {
            name = rest;
        }
    }
    Ok(EntryPath::parse(name)?)
}
