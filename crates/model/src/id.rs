//! Identities: parsed once at the edge, and from then on impossible to mistake for one another.
//!
//! Names that become part of an object key follow one allow-list, `[A-Za-z0-9][A-Za-z0-9._-]{0,62}` without `..`.
//! What does not match is refused and never "cleaned up": two names must never meet in one key.

mod profile_ref;
mod session_ref;

pub use profile_ref::{PROFILE_PREFIX, ProfileRef};
pub use session_ref::{SESSION_PREFIX, SessionRef};

use crate::invalid::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Escapes and shortens foreign text so that it can be shown on a terminal.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

const NAME_LIMIT: usize = 63;
const TEXT_LIMIT: usize = 256;

fn too_long(what: &str, found: usize, limit: usize) -> Invalid {
    Invalid::new(format!(
        "the {what} is {found} characters long; at most {limit} are allowed"
    ))
}

fn forbidden(what: &str, position: usize, c: char) -> Invalid {
    let offending = c.escape_debug();
    Invalid::new(format!(
        "the {what} contains `{offending}` at position {position}; allowed are A-Z a-z 0-9 . _ - and a letter or digit first"
    ))
}

fn not_a_major(found: &str) -> Invalid {
    Invalid::new(format!(
        "the chrome major `{found}` is not a whole number between 1 and 9999"
    ))
}

fn check_name(what: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(format!("the {what} is empty")));
    }
    let allowed = |i: usize, c: char| c.is_ascii_alphanumeric() || i > 0 && "._-".contains(c);
    if let Some((position, c)) = text.chars().enumerate().find(|(i, c)| !allowed(*i, *c)) {
        return Err(forbidden(what, position, c));
    }
    if text.len() > NAME_LIMIT {
        return Err(too_long(what, text.len(), NAME_LIMIT));
    }
    match text.find("..") {
        Some(position) => Err(Invalid::new(format!(
            "the {what} contains `..` at position {position}"
        ))),
        None => Ok(()),
    }
}

/// Characters that move a cursor, turn text around or cannot be seen.
fn is_treacherous(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || invisible
}

fn check_text(what: &'static str, text: &str) -> Result<(), Invalid> {
    let found = text.chars().count();
    if found > TEXT_LIMIT {
        return Err(too_long(what, found, TEXT_LIMIT));
    }
    match text.chars().enumerate().find(|(_, c)| is_treacherous(*c)) {
        Some((position, c)) => Err(forbidden(what, position, c)),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text it was parsed from, unchanged.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                $check($what, text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                $check($what, &text)?;
                Ok(Self(text))
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

name! {
    /// Whose data it is. Nothing is ever shared or deduplicated across tenants.
    TenantId, "tenant", check_name
}
impl TenantId {
    /// What the tenant of whoever names none is called.
    pub const DEFAULT: &str = "default";

    /// Whether it is the one of whoever names none.
    pub fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }
}
impl Default for TenantId {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}
name! {
    /// One browser identity of a tenant.
    ProfileId, "profile", check_name
}
name! {
    /// One agent session of a tenant.
    SessionId, "session", check_name
}
name! {
    /// One container of one engine, whose snapshots a tenant has.
    ContainerSubject, "container", check_name
}
name! {
    /// What runs one or more sessions of a tenant.
    SandboxName, "sandbox", check_name
}
name! {
    /// One application directory with its databases.
    ProjectId, "project", check_name
}
name! {
    /// One part of a project's state that is held still in its own way.
    VolumeName, "volume", check_name
}
name! {
    /// One long-running program of a project.
    ServiceName, "service", check_name
}
name! {
    /// One chain of snapshots in a chunked root: what is saved again and again under one name.
    SubjectName, "name", check_name
}
name! {
    /// One snapshot in a chunked root.
    SnapshotId, "snapshot", check_name
}
impl SnapshotId {
    /// An id that tells when it was made: a UUID of version 8 that begins with random bytes and ends with the milliseconds.
    ///
    /// The random part comes first, so that a few characters of the beginning name one snapshot among thousands.
    pub fn dated(at: Timestamp, random: [u8; 16]) -> Self {
        let mut bytes = random;
        bytes[10..].copy_from_slice(&at.millis().to_be_bytes()[2..]);
        Self(
            uuid::Builder::from_custom_bytes(bytes)
                .into_uuid()
                .to_string(),
        )
    }

    /// When it was made, if it tells.
    pub fn moment(&self) -> Option<Timestamp> {
        let uuid = Uuid::parse_str(&self.0).ok()?;
        let is_dated = uuid.get_version_num() == 8 && self.0.len() == 36;
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&uuid.as_bytes()[10..]);
        is_dated.then(|| Timestamp::from_millis(u64::from_be_bytes(millis)))
    }
}

name! {
    /// Free text that names a run or a host: at most 256 characters, none of them a control or an invisible character.
    Label, "label", check_text
}

impl Default for Label {
    fn default() -> Self {
        Self::nobody()
    }
}

impl Label {
    /// The empty label: no user in particular.
    pub fn nobody() -> Self {
        Self(String::new())
    }
}

/// The Chrome major version that wrote a profile: part of the lineage, because majors rewrite their databases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "u32", into = "u32")]
pub struct ChromeMajor(u32);

impl fmt::Display for ChromeMajor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl TryFrom<u32> for ChromeMajor {
    type Error = Invalid;
    fn try_from(number: u32) -> Result<Self, Invalid> {
        match number {
            1..=9999 => Ok(Self(number)),
            _ => Err(not_a_major(&number.to_string())),
        }
    }
}

impl From<ChromeMajor> for u32 {
    fn from(major: ChromeMajor) -> Self {
        major.0
    }
}

impl FromStr for ChromeMajor {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || not_a_major(&shown(text));
        let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        let number: u32 = text.parse().ok().ok_or_else(bad)?;
        if plain {
            Self::try_from(number)
        } else {
            Err(bad())
        }
    }
}

