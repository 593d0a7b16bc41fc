//! What is known of an entry besides its content, and how it is given to another one.

use rustix::fs::{self, AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::{Errno, Result};
use stasis_model::tree::acl::{self, Acl};
use stasis_model::tree::{Attribute, FileTime, Metadata};
use std::ffi::CStr;
use std::os::fd::AsFd;

pub use stasis_sys::stat::{Seen, look, of};

/// The bits of a mode that are permissions: the rest says what the entry is.
const PERMISSIONS: u32 = 0o7777;
/// setuid and setgid: only root gives them away.
const PRIVILEGES: u32 = 0o6000;
/// More bytes than this the kernel puts neither into an attribute nor into the list of their names.
const LARGEST: usize = 64 << 10;

/// The attributes of one thing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// The user's, access lists and capabilities, sorted by name: what is part of a tree.
    pub user: Vec<Attribute>,
    /// How many others there are, such as security labels.
    pub others: u64,
}

/// Reads the extended attributes of an open file or directory; a filesystem without any has none.
pub fn attributes(fd: impl AsFd) -> Result<Attributes> {
    let names = match grown(|buffer| fs::flistxattr(&fd, buffer)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Attributes::default()),
        Err(error) => return Err(error),
    };
    let mut attributes = Attributes::default();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        if !acl::is_kept(name) {
            attributes.others += 1;
            continue;
        }
        match grown(|buffer| fs::fgetxattr(&fd, name, buffer)) {
            Ok(value) => attributes.user.push(Attribute {
                name: name.into(),
                value: value.into(),
            }),
            Err(Errno::NODATA) => {} // taken away since we were told of it
            Err(error) => return Err(error),
        }
    }
    attributes.user.sort();
    Ok(attributes)
}

/// Calls `read` with a buffer that is large enough.
fn grown(mut read: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut small = [0; 256];
    match read(&mut small) {
        Ok(length) => return Ok(small[..length].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; LARGEST];
    let length = read(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Gives attributes of the user to an open file or directory; access lists and capabilities come last (`give_access`).
pub fn give_attributes(fd: impl AsFd, attributes: &[Attribute]) -> Result<()> {
    for Attribute { name, value } in attributes.iter().filter(|one| !acl::is_access(&one.name)) {
        fs::fsetxattr(&fd, &**name, value, XattrFlags::empty())?;
    }
    Ok(())
}

/// What was not given because we may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Withheld {
    /// Owner or group is another one.
    pub owner: bool,
    /// setuid or setgid were dropped.
    pub privileges: bool,
}

/// What this process may give away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Everything: we are root.
    All,
    /// Only what is ours.
    Own,
}

impl Rights {
    /// The rights of this process.
    pub fn of_this_process() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::All
        } else {
            Self::Own
        }
    }
}

/// Owner and permissions that an entry has now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Has {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// Gives owner, permissions and time to an open file or directory, in the order in which none undoes another.
pub fn give(fd: impl AsFd, wanted: &Metadata, rights: Rights) -> Result<Withheld> {
    let Metadata { mode, uid, gid, .. } = of(&fd)?.metadata();
    give_to(fd, Has { uid, gid, mode }, wanted, rights)
}

/// The same to something of which is known what it has: what it has already costs nothing.
pub(crate) fn give_to(
    fd: impl AsFd,
    has: Has,
    wanted: &Metadata,
    rights: Rights,
) -> Result<Withheld> {
    let missing = Missing::of(has, wanted, rights);
    if missing.is_owner {
        fs::fchown(&fd, Some(uid(wanted.uid)), Some(gid(wanted.gid)))?;
    }
    if let Some(mode) = missing.mode {
        fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    }
    fs::futimens(&fd, &times(wanted.modified))?;
    Ok(missing.withheld)
}

/// What is withheld from something that has all but its time; `None` when it lacks more.
pub(crate) fn lacks_only_time(has: Has, wanted: &Metadata, rights: Rights) -> Option<Withheld> {
    let missing = Missing::of(has, wanted, rights);
    (!missing.is_owner && missing.mode.is_none()).then_some(missing.withheld)
}

/// What an entry lacks, but for its time.
struct Missing {
    is_owner: bool,
    mode: Option<u32>,
    withheld: Withheld,
}

impl Missing {
    fn of(has: Has, wanted: &Metadata, rights: Rights) -> Self {
        let other_owner = (has.uid, has.gid) != (wanted.uid, wanted.gid);
        let mut withheld = Withheld::default();
        let mut mode = wanted.mode & PERMISSIONS;
        if rights == Rights::Own {
            withheld.owner = other_owner;
            withheld.privileges = mode & PRIVILEGES != 0;
            mode &= !PRIVILEGES;
        }
        let is_owner = other_owner && rights == Rights::All;
        Self {
            is_owner,
            // A change of owner takes setuid and setgid away.
            mode: (is_owner || has.mode != mode).then_some(mode),
            withheld,
        }
    }
}

