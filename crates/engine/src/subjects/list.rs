//! The list of all subjects: what is known of each, read from its documents.

use super::{SubjectAddress, SubjectError, SubjectKind, SubjectList, SubjectRow};
use crate::address::SESSION_PREFIX;
use crate::catalog::references::is_damage;
use crate::check::Remedy;
use crate::error::Error;
use crate::kind::container::ContainerSubjectRow;
use crate::kind::profile::{LineageTotals, ProfileRow};
use crate::kind::session::SessionRow;
use crate::open::Engine;
use crate::seen::Memory;
use crate::subjects::{DIR_PREFIX, PROFILE_PREFIX};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use stasis_model::format::key::PoolId;
use stasis_model::format::manifest::{RepoDocument, SnapshotIndex};
use stasis_model::id::{ContainerSubject, Lineage, ProjectId, SessionRef, TenantId};
use stasis_model::time::Timestamp;
use stasis_store::documents::containers::containers;
use stasis_store::documents::roots::Root;
use stasis_store::documents::sessions;
use stasis_store::layout::ChunkRoot;
use stasis_store::part::Part;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// How many documents are read at once.
const READS_IN_FLIGHT: usize = 16;
/// The indexes of how many directories are held at once.
const HELD: usize = 256;

/// All kinds, in the order of their names.
pub(super) const KINDS: [SubjectKind; 4] = [
    SubjectKind::Container,
    SubjectKind::Dir,
    SubjectKind::Profile,
    SubjectKind::Session,
];

/// Subjects of one kind, before anything of them is read.
pub(super) enum NamedSubjects {
    Dirs(Vec<(ChunkRoot, TenantId, ProjectId)>),
    Profiles(Vec<(Lineage, LineageTotals)>),
    Sessions(Vec<SessionRef>),
    Containers(Vec<(TenantId, ContainerSubject)>),
}

/// What the pools of subjects say of themselves, each read once.
pub(super) type Pools = HashMap<PoolId, Result<RepoDocument, SubjectError>>;

/// The index of a directory, and what this host remembered of it before that was read.
struct LookedAt {
    memory: Memory,
    index: Result<SnapshotIndex, Error>,
}

impl Engine {
    /// Lists every subject of the store.
    pub async fn subjects(&self, tenant: Option<&TenantId>) -> Result<SubjectList, Error> {
        let listing = self.for_listing();
        let (mut items, mut pools) = (Vec::new(), Pools::new());
        for kind in KINDS {
            let named = listing.named(kind, tenant, &Part::Whole).await?;
            items.extend(self.rows_of(&listing, named, &mut pools).await?);
        }
        if items.is_empty() {
            self.dirs().ensure_edition().await?;
        }
        items.sort_by(|one, other| {
            let key = |row: &SubjectRow| (row.tenant.clone(), row.subject.clone());
            key(one).cmp(&key(other))
        });
        let host = self.local_dirs.state.as_deref();
        let host = host.filter(|_| tenant.is_none());
        Ok(SubjectList {
            items,
            ..SubjectList::of_host(host).await
        })
    }

    /// The names of the subjects of one kind in a part of the listing.
    pub(super) async fn named(
        &self,
        kind: SubjectKind,
        tenant: Option<&TenantId>,
        part: &Part,
    ) -> Result<NamedSubjects, Error> {
        Ok(match kind {
            SubjectKind::Dir => NamedSubjects::Dirs(self.directories_in(tenant, part).await?),
            SubjectKind::Profile => {
                NamedSubjects::Profiles(self.profiles().counted(tenant, part).await?)
            }
            SubjectKind::Session => {
                NamedSubjects::Sessions(sessions::all(&*self.bucket, tenant, part).await?)
            }
            SubjectKind::Container => {
                NamedSubjects::Containers(containers(&*self.bucket, tenant, part).await?)
            }
        })
    }

