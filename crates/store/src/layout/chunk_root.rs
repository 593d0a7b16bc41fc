//! Where the documents and chunks of one chunked root lie.

use super::{Key, Prefix};
use stasis_model::digest::{CondemnedDigest, ReferencesDigest};
use stasis_model::format::key::PoolId;
use stasis_model::id::{
    ContainerSubject, Epoch, OpId, ProjectId, SessionRef, SnapshotId, TenantId,
};
use stasis_model::protocol::gc::{ChunkName, GcEpoch};
use stasis_model::rng::Rng;
use stasis_model::time::Timestamp;

/// Where the snapshots of one subject lie: its own documents, and the pool that its chunks share with other subjects.
///
/// A directory's own state has both in one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkRoot {
    /// Where the index and the metadata of its snapshots lie; none for a pool, which is no subject.
    subject: Option<String>,
    /// Where the chunks lie, and what says how they are cut and swept.
    pool: String,
}

/// Everything that subjects keep.
const SUBJECTS: &str = "subjects/";
/// The kind of subject that a directory is, in keys.
const DIR: &str = "dir";
/// The same of a session.
const SESSION: &str = "session";
/// The same of a container.
const CONTAINER: &str = "container";
/// The same of the image that a snapshot of a container has.
const IMAGE: &str = "image";

impl ChunkRoot {
    /// The pool of a tenant, with all subjects whose chunks lie in it.
    pub fn pool(tenant: &TenantId) -> Self {
        Self {
            subject: None,
            pool: format!("pools/{tenant}/"),
        }
    }

    /// A project's own directory, at the root of its store.
    pub fn state() -> Self {
        Self {
            subject: Some(String::new()),
            pool: String::new(),
        }
    }

    /// Whether it has its chunks for itself.
    pub fn is_alone(&self) -> bool {
        self.pool.is_empty()
    }

    /// Whether this is a pool, and no subject.
    pub fn is_pool(&self) -> bool {
        self.subject.is_none()
    }

    /// A directory among others, whose chunks lie in the pool of its tenant.
    pub fn project(tenant: &TenantId, project: &ProjectId) -> Self {
        Self {
            subject: Some(format!("{SUBJECTS}{tenant}/{DIR}/{project}/")),
            ..Self::pool(tenant)
        }
    }

    /// A session, whose chunks lie in the pool of its tenant.
    pub fn session(session: &SessionRef) -> Self {
        let SessionRef { tenant, session } = session;
        Self {
            subject: Some(format!("{SUBJECTS}{tenant}/{SESSION}/{session}/")),
            ..Self::pool(tenant)
        }
    }

    /// A container, whose chunks lie in the pool of its tenant.
    pub fn container(tenant: &TenantId, container: &ContainerSubject) -> Self {
        Self {
            subject: Some(format!("{SUBJECTS}{tenant}/{CONTAINER}/{container}/")),
            ..Self::pool(tenant)
        }
    }

    /// The layers of the image that a snapshot of a container has.
    pub fn image(tenant: &TenantId, snapshot: &SnapshotId) -> Self {
        Self {
            subject: Some(format!("{SUBJECTS}{tenant}/{IMAGE}/{snapshot}/")),
            ..Self::pool(tenant)
        }
    }

    /// A directory among others in the same pool; of a directory's own state, that itself.
    #[must_use = "the root itself is not changed"]
    pub fn beside(&self, id: &ProjectId) -> Self {
        match self.tenant() {
            Some(tenant) => Self {
                subject: Some(format!("{SUBJECTS}{tenant}/{DIR}/{id}/")),
                ..self.clone()
            },
            None => self.clone(),
        }
    }

    /// Everything that subjects keep.
    pub fn subjects() -> Prefix {
        Prefix(SUBJECTS.to_owned())
    }

    /// Where the first edition kept what subjects keep by now.
    pub fn first_edition() -> Prefix {
        Prefix("projects/".to_owned())
    }

    /// Everything that the directories of a tenant keep.
    pub fn directories(tenant: &TenantId) -> Prefix {
        Prefix(format!("{SUBJECTS}{tenant}/{DIR}/"))
    }

    /// Everything that the sessions of a tenant keep.
    pub fn sessions(tenant: &TenantId) -> Prefix {
        Prefix(format!("{SUBJECTS}{tenant}/{SESSION}/"))
    }

    /// Everything that the containers of a tenant keep.
    pub fn containers(tenant: &TenantId) -> Prefix {
        Prefix(format!("{SUBJECTS}{tenant}/{CONTAINER}/"))
    }

    /// Everything that the images of a tenant keep.
    pub fn images(tenant: &TenantId) -> Prefix {
        Prefix(format!("{SUBJECTS}{tenant}/{IMAGE}/"))
    }

    /// Everything that the subjects keep whose chunks lie in the same pool.
    pub fn pool_subjects(&self) -> Prefix {
        match self.tenant() {
            Some(tenant) => Prefix(format!("{SUBJECTS}{tenant}/")),
            None => Prefix(String::new()),
        }
    }