/// One chain of snapshots: `<tenant>/<profile>@<chrome-major>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Lineage {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which browser identity.
    pub profile: ProfileId,
    /// Which Chrome wrote it.
    pub major: ChromeMajor,
}

impl fmt::Display for Lineage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}@{}", self.tenant, self.profile, self.major)
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Lineage({self})")
    }
}

impl FromStr for Lineage {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || {
            let found = shown(text);
            Invalid::new(format!(
                "`{found}` is not of the form <tenant>/<profile>@<chrome-major>"
            ))
        };
        let (tenant, rest) = text.split_once('/').ok_or_else(bad)?;
        let (profile, major) = rest.rsplit_once('@').ok_or_else(bad)?;
        Ok(Self {
            tenant: tenant.parse()?,
            profile: profile.parse()?,
            major: major.parse()?,
        })
    }
}

impl TryFrom<String> for Lineage {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<Lineage> for String {
    fn from(lineage: Lineage) -> Self {
        lineage.to_string()
    }
}

impl Lineage {
    /// The same profile, whatever the major.
    pub fn any_major(&self) -> ProfileRef {
        ProfileRef {
            tenant: self.tenant.clone(),
            profile: self.profile.clone(),
            major: None,
        }
    }
}

/// The nonce of one operation: found again in a document, it proves that the operation was applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(transparent)]
pub struct OpId(Uuid);

impl OpId {
    /// Makes an operation id from 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "OpId({})", &self.0.simple().to_string()[..8])
    }
}

impl FromStr for OpId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || {
            let found = shown(text);
            Invalid::new(format!("`{found}` is not an operation id (a UUID)"))
        };
        Uuid::parse_str(text).ok().map(Self).ok_or_else(bad)
    }
}

/// One life of a subject, from when it is made until it is deleted: named by the operation that began it, so that no two are alike.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Incarnation(OpId);

impl Incarnation {
    /// The life that an operation begins.
    pub fn new(begun_by: OpId) -> Self {
        Self(begun_by)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The one after this.
            #[must_use = "counters are values; this one is not changed in place"]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }
    };
}

counter! {
    /// Counts the writes of one document, so that its bytes never repeat.
    Generation
}
impl Generation {
    /// Where a document goes on that is made anew `now`: so far away that no generation of the one that is lost is counted twice, not
    /// even if that was made anew before, and nobody takes a write that was applied for one that never happened.
    #[must_use = "counters are values; this one is not changed in place"]
    pub fn far_ahead(now: Timestamp) -> Self {
        Self(now.millis().saturating_mul(1 << 12))
    }
}

counter! {
    /// Counts the owners of one lineage; never decreases.
    Epoch
}

#[cfg(test)]
mod tests;