/// Makes the attributes of the user exactly these.
pub(crate) fn replace_attributes(fd: impl AsFd, wanted: &[Attribute]) -> Result<()> {
    let has = attributes(&fd)?.user;
    for Attribute { name, .. } in &has {
        if !wanted.iter().any(|one| one.name == *name) {
            match fs::fremovexattr(&fd, &**name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let missing = wanted.iter().filter(|one| !has.contains(one));
    for Attribute { name, value } in missing {
        match fs::fsetxattr(&fd, &**name, value, XattrFlags::empty()) {
            // Capabilities are root's to give, and not every filesystem keeps lists.
            Err(error) if acl::is_access(name) && is_refusal(error) => {}
            given => given?,
        }
    }
    Ok(())
}

/// Whether the system says that it cannot or may not keep an attribute, and not that something is broken.
fn is_refusal(error: Errno) -> bool {
    let filesystem = [
        Errno::OPNOTSUPP,
        Errno::NOSYS,
        Errno::TOOBIG,
        Errno::RANGE,
        Errno::NOSPC,
    ];
    filesystem.contains(&error) || [Errno::PERM, Errno::ACCESS, Errno::INVAL].contains(&error)
}

/// What an entry gets before its access list: where a list is, the group bits of a mode are the list's mask, and the owning
/// group may only what its own entry says. Were the list not kept, nobody would get more than that.
pub(crate) fn before_access(metadata: &Metadata, attributes: &[Attribute]) -> Metadata {
    let list = attributes.iter().find(|one| *one.name == *acl::ACCESS);
    let mode = match list {
        None => return *metadata,
        Some(list) => match Acl::from_bytes(&list.value) {
            Some(list) => metadata.mode & !0o070 | list.group_permissions() << 3,
            None => metadata.mode & !0o070,
        },
    };
    Metadata { mode, ..*metadata }
}

/// Gives access lists and capabilities, when owner and permissions are given; returns how many were not kept. Capabilities are
/// given away like ownership: only by root, and only with all other rights.
pub(crate) fn give_access(fd: impl AsFd, attributes: &[Attribute], rights: Rights) -> Result<u64> {
    let mut refused = 0;
    for Attribute { name, value } in attributes.iter().filter(|one| acl::is_access(&one.name)) {
        if **name == *acl::CAPABILITY && rights == Rights::Own {
            refused += 1;
            continue;
        }
        match fs::fsetxattr(&fd, &**name, value, XattrFlags::empty()) {
            Err(error) if is_refusal(error) => refused += 1,
            given => given?,
        }
    }
    Ok(refused)
}

/// Gives attributes of the user; returns how many the filesystem did not take, or are no part of a tree. Access lists and
/// capabilities come last ([`give_access`]).
pub(crate) fn give_user_attributes(fd: impl AsFd, attributes: &[Attribute]) -> Result<u64> {
    let mut refused = 0;
    for Attribute { name, value } in attributes {
        if acl::is_access(name) {
            continue;
        }
        if !acl::is_kept(name) {
            refused += 1;
            continue;
        }
        match fs::fsetxattr(&fd, &**name, value, XattrFlags::empty()) {
            // None at all here, or none so large: what fits on one filesystem need not fit on another.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::TOOBIG | Errno::RANGE | Errno::NOSPC) => {
                refused += 1;
            }
            given => given?,
        }
    }
    Ok(refused)
}

/// Gives owner and time to the symbolic link `name` of an open directory; links have no permissions of their own.
pub fn give_link(
    directory: impl AsFd,
    name: &CStr,
    wanted: &Metadata,
    rights: Rights,
) -> Result<Withheld> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let has = Seen::from(&fs::statat(&directory, name, flags)?);
    let other_owner = (has.uid, has.gid) != (wanted.uid, wanted.gid);
    if other_owner && rights == Rights::All {
        let (uid, gid) = (uid(wanted.uid), gid(wanted.gid));
        fs::chownat(&directory, name, Some(uid), Some(gid), flags)?;
    }
    fs::utimensat(&directory, name, &times(wanted.modified), flags)?;
    Ok(Withheld {
        owner: other_owner && rights == Rights::Own,
        privileges: false,
    })
}

/// Gives only a time to the entry `name` of an open directory, whatever it is.
pub(crate) fn give_time_at(directory: impl AsFd, name: &CStr, modified: FileTime) -> Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    fs::utimensat(directory, name, &times(modified), flags)
}

/// Gives only a time.
pub(crate) fn give_time(fd: impl AsFd, modified: FileTime) -> Result<()> {
    fs::futimens(fd, &times(modified))
}

fn uid(raw: u32) -> Uid {
    Uid::from_raw(raw)
}

fn gid(raw: u32) -> Gid {
    Gid::from_raw(raw)
}

pub(crate) fn times(modified: FileTime) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanos.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_list_is_not_kept_the_group_gets_what_its_own_entry_says() {
        let list = "user::rw-,user:7:rw-,group::r--,mask::rw-,other::---";
        let list = Attribute {
            name: acl::ACCESS.into(),
            value: Acl::from_text(list, |_| None).unwrap().to_bytes().into(),
        };
        let bad = Attribute {
            value: Box::default(),
            ..list.clone()
        };
        let masked = Metadata {
            mode: 0o4660,
            ..Metadata::default()
        };

        let mode = |attributes: &[Attribute]| before_access(&masked, attributes).mode;

        assert_eq!(mode(&[]), 0o4660);
        assert_eq!(mode(&[list]), 0o4640);
        assert_eq!(mode(&[bad]), 0o4600);
    }
}
