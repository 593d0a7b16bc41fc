//! Where everything lies: the only place where object keys are spelled.
//!
//! *Always true:* a key is made from parsed identities only, so no text from outside reaches a path; and no key is a
//! directory of another, so that every store can also be a plain directory.

mod chunk_root;
mod snapshot;

pub use chunk_root::ChunkRoot;
pub use snapshot::{
    SnapshotKeys, SnapshotObject, Spelling, StoredForm, lineage_of, snapshot_object,
};

use stasis_model::digest::{ArchiveDigest, FileDigest, StoreDigest};
use stasis_model::format::job::{JobLane, JobName};
use stasis_model::format::key::{KeyOwner, PoolId};
use stasis_model::format::request::RequestId;
use stasis_model::format::token::TokenId;
use stasis_model::id::{Lineage, OpId, ProfileId, SessionRef, TenantId};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::time::Timestamp;
use std::borrow::Borrow;
use std::fmt;

/// A subject whose snapshots are restored to see whether they come back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProofSubject {
    /// A lineage of a profile.
    Profile(Lineage),
    /// A subject in chunks.
    Chunked(ChunkRoot),
}

/// The name of one object, relative to the store's root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// The key as the store spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Accepts a key that a store listed; names that could not be ours are `None`.
    pub fn from_listing(text: &str) -> Option<Self> {
        let sound =
            |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        text.split('/').all(sound).then(|| Self(text.to_owned()))
    }

    /// The part after the last slash.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A sorted map of keys can be entered at any text, such as a prefix.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The beginning that a group of keys shares: empty, or ending in a slash, unless it is the beginning of names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prefix(String);

impl Prefix {
    /// The prefix as the store spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Those whose rest begins so, be it in the middle of a name.
    #[must_use = "the prefix itself is not changed"]
    pub(crate) fn starting(&self, beginning: &str) -> Self {
        Self(format!("{}{beginning}", self.0))
    }

    /// What comes after everything in the directory that is called so and before what lies beside it, in whichever order a store
    /// lists. Nothing of ours is called like it.
    pub(crate) fn end_of(&self, directory: &str) -> Key {
        Key(format!("{}{directory}/~", self.0))
    }

    /// Everything in the store.
    pub fn everything() -> Self {
        Self(String::new())
    }

    /// Everything that belongs to one lineage.
    pub fn lineage(lineage: &Lineage) -> Self {
        Self(lineage_root(lineage))
    }

    /// All lineages of all tenants.
    pub fn lineages() -> Self {
        Self("snapshots/".to_owned())
    }

    /// All lineages of one tenant.
    pub fn lineages_of(tenant: &TenantId) -> Self {
        Self(format!("snapshots/{tenant}/"))
    }

    /// All lineages of one profile.
    pub fn profile(tenant: &TenantId, profile: &ProfileId) -> Self {
        Self(format!("snapshots/{tenant}/{profile}/"))
    }

    /// All events of one tenant.
    pub fn events_of(tenant: &TenantId) -> Self {
        Self(format!("events/{tenant}/"))
    }

    /// All events of all tenants.
    pub fn events() -> Self {
        Self("events/".to_owned())
    }

    /// The requests of one tenant to the service.
    pub fn requests_of(tenant: &TenantId) -> Self {
        Self(format!("requests/{tenant}/"))
    }

    /// The tokens of the service.
    pub fn tokens() -> Self {
        Self("auth/tokens/".to_owned())
    }

    /// The locks and records of jobs.
    pub(crate) fn jobs() -> Self {
        Self("jobs/".to_owned())
    }

    /// What is known of snapshots that were really restored.
    pub(crate) fn proofs() -> Self {
        Self("proofs/".to_owned())
    }