    fn tenant(&self) -> Option<&str> {
        self.pool.strip_prefix("pools/")?.strip_suffix('/')
    }

    /// Where a subject's own documents lie.
    fn subject(&self) -> &str {
        let subject = self.subject.as_deref();
        subject.expect("whoever asks for documents of a subject names one")
    }

    /// The directory among others that this is, and whose.
    pub fn directory(&self) -> Option<(TenantId, ProjectId)> {
        let (tenant, id) = self.of_kind(DIR)?;
        Some((tenant.parse().ok()?, id.parse().ok()?))
    }

    /// The session that this is.
    pub fn as_session(&self) -> Option<SessionRef> {
        let (tenant, id) = self.of_kind(SESSION)?;
        Some(SessionRef {
            tenant: tenant.parse().ok()?,
            session: id.parse().ok()?,
        })
    }

    /// The container that this is, and whose.
    pub fn as_container(&self) -> Option<(TenantId, ContainerSubject)> {
        let (tenant, id) = self.of_kind(CONTAINER)?;
        Some((tenant.parse().ok()?, id.parse().ok()?))
    }

    /// The snapshot of a container whose image this is, and whose.
    pub fn as_image(&self) -> Option<(TenantId, SnapshotId)> {
        let (tenant, id) = self.of_kind(IMAGE)?;
        Some((tenant.parse().ok()?, id.parse().ok()?))
    }

    /// Whose subject this is and what it is called, if it is one of a kind.
    fn of_kind(&self, wanted: &str) -> Option<(&str, &str)> {
        let inner = self.subject.as_deref()?;
        let inner = inner.strip_prefix(SUBJECTS)?.strip_suffix('/')?;
        let (tenant, rest) = inner.split_once('/')?;
        let (_, id) = rest.split_once('/').filter(|(kind, _)| *kind == wanted)?;
        Some((tenant, id))
    }

    /// What the subject is called among those of its kind.
    pub fn id(&self) -> Option<&str> {
        let mut kinds = [DIR, SESSION, CONTAINER, IMAGE].into_iter();
        kinds.find_map(|kind| Some(self.of_kind(kind)?.1))
    }

    /// The session that a key belongs to, if it is one's.
    pub fn session_of(key: &Key) -> Option<SessionRef> {
        Self::subject_of(key)?.as_session()
    }

    /// Where a session stands.
    pub fn session_json(&self) -> Key {
        Key(format!("{}session.json", self.subject()))
    }

    /// That a container was made of a snapshot: one object for each.
    pub fn restoration(&self, snapshot: &SnapshotId, op_id: OpId) -> Key {
        let subject = self.subject();
        Key(format!("{subject}restorations/{snapshot}/{op_id}.json"))
    }

    /// All of those of a snapshot.
    pub fn restorations(&self, snapshot: &SnapshotId) -> Prefix {
        Prefix(format!("{}restorations/{snapshot}/", self.subject()))
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
        self.subject.as_deref().unwrap_or(&self.pool)
    }

