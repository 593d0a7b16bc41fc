//! POSIX access lists: as the kernel keeps them in an attribute, and as tars spell them.
//!
//! The kernel's form is a version (2, four bytes) and eight bytes for each entry: tag, permissions, id, all little-endian, sorted
//! by tag and id. The text is `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`; ids are numbers when we write, and may
//! be names, with the number behind them or not, when others did.
//!
//! Where a list is, the group bits of a file's mode are its *mask*, and what the owning group may is said by the list only.

use std::fmt::Write;

/// The attribute that is the list of a file or directory.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that is the list that what is made in a directory gets.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";
/// The attribute that says what a program may do that its user may not.
pub const CAPABILITY: &[u8] = b"security.capability";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries that name nobody.
const NOBODY: u32 = u32::MAX;

/// Whether a list or a capability: given after owner and permissions, which would undo it.
pub fn is_access(name: &[u8]) -> bool {
    [ACCESS, DEFAULT, CAPABILITY].contains(&name)
}

/// Whether an attribute of this name is part of a tree: the user's own, access lists and capabilities.
pub fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || is_access(name)
}

/// Whose id a name in a list stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedRule<'n> {
    /// A user.
    User(&'n str),
    /// A group.
    Group(&'n str),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct AclEntry {
    tag: u16,
    id: u32,
    permissions: u16,
}

/// An access list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// Reads the kernel's form; `None` for anything that the kernel would not write.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<4>()?;
        let (entries, left) = rest.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !left.is_empty() {
            return None;
        }
        let entry = |bytes: &[u8; 8]| AclEntry {
            tag: u16::from_le_bytes([bytes[0], bytes[1]]),
            permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        Self::sound(entries.iter().map(entry).collect())
    }

    /// The list, if each entry is one and they are in order.
    fn sound(entries: Vec<AclEntry>) -> Option<Self> {
        let is_one = |one: &AclEntry| {
            let names = matches!(one.tag, USER | GROUP);
            let is_known = names || [USER_OBJ, GROUP_OBJ, MASK, OTHER].contains(&one.tag);
            is_known && one.permissions <= 7 && names == (one.id != NOBODY)
        };
        let ascend = |pair: &[AclEntry]| (pair[0].tag, pair[0].id) < (pair[1].tag, pair[1].id);
        let has = |tag| entries.iter().any(|one| one.tag == tag);
        let is_whole = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(has);
        (is_whole && entries.iter().all(is_one) && entries.windows(2).all(ascend))
            .then_some(Self(entries))
    }

    /// The kernel's form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for one in &self.0 {
            bytes.extend_from_slice(&one.tag.to_le_bytes());
            bytes.extend_from_slice(&one.permissions.to_le_bytes());
            bytes.extend_from_slice(&one.id.to_le_bytes());
        }
        bytes
    }

    /// The list in words, ids as numbers.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for one in &self.0 {
            if !text.is_empty() {
                text.push(',');
            }
            let tag = match one.tag {
                USER_OBJ | USER => "user",
                GROUP_OBJ | GROUP => "group",
                MASK => "mask",
                _ => "other",
            };
            let _ = write!(text, "{tag}:");
            if one.id != NOBODY {
                let _ = write!(text, "{}", one.id);
            }
            text.push(':');
            for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
                text.push(if one.permissions & bit == 0 {
                    '-'
                } else {
                    letter
                });
            }
        }
        text
    }

    /// Reads a list in words; `None` if it is none, or names somebody whom `find` does not know.
    pub fn from_text(text: &str, find: impl Fn(NamedRule<'_>) -> Option<u32>) -> Option<Self> {
        let lines = text.split([',', '\n']).map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut entries = lines
            .map(|line| entry(line, &find))
            .collect::<Option<Vec<_>>>()?;
        entries.sort_unstable();
        Self::sound(entries)
    }

    /// What the owning group may: what its own entry says, within the mask.
    pub fn group_permissions(&self) -> u32 {
        let of = |tag| self.0.iter().find(|one| one.tag == tag);
        let own = of(GROUP_OBJ).map_or(0, |one| one.permissions);
        let mask = of(MASK).map_or(7, |one| one.permissions);
        u32::from(own & mask)
    }
}