    /// What is known of them, in the same order; nothing of those that were deleted.
    pub(super) async fn rows_of(
        &self,
        listing: &Self,
        named: NamedSubjects,
        pools: &mut Pools,
    ) -> Result<Vec<SubjectRow>, Error> {
        match named {
            NamedSubjects::Dirs(named) => self.directory_rows(listing, &named, pools).await,
            NamedSubjects::Profiles(counted) => {
                let mut rows = Vec::with_capacity(counted.len());
                for mut row in listing.profiles().rows(counted).await? {
                    // What was remembered may be what somebody has mended since.
                    if !row.damage.is_empty() {
                        row = self.profiles().row_again(row).await?;
                    }
                    rows.push(profile_row(row));
                }
                Ok(rows)
            }
            NamedSubjects::Sessions(named) => self.session_rows(listing, &named, pools).await,
            NamedSubjects::Containers(named) => self.container_rows(listing, named, pools).await,
        }
    }

    async fn directory_rows(
        &self,
        listing: &Self,
        all: &[(ChunkRoot, TenantId, ProjectId)],
        pools: &mut Pools,
    ) -> Result<Vec<SubjectRow>, Error> {
        let places = self.places().await?;
        let mut rows = Vec::with_capacity(all.len());
        for some in all.chunks(HELD) {
            let layouts: Vec<ChunkRoot> = some.iter().map(|found| found.0.clone()).collect();
            let looks = stream::iter(layouts).map(|layout| listing.look_at_index(layout));
            let looks = looks.buffered(READS_IN_FLIGHT);
            let looks: Vec<LookedAt> = looks.try_collect().await?;
            for (found, looked) in some.iter().zip(looks) {
                let mut row = self.directory_row(found, looked, pools, &places).await?;
                // What was remembered may be older than what this host has seen since: that is no damage.
                if row.as_ref().is_some_and(|row| row.error.is_some()) {
                    let looked = self.look_at_index(found.0.clone()).await?;
                    row = self.directory_row(found, looked, pools, &places).await?;
                }
                rows.extend(row);
            }
        }
        Ok(rows)
    }

    async fn session_rows(
        &self,
        listing: &Self,
        named: &[SessionRef],
        pools: &mut Pools,
    ) -> Result<Vec<SubjectRow>, Error> {
        let (mut documents, mut unreadable) = listing.sessions().documents_of(named).await?;
        if !unreadable.is_empty() {
            let again: Vec<SessionRef> = unreadable.into_iter().map(|(one, _)| one).collect();
            let read = self.sessions().documents_of(&again).await?;
            documents.extend(read.0);
            unreadable = read.1;
        }
        let mut rows = Vec::with_capacity(named.len());
        for row in self.sessions().rows(&documents) {
            rows.push(self.session_row(&row, pools).await?);
        }
        for (session, error) in unreadable {
            rows.push(self.unreadable_session(&session, &error.into()));
        }
        let subject = |session: &SessionRef| format!("{SESSION_PREFIX}{session}");
        let places = named.iter().enumerate();
        let places: HashMap<String, usize> = places.map(|(at, one)| (subject(one), at)).collect();
        rows.sort_by_key(|row| places.get(&row.subject).copied());
        Ok(rows)
    }

    async fn container_rows(
        &self,
        listing: &Self,
        named: Vec<(TenantId, ContainerSubject)>,
        pools: &mut Pools,
    ) -> Result<Vec<SubjectRow>, Error> {
        let mut found = listing.containers().subjects(named.clone()).await?;
        if found.iter().any(|one| one.error.is_some()) {
            found = self.containers().subjects(named).await?;
        }
        let mut rows = Vec::with_capacity(found.len());
        for container in found {
            rows.extend(self.container_row(container, pools).await?);
        }
        Ok(rows)
    }