    /// The root of a subject that is called so; none when nothing can lie there.
    pub fn named(name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::state());
        }
        let claimed = Self {
            subject: Some(name.to_owned()),
            ..Self::state()
        };
        let directory = claimed
            .directory()
            .map(|(tenant, id)| Self::project(&tenant, &id));
        let session = || claimed.as_session().map(|session| Self::session(&session));
        let container = || {
            let (tenant, id) = claimed.as_container()?;
            Some(Self::container(&tenant, &id))
        };
        let image = || {
            let (tenant, id) = claimed.as_image()?;
            Some(Self::image(&tenant, &id))
        };
        directory.or_else(session).or_else(container).or_else(image)
    }

    /// An id for a snapshot that is made now.
    pub fn new_id(at: Timestamp, rng: &dyn Rng) -> SnapshotId {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        SnapshotId::dated(at, bytes)
    }

    /// How bytes are cut and stored.
    pub fn repo_json(&self) -> Key {
        Key(format!("{}repo.json", self.pool))
    }

    /// Which pool its chunks lie in.
    pub fn pool_id(&self) -> PoolId {
        let tenant = self.tenant().and_then(|tenant| tenant.parse().ok());
        tenant.map_or(PoolId::State, PoolId::Tenant)
    }

    /// Everything in the pool that is not of a subject; of a directory's own state, everything.
    pub fn pool_prefix(&self) -> Prefix {
        Prefix(self.pool.clone())
    }

    /// How far the sweep has come.
    pub fn gc(&self) -> Key {
        Key(format!("{}gc.json", self.pool))
    }

    /// The names that a round of this epoch may be deleting.
    pub fn condemned(&self, epoch: GcEpoch, list: CondemnedDigest) -> Key {
        Key(format!(
            "{}condemned/{:08x}-{list}",
            self.pool,
            epoch.number()
        ))
    }

    /// All such lists.
    pub fn condemned_lists(&self) -> Prefix {
        Prefix(format!("{}condemned/", self.pool))
    }

    /// The epoch of such a list.
    pub fn condemned_epoch(key: &Key) -> Option<GcEpoch> {
        let (epoch, _) = key.file_name().split_once('-')?;
        let number = u32::from_str_radix(epoch, 16).ok()?;
        Some(GcEpoch::from_number(number))
    }

    /// What leads to every snapshot.
    pub fn index(&self) -> Key {
        Key(format!("{}index.json", self.subject()))
    }

    /// The root of the subject whose index this is, if it is one.
    pub fn of_index(key: &Key) -> Option<Self> {
        Self::named(key.as_str().strip_suffix("index.json")?)
    }

    /// A snapshot's metadata. Where a store is not shared, its id alone says how that is called, so that whoever opens a
    /// root finds what others saved there.
    pub fn manifest(&self, id: &SnapshotId) -> Key {
        let prefix = self.subject();
        let moment = id.moment().filter(|_| self.is_alone());
        Key(match moment {
            Some(at) => format!("{prefix}snapshots/{}-{id}/metadata.json", at.stamp()),
            None => format!("{prefix}snapshots/{id}.json"),
        })
    }

    /// All snapshots' metadata.
    pub fn manifests(&self) -> Prefix {
        Prefix(format!("{}snapshots/", self.subject()))
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

    /// The list of chunks that a snapshot needs, if that is too long for its metadata. Its name says under which fence it was saved,
    /// so that a list without metadata is known to be garbage once the fence has passed it.
    pub fn references(&self, id: &SnapshotId, lease: Epoch, list: ReferencesDigest) -> Key {
        let subject = self.subject();
        Key(format!("{subject}references/{id}/{lease}-{list}"))
    }

    /// All such lists.
    pub fn all_references(&self) -> Prefix {
        Prefix(format!("{}references/", self.subject()))
    }

    /// The snapshot whose list this is, and the fence's epoch as its save found it.
    pub fn references_of(&self, key: &Key) -> Option<(SnapshotId, Epoch)> {
        let inner = key.as_str().strip_prefix(self.all_references().as_str())?;
        let (id, name) = inner.split_once('/')?;
        let (lease, _) = name.split_once('-')?;
        Some((id.parse().ok()?, Epoch(lease.parse().ok()?)))
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
    fn a_chunk_is_found_by_its_name_only_where_that_says_it_lies() {
        let root = ChunkRoot::state();
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
        let pool = ChunkRoot::pool(&tenant);
        assert_eq!(pool.beside(&"shop".parse().unwrap()), shop);
        assert_eq!((pool.gc(), pool.is_pool()), (shop.gc(), true));
        assert_eq!(ChunkRoot::named("subjects/../dir/x/"), None);
        assert_eq!(ChunkRoot::named("subjects/acme/future/x/"), None);
    }

    #[test]
    fn a_session_shares_the_pool_of_its_tenant() {
        let session: SessionRef = "acme/42".parse().unwrap();
        let root = ChunkRoot::session(&session);
        let id = "one".parse().unwrap();

        assert_eq!(
            root.session_json().as_str(),
            "subjects/acme/session/42/session.json"
        );
        assert_eq!(role(&root.session_json()), Role::Pointer);
        assert_eq!(ChunkRoot::session_of(&root.manifest(&id)), Some(session));
        assert_eq!(ChunkRoot::named(root.name()), Some(root.clone()));
        assert_eq!((root.directory(), root.id()), (None, Some("42")));
        let shop = ChunkRoot::project(&"acme".parse().unwrap(), &"42".parse().unwrap());
        assert_eq!(shop.gc(), root.gc());
        assert_ne!(shop.index(), root.index());
        assert_eq!(ChunkRoot::session_of(&shop.index()), None);
    }

    #[test]
    fn a_container_and_its_images_share_the_pool_of_their_tenant() {
        let tenant: TenantId = "acme".parse().unwrap();
        let web = ContainerSubject::new("web", "0123456789ab");
        let (root, id) = (ChunkRoot::container(&tenant, &web), "one".parse().unwrap());
        let image = ChunkRoot::image(&tenant, &id);

        let key = root.manifest(&id);
        let expected = "subjects/acme/container/web.0123456789ab/snapshots/one.json";
        assert_eq!(key.as_str(), expected);
        assert_eq!(ChunkRoot::subject_of(&key), Some(root.clone()));
        assert_eq!(root.as_container(), Some((tenant.clone(), web)));
        assert_eq!((root.as_image(), root.directory()), (None, None));
        assert_eq!(image.as_image(), Some((tenant, id.clone())));
        assert_eq!(ChunkRoot::named(image.name()), Some(image.clone()));
        assert_eq!((image.gc(), image.id()), (root.gc(), Some("one")));
        let restored = root.restoration(&id, OpId::default());
        assert_eq!(ChunkRoot::subject_of(&restored), Some(root.clone()));
        assert!(
            restored
                .as_str()
                .starts_with(root.restorations(&id).as_str())
        );
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