    /// One probe's scratch space.
    pub fn probe_scratch(probe: OpId) -> Self {
        Self(format!("meta/probe-{probe}/"))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn lineage_root(lineage: &Lineage) -> String {
    format!(
        "snapshots/{}/{}/{}/",
        lineage.tenant, lineage.profile, lineage.major
    )
}

/// A lineage's pointer.
pub fn pointer(lineage: &Lineage) -> Key {
    Key(lineage_root(lineage) + "latest.json")
}

/// The wrapped data key of a lineage or a pool.
pub fn data_key(owner: &KeyOwner) -> Key {
    Key(match owner {
        KeyOwner::Lineage(lineage) => lineage_root(lineage) + "key.json",
        KeyOwner::Pool(PoolId::Tenant(tenant)) => format!("pools/{tenant}/key.json"),
        KeyOwner::Pool(PoolId::State) => "key.json".to_owned(),
    })
}

/// Whose wrapped data key this is, if it is one.
pub fn data_key_owner(key: &Key) -> Option<KeyOwner> {
    let text = key.as_str();
    if text == "key.json" {
        return Some(PoolId::State.into());
    }
    if let Some(lineage) = owner(key, "/key.json") {
        return Some(lineage.into());
    }
    let pool = text.strip_suffix("/key.json")?.to_owned();
    PoolId::try_from(pool)
        .ok()
        .filter(|pool| *pool != PoolId::State)
        .map(KeyOwner::from)
}

/// A lineage's lock.
pub fn lock(lineage: &Lineage) -> Key {
    Key(lineage_root(lineage) + "lock.json")
}

/// The lineage whose lock this is, if it is one.
pub fn lock_owner(key: &Key) -> Option<Lineage> {
    owner(key, "/lock.json")
}

/// The lineage whose pointer this is, if it is one.
pub fn pointer_owner(key: &Key) -> Option<Lineage> {
    owner(key, "/latest.json")
}

fn owner(key: &Key, document: &str) -> Option<Lineage> {
    let inner = key.as_str().strip_prefix("snapshots/")?;
    let inner = inner.strip_suffix(document)?;
    let (subject, major) = inner.rsplit_once('/')?;
    format!("{subject}@{major}").parse().ok()
}

/// Whether `text` is where this lineage may keep this archive: under its short name, or after a clash its full one.
pub fn is_archive(lineage: &Lineage, archive: ArchiveDigest, text: &str) -> bool {
    is_snapshot_object(lineage, archive, text, &[".tar.zst", ".tar.zst.enc"])
}

/// Whether `text` is where this lineage may keep this archive's manifest.
pub fn is_manifest(lineage: &Lineage, archive: ArchiveDigest, text: &str) -> bool {
    is_snapshot_object(lineage, archive, text, &[".manifest.json"])
}

fn is_snapshot_object(
    lineage: &Lineage,
    archive: ArchiveDigest,
    text: &str,
    ends: &[&str],
) -> bool {
    let root = lineage_root(lineage);
    let names = [archive.prefix(), archive.to_string()];
    let spelled = |name: &String, end: &&str| text == format!("{root}profile-{name}{end}");
    names
        .iter()
        .any(|name| ends.iter().any(|end| spelled(name, end)))
}

/// A snapshot's archive, under its short name.
pub fn archive(lineage: &Lineage, archive: ArchiveDigest) -> Key {
    Key(format!(
        "{}profile-{}.tar.zst",
        lineage_root(lineage),
        archive.prefix()
    ))
}

/// A snapshot's manifest, under its short name.
pub fn manifest(lineage: &Lineage, archive: ArchiveDigest) -> Key {
    Key(format!(
        "{}profile-{}.manifest.json",
        lineage_root(lineage),
        archive.prefix()
    ))
}

/// Whether keys of a store may begin so: the name of a file or directory at its root.
pub fn is_part(name: &str) -> bool {
    const PARTS: [&str; 22] = [
        "auth",
        "chunks",
        "condemned",
        "damaged",
        "events",
        "gc.json",
        "index.json",
        "jobs",
        "key.json",
        "lock.json",
        "meta",
        "operations",
        "pools",
        "proofs",
        "quarantine",
        "references",
        "repo.json",
        "requests",
        "session.json",
        "snapshots",
        "subjects",
        "tenants",
    ];
    PARTS.contains(&name)
}

/// Whether this is a chunk, of whichever pool.
pub fn is_chunk(key: &Key) -> bool {
    key.file_name().parse::<ChunkName>().is_ok()
}

/// What an object is to somebody who copies a store: what leads to others is copied after them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Bytes whose name says what they are, or a record that is written once.
    Content,
    /// A document that leads to contents, written once.
    Manifest,
    /// A document that is rewritten, and leads to everything else.
    Pointer,
    /// Of this store only: who holds a lease, what a probe found.
    Private,
}

/// What is of this store only.
const PRIVATE: [&str; 5] = ["auth/", "jobs/", "meta/", "proofs/", "requests/"];

/// What an object is to somebody who copies a store.
pub fn role(key: &Key) -> Role {
    let path = key.as_str();
    let is_manifest = path.ends_with(".manifest.json")
        || path
            .rsplit_once('/')
            .is_some_and(|(above, _)| above == "snapshots" || above.ends_with("/snapshots"))
        || path.ends_with("/metadata.json");
    match key.file_name() {
        "lock.json" => Role::Private,
        _ if PRIVATE.iter().any(|part| path.starts_with(part)) => Role::Private,
        _ if path.starts_with("damaged/") => Role::Content,
        "latest.json" | "key.json" | "index.json" | "gc.json" | "policy.json" | "repo.json"
        | "session.json" => Role::Pointer,
        _ if is_manifest => Role::Manifest,
        _ => Role::Content,
    }
}

/// What an event is about, in its name: the first digits of a digest of what that is called, so that whoever looks for the events of one
/// subject need not read those of all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventTag(String);

impl EventTag {
    const DIGITS: usize = 16;