    /// Reads the index of a directory, be it damaged.
    async fn look_at_index(&self, layout: ChunkRoot) -> Result<LookedAt, Error> {
        let root = Root::new(self.bucket.clone(), layout);
        let memory = self.memory_of_index(&root).await;
        match self.dirs().index(&root).await {
            Err(error) if !is_damage(&error) => Err(error),
            index => Ok(LookedAt { memory, index }),
        }
    }

    /// What is known of a directory; nothing of one that was deleted, unless that is what it went back to.
    async fn directory_row(
        &self,
        (layout, owner, id): &(ChunkRoot, TenantId, ProjectId),
        LookedAt { memory, index }: LookedAt,
        pools: &mut Pools,
        places: &BTreeMap<ProjectId, PathBuf>,
    ) -> Result<Option<SubjectRow>, Error> {
        let root = Root::new(self.bucket.clone(), layout.clone());
        let is_deleted = |index: &SnapshotIndex| index.deleted_at_ms.is_some();
        let is_deleted = index.as_ref().is_ok_and(is_deleted);
        let pool = match pools.entry(root.layout().pool_id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match self.pool_of(&root).await {
                Ok(pool) => new.insert(pool),
                Err(_) if is_deleted => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let error = match (&index, &*pool) {
            (Err(error), _) => Some(self.unusable(&root, error, Remedy::for_document(error))),
            (Ok(index), Ok(repo)) => self.went_back(&root, memory, repo, index).await?,
            (Ok(_), Err(error)) => Some(error.clone()).filter(|_| !is_deleted),
        };
        if is_deleted && error.is_none() {
            return Ok(None);
        }
        Ok(Some(SubjectRow {
            encrypted: pool.as_ref().ok().map(RepoDocument::is_encrypted),
            error,
            ..directory_row(index.ok().as_ref(), owner.clone(), id, places)
        }))
    }

    /// What is known of a session; of one of which nothing is saved, nothing says whether it will be encrypted.
    async fn session_row(&self, row: &SessionRow, pools: &mut Pools) -> Result<SubjectRow, Error> {
        if row.snapshot_id.is_none() {
            return Ok(session_row(row, None, None));
        }
        let root = Root::new(self.bucket.clone(), ChunkRoot::session(&row.session));
        let pool = match pools.entry(root.layout().pool_id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.pool_of(&root).await?),
        };
        let encrypted = pool.as_ref().ok().map(RepoDocument::is_encrypted);
        Ok(session_row(row, encrypted, pool.as_ref().err().cloned()))
    }

    /// One whose document cannot be read.
    fn unreadable_session(&self, session: &SessionRef, error: &Error) -> SubjectRow {
        let root = Root::new(self.bucket.clone(), ChunkRoot::session(session));
        let remedy = Remedy::for_document(error);
        SubjectRow {
            subject: format!("{SESSION_PREFIX}{session}"),
            kind: SubjectKind::Session,
            tenant: session.tenant.clone(),
            snapshots: 0,
            newest: None,
            newest_ms: None,
            bytes: 0,
            encrypted: None,
            dir: None,
            error: Some(self.unusable(&root, error, remedy)),
        }
    }

    /// What is known of a container; nothing of one whose snapshots are all gone.
    async fn container_row(
        &self,
        row: ContainerSubjectRow,
        pools: &mut Pools,
    ) -> Result<Option<SubjectRow>, Error> {
        if row.newest.is_none() && row.error.is_none() {
            return Ok(None);
        }
        let root = row.engine.dirs().root();
        let pool = match pools.entry(root.layout().pool_id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.pool_of(&root).await?),
        };
        let own = row.error.as_ref();
        let own = own.map(|error| self.unusable(&root, error, Remedy::for_document(error)));
        let newest_ms = row.newest.as_ref().map(|newest| newest.at_ms);
        Ok(Some(SubjectRow {
            subject: row.subject,
            kind: SubjectKind::Container,
            tenant: row.tenant,
            snapshots: row.snapshots,
            newest: newest_ms.map(|at| at.to_string()),
            newest_ms: newest_ms.map(Timestamp::millis),
            bytes: row.newest.map_or(0, |newest| newest.bytes),
            encrypted: pool.as_ref().ok().map(RepoDocument::is_encrypted),
            dir: None,
            error: pool.as_ref().err().cloned().or(own),
        }))
    }