fn entry(line: &str, find: &impl Fn(NamedRule<'_>) -> Option<u32>) -> Option<AclEntry> {
    let mut fields = line.strip_prefix("default:").unwrap_or(line).split(':');
    let (tag, who) = (fields.next()?, fields.next()?);
    let (permissions, number) = (fields.next(), fields.next());
    if fields.next().is_some() {
        return None;
    }
    // Solaris writes `mask:r--`.
    let (who, permissions) = match permissions {
        Some(permissions) => (who, permissions),
        None => ("", who),
    };
    let tag = match (tag, who.is_empty()) {
        ("user" | "u", true) => USER_OBJ,
        ("user" | "u", false) => USER,
        ("group" | "g", true) => GROUP_OBJ,
        ("group" | "g", false) => GROUP,
        ("mask" | "m", true) => MASK,
        ("other" | "o", true) => OTHER,
        _ => return None,
    };
    let found = || match tag {
        USER => find(NamedRule::User(who)),
        _ => find(NamedRule::Group(who)),
    };
    let id = match tag {
        USER | GROUP => match number.or(Some(who))?.parse() {
            Ok(id) => id,
            Err(_) => found()?,
        },
        _ => NOBODY,
    };
    let mut bits = 0;
    for letter in permissions.chars() {
        bits |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    Some(AclEntry {
        tag,
        id,
        permissions: bits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: NamedRule<'_>) -> Option<u32> {
        None
    }

    const TEXT: &str = "user::rw-,user:1000:r--,group::---,group:7:rwx,mask::r--,other::---";

    #[test]
    fn a_list_comes_back_from_both_forms() {
        let acl = Acl::from_text(TEXT, nobody).unwrap();

        assert_eq!(acl.to_text(), TEXT);
        assert_eq!(Acl::from_bytes(&acl.to_bytes()), Some(acl.clone()));
        assert_eq!(acl.to_bytes().len(), 4 + 6 * 8);
    }

    #[test]
    fn what_the_group_may_is_said_by_its_own_entry_within_the_mask() {
        let group = |text| Acl::from_text(text, nobody).unwrap().group_permissions();

        assert_eq!(group(TEXT), 0);
        assert_eq!(group("user::rw-,group::rw-,mask::r--,other::---"), 4);
        assert_eq!(group("user::rw-,group::r-x,other::---"), 5);
    }

    #[test]
    fn what_other_tars_write_is_understood() {
        let find = |named: NamedRule<'_>| (named == NamedRule::User("lisa")).then_some(1000);
        let acl = Acl::from_text(TEXT, nobody);

        let gnu = "user::rw-\nuser:lisa:r--\ngroup::---\ngroup:7:rwx\nmask::r--\nother::---\n";
        let libarchive =
            "user::rw-,group::---,other::---,user:bob:r--:1000,group:staff:rwx:7,mask::r--";

        assert_eq!(Acl::from_text(gnu, find), acl);
        assert_eq!(Acl::from_text(libarchive, nobody), acl);
        assert_eq!(Acl::from_text(gnu, nobody), None);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "",
            "user::rw-",
            "user::rwz,group::r--,other::---",
            "a:b:c:d:e",
        ] {
            assert_eq!(Acl::from_text(text, nobody), None, "{text}");
        }
        let good = Acl::from_text(TEXT, nobody).unwrap().to_bytes();
        for length in 0..good.len() {
            assert_eq!(Acl::from_bytes(&good[..length]), None, "{length}");
        }
        let mut twice = good.clone();
        twice.extend_from_slice(&good[4..12]);
        assert_eq!(Acl::from_bytes(&twice), None);
    }
}
