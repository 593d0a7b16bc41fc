//! Where the documents and chunks of one chunked root lie.

use super::{Key, Prefix};
use stasis_model::id::{ProjectId, SnapshotId, TenantId};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::rng::Rng;
use stasis_model::time::Timestamp;

/// One chunked root: a repository, or what a kind of subject keeps its snapshots in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChunkRoot {
    prefix: String,
    naming: Naming,
}

/// How new snapshots are called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Naming {
    /// By chance: `snapshots/<id>.json`
    Plain,
    /// By an id that tells when they were made: `snapshots/<timestamp>-<id>/metadata.json`
    Dated,
}

impl ChunkRoot {
    /// A repository, at the root of its store.
    pub fn repo() -> Self {
        Self {
            prefix: String::new(),
            naming: Naming::Plain,
        }
    }

    /// A project's own directory, at the root of its store.
    pub fn state() -> Self {
        Self {
            prefix: String::new(),
            naming: Naming::Dated,
        }
    }

    /// Whether each snapshot has a directory that its time is in the name of.
    pub fn is_dated(&self) -> bool {
        self.naming == Naming::Dated
    }

    /// A project among others.
    pub fn project(tenant: &TenantId, project: &ProjectId) -> Self {
        Self {
            prefix: format!("projects/{tenant}/{project}/"),
            naming: Naming::Dated,
        }
    }

    /// Everything that projects keep.
    pub fn projects() -> Prefix {
        Prefix("projects/".to_owned())
    }

    /// The root of the project that a key belongs to.
    pub fn project_of(key: &Key) -> Option<Self> {
        let mut parts = key.as_str().strip_prefix("projects/")?.splitn(3, '/');
        let (tenant, project, _) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self::project(&tenant.parse().ok()?, &project.parse().ok()?))
    }

    /// What it is called in records: where it lies in its store.
    pub fn name(&self) -> &str {
        &self.prefix
    }

    /// The root that is called so; none when nothing can lie there.
    pub fn named(name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::repo());
        }
        let inner = name.strip_prefix("projects/")?.strip_suffix('/')?;
        let (tenant, project) = inner.split_once('/')?;
        Some(Self::project(&tenant.parse().ok()?, &project.parse().ok()?))
    }

    /// An id for a snapshot that is made now, as its documents are called here.
    pub fn new_id(&self, at: Timestamp, rng: &dyn Rng) -> SnapshotId {
        match self.naming {
            Naming::Plain => rng
                .op_id()
                .to_string()
                .parse()
                .expect("an operation id is a name"),
            Naming::Dated => {
                let mut bytes = [0; 16];
                rng.fill(&mut bytes);
                SnapshotId::dated(at, bytes)
            }
        }
    }

    /// How bytes are cut and stored.
    pub fn repo_json(&self) -> Key {
        Key(format!("{}repo.json", self.prefix))
    }

    /// How far the sweep has come.
    pub fn gc(&self) -> Key {
        Key(format!("{}gc.json", self.prefix))
    }

    /// What leads to every snapshot.
    pub fn index(&self) -> Key {
        Key(format!("{}index.json", self.prefix))
    }

    /// A snapshot's metadata. Its id alone says how that is called, so that whoever opens a root finds what others saved there.
    pub fn manifest(&self, id: &SnapshotId) -> Key {
        let prefix = &self.prefix;
        Key(match id.moment() {
            Some(at) => format!("{prefix}snapshots/{}-{id}/metadata.json", at.stamp()),
            None => format!("{prefix}snapshots/{id}.json"),
        })
    }

    /// All snapshots' metadata.
    pub fn manifests(&self) -> Prefix {
        Prefix(format!("{}snapshots/", self.prefix))
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
            self.prefix,
            &name.digest().prefix()[..2]
        ))
    }

    /// All chunks.
    pub fn chunks(&self) -> Prefix {
        Prefix(format!("{}chunks/", self.prefix))
    }

    /// The chunk whose key this is, if it is one.
    pub fn chunk_name(&self, key: &Key) -> Option<ChunkName> {
        let name = key.file_name().parse().ok()?;
        (self.chunk(&name) == *key).then_some(name)
    }

    /// Where the damaged bytes of a chunk are kept.
    pub fn quarantined(&self, name: &ChunkName) -> Key {
        Key(format!("{}quarantine/{name}", self.prefix))
    }

    /// All damaged chunks.
    pub fn quarantine(&self) -> Prefix {
        Prefix(format!("{}quarantine/", self.prefix))
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
    fn a_snapshot_of_a_project_lies_in_a_directory_that_tells_when_it_was_made() {
        let (tenant, project) = ("acme".parse().unwrap(), "shop".parse().unwrap());
        let root = ChunkRoot::project(&tenant, &project);
        let id = SnapshotId::dated(Timestamp::from_millis(1_794_706_425_123), [7; 16]);

        let key = root.manifest(&id);

        let expected = format!("projects/acme/shop/snapshots/20261115T013345Z-{id}/metadata.json");
        assert_eq!(key.as_str(), expected);
        assert_eq!(root.manifest_id(&key), Some(id.clone()));
        assert_eq!(role(&key), Role::Manifest);
        let elsewhere = format!("projects/acme/shop/snapshots/20261115T013346Z-{id}/metadata.json");
        assert_eq!(
            root.manifest_id(&Key::from_listing(&elsewhere).unwrap()),
            None
        );
        assert_eq!(ChunkRoot::named(root.name()), Some(root.clone()));
        assert_eq!(ChunkRoot::named("projects/../x/"), None);
        let undated: SnapshotId = "one-by-hand".parse().unwrap();
        assert_eq!(root.manifest_id(&root.manifest(&undated)), Some(undated));
    }
}