    /// What is wrong with an index that went back, as far as this host remembers.
    async fn went_back(
        &self,
        root: &Root,
        memory: Memory,
        repo: &RepoDocument,
        index: &SnapshotIndex,
    ) -> Result<Option<SubjectError>, Error> {
        let Some(back) = memory.index_went_back(repo, index).await else {
            return Ok(None);
        };
        let newer = self.dirs().newer_snapshots(root, index).await?;
        let remedy = Remedy::for_rollback(&newer);
        Ok(Some(self.unusable(root, &back.index_error(&newer), remedy)))
    }

    /// What the pool of a subject says of itself, or why it cannot be used.
    async fn pool_of(&self, root: &Root) -> Result<Result<RepoDocument, SubjectError>, Error> {
        let error = match self.dirs().settings(root).await {
            Ok(repo) => return Ok(Ok(repo)),
            Err(error) if is_damage(&error) => error,
            Err(error) => return Err(error),
        };
        let remedy = match &error {
            Error::Encryption(error) => self.dirs().remedy_for_key(root, error).await?,
            error => Remedy::for_document(error),
        };
        Ok(Err(self.unusable(root, &error, remedy)))
    }

    fn unusable(&self, root: &Root, error: &Error, remedy: Remedy) -> SubjectError {
        let address = SubjectAddress::of_root(&self.location, root.layout());
        SubjectError::new(error, remedy, address.expect("only subjects are listed"))
    }
}

/// What is known of a profile.
fn profile_row(row: ProfileRow) -> SubjectRow {
    let newest = row.flipped_at_ms;
    SubjectRow {
        subject: format!("{PROFILE_PREFIX}{}", row.subject),
        kind: SubjectKind::Profile,
        tenant: row.subject.tenant.clone(),
        snapshots: row.snapshots,
        newest: newest.map(|at| at.to_string()),
        newest_ms: newest.map(Timestamp::millis),
        bytes: row.bytes,
        encrypted: Some(row.encrypted),
        dir: None,
        error: SubjectError::of_lineage(row.damage, &row.subject),
    }
}

/// What is known of a session.
fn session_row(
    row: &SessionRow,
    encrypted: Option<bool>,
    error: Option<SubjectError>,
) -> SubjectRow {
    SubjectRow {
        subject: format!("{SESSION_PREFIX}{}", row.session),
        kind: SubjectKind::Session,
        tenant: row.session.tenant.clone(),
        snapshots: u64::from(row.snapshot_id.is_some()),
        newest: row.saved.clone(),
        newest_ms: row.saved_ms,
        bytes: row.bytes,
        encrypted,
        dir: None,
        error,
    }
}

/// What an index says of a directory; nothing where it cannot be read.
fn directory_row(
    index: Option<&SnapshotIndex>,
    tenant: TenantId,
    id: &ProjectId,
    places: &BTreeMap<ProjectId, PathBuf>,
) -> SubjectRow {
    let snapshots = index.map_or(&[][..], |index| &index.snapshots);
    let newest = snapshots.iter().max_by_key(|one| one.at_ms);
    SubjectRow {
        subject: format!("{DIR_PREFIX}{id}"),
        kind: SubjectKind::Dir,
        tenant,
        snapshots: snapshots.len() as u64,
        newest: newest.map(|one| one.at_ms.to_string()),
        newest_ms: newest.map(|one| one.at_ms.millis()),
        bytes: newest.map_or(0, |one| one.bytes),
        encrypted: None,
        dir: places.get(id).map(|dir| dir.display().to_string()),
        error: None,
    }
}

#[cfg(test)]
mod tests;
