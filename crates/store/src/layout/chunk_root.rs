//! Where the documents and chunks of one chunked root lie.

use super::{Key, Prefix};
use stasis_model::id::{ProjectId, SnapshotId, TenantId};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::rng::Rng;
use stasis_model::time::Timestamp;

/// Where the snapshots of one subject lie: its own documents, and the pool that its chunks share with other subjects.
///
/// A directory's own state has both in one place, and so has a repository.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChunkRoot {
    /// Where the index and the metadata of its snapshots lie.
    subject: String,
    /// Where the chunks lie, and what says how they are cut and swept.
    pool: String,
    naming: Naming,
}

/// How new snapshots are called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Naming {
    /// By chance: `snapshots/<id>.json`
    Plain,
    /// By an id that tells when they were made, as the files of a subject among others: `snapshots/<id>.json`
    Dated,
    /// The same, each with a directory of its own: `snapshots/<timestamp>-<id>/metadata.json`
    State,
}

/// Everything that subjects keep.
const SUBJECTS: &str = "subjects/";
/// The kind of subject that a directory is, in keys.
const DIR: &str = "dir";

impl ChunkRoot {
    /// A repository, at the root of its store.
    pub fn repo() -> Self {
        Self {
            subject: String::new(),
            pool: String::new(),
            naming: Naming::Plain,
        }
    }

    /// A project's own directory, at the root of its store.
    pub fn state() -> Self {
        Self {
            naming: Naming::State,
            ..Self::repo()
        }
    }

    /// Whether it has its chunks for itself.
    pub fn is_alone(&self) -> bool {
        self.naming != Naming::Dated
    }

    /// Whether the ids of its snapshots tell when they were made.
    pub fn is_dated(&self) -> bool {
        self.naming != Naming::Plain
    }

    /// A directory among others, whose chunks lie in the pool of its tenant.
    pub fn project(tenant: &TenantId, project: &ProjectId) -> Self {
        Self {
            subject: format!("{SUBJECTS}{tenant}/{DIR}/{project}/"),
            pool: format!("pools/{tenant}/"),
            naming: Naming::Dated,
        }
    }

    /// Everything that subjects keep.
    pub fn subjects() -> Prefix {
        Prefix(SUBJECTS.to_owned())
    }

    /// Everything that the directories of a tenant keep.
    pub fn directories(tenant: &TenantId) -> Prefix {
        Prefix(format!("{SUBJECTS}{tenant}/{DIR}/"))
    }

    /// Everything that the subjects keep whose chunks lie in the same pool.
    pub fn pool_subjects(&self) -> Prefix {
        match self.tenant() {
            Some(tenant) => Prefix(format!("{SUBJECTS}{tenant}/")),
            None => Prefix(self.subject.clone()),
        }
    }

    fn tenant(&self) -> Option<&str> {
        self.pool.strip_prefix("pools/")?.strip_suffix('/')
    }

    /// The directory among others that this is, and whose.
    pub fn directory(&self) -> Option<(TenantId, ProjectId)> {
        let inner = self.subject.strip_prefix(SUBJECTS)?.strip_suffix('/')?;
        let (tenant, rest) = inner.split_once('/')?;
        let (_, id) = rest.split_once('/').filter(|(kind, _)| *kind == DIR)?;
        Some((tenant.parse().ok()?, id.parse().ok()?))
    }

    /// The root of the subject that a key belongs to.
    pub fn subject_of(key: &Key) -> Option<Self> {
        let mut parts = key.as_str().strip_prefix(SUBJECTS)?.splitn(4, '/');
        let (tenant, kind) = (parts.next()?, parts.next()?);
        let (id, _) = (parts.next()?, parts.next()?);
        Self::named(&format!("{SUBJECTS}{tenant}/{kind}/{id}/"))
    }

    /// What it is called in records: where it lies in its store.
    pub fn name(&self) -> &str {
        &self.subject
    }