    /// That of a subject as it is typed; of events about none, the empty text.
    pub fn of(subject: &str) -> Self {
        let mut digits = FileDigest::of(subject.as_bytes()).to_string();
        digits.truncate(Self::DIGITS);
        Self(digits)
    }
}

/// An event.
pub fn event(tenant: &TenantId, at: Timestamp, id: OpId, tag: &EventTag) -> Key {
    Key(format!("events/{tenant}/{}/{id}.{}.json", at.day(), tag.0))
}

/// What an event is about, from its key; nothing where that does not say it, as those of older builds do not.
pub fn event_tag(key: &Key) -> Option<EventTag> {
    let (_, tag) = key.file_name().strip_suffix(".json")?.rsplit_once('.')?;
    let is_tag = tag.len() == EventTag::DIGITS && tag.bytes().all(|one| one.is_ascii_hexdigit());
    is_tag.then(|| EventTag(tag.to_owned()))
}

/// What lies before all events of a tenant from that day on, and after those of the days before.
pub fn events_from(tenant: &TenantId, at: Timestamp) -> Key {
    Key(format!("events/{tenant}/{}", at.day()))
}

/// What lies after all events of a tenant, and before those of tenants that come later.
pub fn events_end(tenant: &TenantId) -> Key {
    // The character after the slash.
    Key(format!("events/{tenant}0"))
}

/// The day of an event, from its key.
pub fn event_day(key: &Key) -> Option<&str> {
    key.as_str().split('/').nth(2)
}

/// The tenant of an event, from its key.
pub fn event_tenant(key: &Key) -> Option<TenantId> {
    key.as_str().split('/').nth(1)?.parse().ok()
}

/// A tenant's policy.
pub fn policy(tenant: &TenantId) -> Key {
    Key(format!("tenants/{tenant}/policy.json"))
}

/// A token of the service.
pub fn token(id: TokenId) -> Key {
    Key(format!("auth/tokens/{id}.json"))
}

/// Which token this is, if it is one.
pub fn token_id(key: &Key) -> Option<TokenId> {
    let name = key.as_str().strip_prefix("auth/tokens/")?;
    name.strip_suffix(".json")?.parse().ok()
}

/// A request to the service.
pub fn request(tenant: &TenantId, id: RequestId) -> Key {
    Key(format!("requests/{tenant}/{id}.json"))
}

/// Which request this is, if it is one.
pub fn request_id(key: &Key) -> Option<RequestId> {
    let mut parts = key.as_str().strip_prefix("requests/")?.split('/');
    let name = parts.nth(1)?.strip_suffix(".json")?;
    let is_last = parts.next().is_none();
    name.parse().ok().filter(|_| is_last)
}

/// The record of an operation whose outcome was unknown.
pub fn operation(id: OpId) -> Key {
    Key(format!("operations/{id}.json"))
}

/// Where a damaged document is kept that an operation made anew.
pub fn set_aside(operation: OpId, document: &Key) -> Key {
    Key(format!("damaged/{operation}/{document}"))
}

/// The lock of a job that runs on one host at a time.
pub(crate) fn job_lock(lane: JobLane) -> Key {
    Key(job_root(lane) + "lock.json")
}

/// What the last run of a job did.
pub(crate) fn job_record(lane: JobLane) -> Key {
    Key(job_root(lane) + "last.json")
}

fn job_root(JobLane { name, place }: JobLane) -> String {
    let name = name.key_part();
    match place {
        None => format!("jobs/{name}/"),
        Some(place) => format!("jobs/{name}/at/{place}/"),
    }
}

/// The job whose lock or record this is.
pub(crate) fn job_lane(key: &Key) -> Option<JobLane> {
    let parts: Vec<&str> = key.as_str().strip_prefix("jobs/")?.split('/').collect();
    let (name, place) = match parts[..] {
        [name, "lock.json" | "last.json"] => (name, None),
        [name, "at", place, "lock.json" | "last.json"] => (name, Some(place.parse().ok()?)),
        _ => return None,
    };
    let name = JobName::from_key_part(name)?;
    Some(JobLane { name, place })
}

/// Which snapshots of a subject were really restored: `subject` is where it lies.
pub(crate) fn proofs(subject: &ProofSubject) -> Key {
    let place = match subject {
        ProofSubject::Profile(lineage) => lineage_root(lineage),
        ProofSubject::Chunked(root) => root.name().to_owned(),
    };
    match place.trim_end_matches('/') {
        "" => Key("proofs/state.json".to_owned()),
        place => Key(format!("proofs/{place}.json")),
    }
}

/// Which sessions run in a sandbox, or are about to.
pub(crate) fn sandbox_members(sandbox: StoreDigest) -> Prefix {
    Prefix(format!("meta/sandboxes/{sandbox}/"))
}

/// One of them.
pub(crate) fn sandbox_member(sandbox: StoreDigest, session: &SessionRef) -> Key {
    let SessionRef { tenant, session } = session;
    Key(format!("meta/sandboxes/{sandbox}/{tenant}/{session}"))
}

/// Which session a key says to run in a sandbox.
pub(crate) fn member_session(key: &Key) -> Option<SessionRef> {
    let mut parts = key.as_str().strip_prefix("meta/sandboxes/")?.split('/');
    let (_, tenant, session) = (parts.next()?, parts.next()?, parts.next()?);
    let session = SessionRef {
        tenant: tenant.parse().ok()?,
        session: session.parse().ok()?,
    };
    parts.next().is_none().then_some(session)
}

/// What the last probe of this store found.
pub fn probe_result() -> Key {
    Key("meta/probe.json".to_owned())
}

/// One of a probe's scratch objects.
pub fn probe_scratch(probe: OpId, name: &'static str) -> Key {
    Key(format!("meta/probe-{probe}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_lies_where_the_contract_says() {
        let lineage: Lineage = "acme/alice@131".parse().unwrap();
        let digest = ArchiveDigest::of(b"abc");

        assert_eq!(
            pointer(&lineage).as_str(),
            "snapshots/acme/alice/131/latest.json"
        );
        assert_eq!(
            archive(&lineage, digest).as_str(),
            "snapshots/acme/alice/131/profile-ba7816bf8f01.tar.zst"
        );
        assert_eq!(lock_owner(&lock(&lineage)), Some(lineage.clone()));
        assert_eq!(lock_owner(&pointer(&lineage)), None);
        assert_eq!(pointer_owner(&pointer(&lineage)), Some(lineage));
    }

    #[test]
    fn a_job_is_found_by_its_keys_and_of_this_store_only() {
        let lanes = [
            JobLane::of_store(JobName::Gc),
            JobLane::at(JobName::SessionReap, "one"),
            JobLane::at(JobName::WorkspaceCheckpoint, "one"),
            JobLane::at(JobName::ProjectAutosave, "one"),
        ];
        for lane in lanes {
            for key in [job_lock(lane), job_record(lane)] {
                assert_eq!(job_lane(&key), Some(lane), "{key}");
                assert_eq!(role(&key), Role::Private);
            }
        }
        let lineage: Lineage = "acme/alice@131".parse().unwrap();
        let key = proofs(&ProofSubject::Profile(lineage));
        assert_eq!(key.as_str(), "proofs/snapshots/acme/alice/131.json");
        assert_eq!(role(&key), Role::Private);
        let own = proofs(&ProofSubject::Chunked(ChunkRoot::state()));
        assert_eq!(own.as_str(), "proofs/state.json");
    }

    #[test]
    fn a_data_key_says_whose_it_is() {
        let lineage: Lineage = "acme/alice@131".parse().unwrap();
        let pool = PoolId::Tenant("acme".parse().unwrap());
        for owner in [lineage.into(), pool.into(), PoolId::State.into()] {
            assert_eq!(data_key_owner(&data_key(&owner)), Some(owner));
        }
        for other in ["state/key.json", "pools/acme/repo.json", "pools/key.json"] {
            let other = Key::from_listing(other).unwrap();
            assert_eq!(data_key_owner(&other), None, "{other}");
        }
    }

    #[test]
    fn what_leads_to_others_is_copied_after_them() {
        let role = |text: &str| role(&Key::from_listing(text).unwrap());

        assert_eq!(role("chunks/ab/sha256:ab"), Role::Content);
        assert_eq!(
            role("snapshots/acme/alice/131/profile-ab.tar.zst"),
            Role::Content
        );
        assert_eq!(
            role("snapshots/acme/alice/131/profile-ab.manifest.json"),
            Role::Manifest
        );
        assert_eq!(role("snapshots/0b5c.json"), Role::Manifest);
        assert_eq!(
            role("projects/acme/shop/snapshots/0b5c.json"),
            Role::Manifest
        );
        assert_eq!(role("snapshots/acme/alice/131/latest.json"), Role::Pointer);
        assert_eq!(role("pools/acme/key.json"), Role::Pointer);
        assert_eq!(role("snapshots/acme/alice/131/lock.json"), Role::Private);
        assert_eq!(role("meta/probe.json"), Role::Private);
        // Who may ask one store may not ask its copies.
        let token = role("auth/tokens/0123456789abcdef.json");
        assert_eq!(token, Role::Private);
        assert_eq!(role("requests/acme/0b5c.json"), Role::Private);
    }

    #[test]
    fn a_listed_name_that_steps_outside_is_not_a_key() {
        for text in ["", "/a", "a//b", "a/../b", "..", "a/.", "a/\0"] {
            assert_eq!(Key::from_listing(text), None, "{text:?}");
        }
        assert!(Key::from_listing("snapshots/acme/alice/131/latest.json").is_some());
    }
}