    /// The root that is called so; none when nothing can lie there.
    pub fn named(name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::repo());
        }
        let claimed = Self {
            subject: name.to_owned(),
            ..Self::repo()
        };
        let (tenant, id) = claimed.directory()?;
        Some(Self::project(&tenant, &id))
    }

    /// An id for a snapshot that is made now, as its documents are called here.
    pub fn new_id(&self, at: Timestamp, rng: &dyn Rng) -> SnapshotId {
        if !self.is_dated() {
            let id = rng.op_id().to_string().parse();
            return id.expect("an operation id is a name");
        }
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        SnapshotId::dated(at, bytes)
    }

    /// How bytes are cut and stored.
    pub fn repo_json(&self) -> Key {
        Key(format!("{}repo.json", self.pool))
    }

    /// How far the sweep has come.
    pub fn gc(&self) -> Key {
        Key(format!("{}gc.json", self.pool))
    }

    /// What leads to every snapshot.
    pub fn index(&self) -> Key {
        Key(format!("{}index.json", self.subject))
    }

    /// A snapshot's metadata. Where a store is not shared, its id alone says how that is called, so that whoever opens a
    /// root finds what others saved there.
    pub fn manifest(&self, id: &SnapshotId) -> Key {
        let prefix = &self.subject;
        let moment = id.moment().filter(|_| self.is_alone());
        Key(match moment {
            Some(at) => format!("{prefix}snapshots/{}-{id}/metadata.json", at.stamp()),
            None => format!("{prefix}snapshots/{id}.json"),
        })
    }

    /// All snapshots' metadata.
    pub fn manifests(&self) -> Prefix {
        Prefix(format!("{}snapshots/", self.subject))
    }

    /// The snapshot whose metadata this is, if it is one.
    pub fn manifest_id(&self, key: &Key) -> Option<SnapshotId> {
        let inner = key.as_str().strip_prefix(self.manifests().as_str())?;
        let id: SnapshotId = match inner.strip_suffix("/metadata.json") {
            Some(directory) => directory.split_once('-')?.1.parse().ok()?,
            None => inner.strip_suffix(".json")?.parse().ok()?,
        };
        (self.manifest(&id) == *key).then_some(id)
    }

    /// A chunk.
    pub fn chunk(&self, name: &ChunkName) -> Key {
        Key(format!(
            "{}chunks/{}/{name}",
            self.pool,
            &name.digest().prefix()[..2]
        ))
    }

    /// All chunks.
    pub fn chunks(&self) -> Prefix {
        Prefix(format!("{}chunks/", self.pool))
    }

    /// The chunk whose key this is, if it is one.
    pub fn chunk_name(&self, key: &Key) -> Option<ChunkName> {
        let name = key.file_name().parse().ok()?;
        (self.chunk(&name) == *key).then_some(name)
    }

    /// Where the damaged bytes of a chunk are kept.
    pub fn quarantined(&self, name: &ChunkName) -> Key {
        Key(format!("{}quarantine/{name}", self.pool))
    }

    /// All damaged chunks.
    pub fn quarantine(&self) -> Prefix {
        Prefix(format!("{}quarantine/", self.pool))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Role, role};
    use super::*;

    #[test]
    fn a_repository_lies_at_the_root_of_its_store() {
        let root = ChunkRoot::repo();
        let name: ChunkName = format!("sha256:{}.0000000a", "ab".repeat(32))
            .parse()
            .unwrap();

        let chunk = root.chunk(&name);

        assert_eq!(chunk.as_str(), format!("chunks/ab/{name}"));
        assert_eq!(root.chunk_name(&chunk), Some(name));
        let elsewhere = Key::from_listing(&format!("chunks/cd/{name}")).unwrap();
        assert_eq!(root.chunk_name(&elsewhere), None);
        let id: SnapshotId = "one".parse().unwrap();
        assert_eq!(root.manifest_id(&root.manifest(&id)), Some(id));
        assert_eq!(root.manifest_id(&chunk), None);
    }

    #[test]
    fn directories_of_a_tenant_share_a_pool_and_nothing_else() {
        let tenant = "acme".parse().unwrap();
        let shop = ChunkRoot::project(&tenant, &"shop".parse().unwrap());
        let blog = ChunkRoot::project(&tenant, &"blog".parse().unwrap());
        let id = SnapshotId::dated(Timestamp::from_millis(1_794_706_425_123), [7; 16]);

        let key = shop.manifest(&id);

        let expected = format!("subjects/acme/dir/shop/snapshots/{id}.json");
        assert_eq!(key.as_str(), expected);
        assert_eq!(shop.manifest_id(&key), Some(id.clone()));
        assert_eq!(blog.manifest_id(&key), None);
        assert_eq!(role(&key), Role::Manifest);
        assert_eq!(shop.gc(), blog.gc());
        assert_eq!(shop.gc().as_str(), "pools/acme/gc.json");
        assert_ne!(shop.index(), blog.index());
        assert_eq!(ChunkRoot::subject_of(&key), Some(shop.clone()));
        assert!(key.as_str().starts_with(blog.pool_subjects().as_str()));
        assert_eq!(ChunkRoot::named(shop.name()), Some(shop.clone()));
        assert_eq!(ChunkRoot::named("subjects/../dir/x/"), None);
        assert_eq!(ChunkRoot::named("subjects/acme/future/x/"), None);
    }

    #[test]
    fn a_snapshot_in_a_directory_s_own_state_has_a_directory_that_tells_when_it_was_made() {
        let root = ChunkRoot::state();
        let id = SnapshotId::dated(Timestamp::from_millis(1_794_706_425_123), [7; 16]);

        let key = root.manifest(&id);

        let expected = format!("snapshots/20261115T013345Z-{id}/metadata.json");
        assert_eq!(key.as_str(), expected);
        assert_eq!(root.manifest_id(&key), Some(id.clone()));
        assert_eq!(role(&key), Role::Manifest);
        let elsewhere = format!("snapshots/20261115T013346Z-{id}/metadata.json");
        assert_eq!(
            root.manifest_id(&Key::from_listing(&elsewhere).unwrap()),
            None
        );
        let undated: SnapshotId = "one-by-hand".parse().unwrap();
        assert_eq!(root.manifest_id(&root.manifest(&undated)), Some(undated));
    }
}
