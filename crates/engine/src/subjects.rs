//! Every subject of a store, which of them are on this host, and its workspaces.
//!
//! *Always true:* a subject whose documents cannot be read is listed with what is wrong with it; a store that does not answer
//! is an error, and never looks like an empty one.

pub use crate::address::{DIR_PREFIX, PROFILE_PREFIX};
use crate::address::{SESSION_PREFIX, SubjectAddress, shell_word};
use crate::bridge;
use crate::catalog::references::is_damage;
use crate::check::Remedy;
use crate::error::{Error, ErrorKind, refused};
use crate::kind::container::ContainerSubjectRow;
use crate::kind::profile::ProfileRow;
use crate::kind::project::namesakes::fitting;
use crate::kind::project::{FILE, Home, KnownDirs};
use crate::kind::session::SessionRow;
use crate::kind::workspace::{WorkspaceRow, workspaces};
use crate::near::{did_you_mean, names_of, near_subjects};
use crate::open::Engine;
use crate::own_places;
use crate::seen::Memory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_model::display_as_serialized;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::key::PoolId;
use stasis_model::format::manifest::{RepoDocument, SnapshotIndex};
use stasis_model::id::{Lineage, ProjectId, TenantId};
use stasis_model::nearest::nearest;
use stasis_model::time::Timestamp;
use stasis_store::documents::roots::{self, Root};
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// What a subject is.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum SubjectKind {
    Dir,
    Profile,
    Session,
    Container,
}

display_as_serialized!(SubjectKind);

/// One subject of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SubjectRow {
    /// What it is called wherever a subject is named.
    pub subject: String,
    /// What it is.
    pub kind: SubjectKind,
    /// Whose.
    pub tenant: TenantId,
    /// How many snapshots it has.
    pub snapshots: u64,
    /// When the newest of them was made.
    pub newest: Option<String>,
    /// The same in milliseconds.
    pub newest_ms: Option<u64>,
    /// The length of all files of the newest one; of a profile, the bytes of all archives.
    pub bytes: u64,
    /// Whether it is stored encrypted; not known of one whose documents are damaged.
    pub encrypted: Option<bool>,
    /// Where it lies on this host, if it was saved or linked from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Why not all of this is known: what is wrong with its documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SubjectError>,
}

impl SubjectRow {
    /// What it is called among those of its kind and its tenant.
    pub fn id(&self) -> &str {
        let (_, name) = self.subject.split_once(':').unwrap_or(("", &self.subject));
        let of_tenant = name.strip_prefix(self.tenant.as_str());
        let of_tenant = of_tenant.and_then(|rest| rest.strip_prefix('/'));
        of_tenant.unwrap_or(name)
    }
}

/// What is wrong with the documents of a subject, or of the pool that it shares with others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SubjectError {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// What is wrong.
    pub message: String,
    /// Why, from the nearest cause to the first.
    pub causes: Vec<String>,
    /// What helps against it.
    pub remedy: Remedy,
    /// Whose it is, as a command is told.
    pub address: SubjectAddress,
}

impl SubjectError {
    fn new(error: &Error, remedy: Remedy, address: SubjectAddress) -> Self {
        let causes = std::iter::successors(std::error::Error::source(error), |one| one.source());
        Self {
            kind: error.kind(),
            message: error.to_string(),
            causes: causes.map(ToString::to_string).collect(),
            remedy,
            address,
        }
    }

    /// The same of a lineage, whose documents say in a line each what is wrong with them.
    fn of_lineage(damage: Vec<String>, lineage: &Lineage) -> Option<Self> {
        let mut damage = damage.into_iter();
        Some(Self {
            kind: ErrorKind::Corrupt,
            message: damage.next()?,
            causes: damage.collect(),
            remedy: Remedy::Repair,
            address: SubjectAddress::of_lineage(lineage),
        })
    }
}

/// All subjects of a store, and the workspaces of this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SubjectList {
    /// One row for each, by tenant and name.
    pub items: Vec<SubjectRow>,
    /// The workspaces of this host, whose checkpoints are in no store; none where only one tenant is asked for.
    pub workspaces: Vec<WorkspaceRow>,
}

impl SubjectList {
    /// Whether this host never had a store there: then nothing is saved yet. One that was there and is gone is another matter.
    pub async fn is_unused(store: &StoreLocation, state: Option<&Path>) -> bool {
        let (StoreLocation::File(root), Some(state)) = (store.clone(), state) else {
            return false;
        };
        let state = state.to_owned();
        bridge::blocking(move || !own_places::knows_store(&state, &root)).await
    }

    /// What this host has without any store.
    pub async fn of_host(state: Option<&Path>) -> Self {
        let state = state.map(Path::to_owned);
        let rows = move || state.map_or_else(Vec::new, |state| workspaces(&state));
        Self {
            items: Vec::new(),
            workspaces: bridge::blocking(rows).await,
        }
    }
}

/// A directory that is a subject from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LinkedDir {
    /// Which subject.
    pub subject: String,
    /// The directory.
    pub dir: String,
    /// The subject that it was until now. Its snapshots stay in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The directory of this host that was the subject until now. Nothing in it is touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
}

/// What is linked.
#[derive(Clone, Debug)]
pub struct LinkDir {
    /// A directory of this host.
    pub dir: PathBuf,
    /// Whose subject.
    pub tenant: TenantId,
    /// What the subject is called.
    pub name: String,
    /// Whether a directory that is another subject becomes this one, and a subject that is another directory.
    pub confirm: bool,
}

/// What the pools of subjects say of themselves, each read once.
type Pools = HashMap<PoolId, Result<RepoDocument, SubjectError>>;

/// The directories of this host in which hooks of agents make checkpoints.
pub async fn hooked_workspaces(state: &Path) -> Vec<String> {
    let state = state.to_owned();
    let rows = bridge::blocking(move || workspaces(&state)).await;
    let there = rows.into_iter();
    let there = there.filter(|row| row.is_there && !row.hooks_off);
    there.map(|row| row.workspace).collect()
}

impl Engine {
    /// Lists every subject of the store.
    pub async fn subjects(&self, tenant: Option<&TenantId>) -> Result<SubjectList, Error> {
        let places = self.places().await?;
        let mut items = Vec::new();
        let mut pools = Pools::new();
        for (layout, owner, id) in self.directories(tenant).await? {
            let root = Root::new(self.bucket.clone(), layout);
            let memory = self.memory_of_index(&root).await;
            let index = match self.dirs().index(&root).await {
                Err(error) if !is_damage(&error) => return Err(error),
                index => index,
            };
            let is_deleted = |index: &SnapshotIndex| index.deleted_at_ms.is_some();
            let is_deleted = index.as_ref().is_ok_and(is_deleted);
            let pool = match pools.entry(root.layout().pool_id()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => match self.pool_of(&root).await {
                    Ok(pool) => new.insert(pool),
                    Err(_) if is_deleted => continue,
                    Err(error) => return Err(error),
                },
            };
            let error = match (&index, &*pool) {
                (Err(error), _) => Some(self.unusable(&root, error, Remedy::for_document(error))),
                (Ok(index), Ok(repo)) => self.went_back(&root, memory, repo, index).await?,
                (Ok(_), Err(error)) => Some(error.clone()).filter(|_| !is_deleted),
            };
            // One that was deleted is no subject any more, unless that is what it went back to.
            if is_deleted && error.is_none() {
                continue;
            }
            items.push(SubjectRow {
                encrypted: pool.as_ref().ok().map(RepoDocument::is_encrypted),
                error,
                ..directory_row(index.ok().as_ref(), owner, &id, &places)
            });
        }
        let profiles = self.profiles().list(tenant).await?.profiles;
        items.extend(profiles.into_iter().map(profile_row));
        for session in self.sessions().list(tenant).await?.items {
            items.push(self.session_row(&session, &mut pools).await?);
        }
        for container in self.containers().subjects(tenant).await? {
            items.extend(self.container_row(container, &mut pools).await?);
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

    /// The directories that are subjects of the store.
    pub(crate) async fn directories(
        &self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<(ChunkRoot, TenantId, ProjectId)>, Error> {
        let all = roots::directories(&self.bucket, tenant).await?.into_iter();
        let named = all.filter_map(|root| {
            let (owner, id) = root.directory()?;
            Some((root, owner, id))
        });
        Ok(named.collect())
    }

    /// The directory that is called so: by its id, or by what comes before its digits if that names one only.
    pub async fn named_directory(&self, tenant: &TenantId, name: &str) -> Result<Home, Error> {
        let name = name.strip_prefix(DIR_PREFIX).unwrap_or(name);
        let all = self.directories(Some(tenant)).await?;
        let ids: Vec<ProjectId> = all.into_iter().map(|(_, _, id)| id).collect();
        let fits = fitting(&ids, name);
        match fits[..] {
            [id] => {
                let place = self.places().await?.remove(id);
                let state = self.local_dirs.state.as_deref();
                Home::named(id.clone(), place, state).await
            }
            [] => {
                let said = format!("there is no directory `{name}` in `{}`", self.location);
                let near = nearest(name, ids.iter().flat_map(names_of));
                let near = did_you_mean(&near)
                    .map(|near| near + " ")
                    .unwrap_or_default();
                let hint = format!("{near}`stasis list` shows every subject of the store");
                Err(Failure::of(ErrorKind::NotFound, said)
                    .with_hint(hint)
                    .into())
            }
            ref several => {
                let said = format!("`{name}` is the name of {} directories", several.len());
                let all: Vec<_> = several
                    .iter()
                    .map(|id| format!("{DIR_PREFIX}{id}"))
                    .collect();
                let hint = format!("say which: {}", all.join(", "));
                Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into())
            }
        }
    }

    /// Subjects of the store whose names are near to one that is none.
    pub async fn near_subjects(&self, typed: &Path) -> Vec<String> {
        near_subjects(&self.bucket, None, typed).await
    }

    /// Makes a directory of this host a subject that exists: what is saved from it joins that subject's snapshots.
    pub async fn link(&self, command: LinkDir) -> Result<LinkedDir, Error> {
        let subject = self.named_directory(&command.tenant, &command.name).await?;
        let Some(state) = self.local_dirs.state.clone() else {
            let asked = Path::new("$XDG_STATE_HOME");
            return Err(refused(
                "find the state directory",
                asked,
                io::ErrorKind::NotFound,
            ));
        };
        bridge::blocking(move || link(&command, &subject.id, &KnownDirs::new(&state))).await
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

fn link(command: &LinkDir, id: &ProjectId, known: &KnownDirs) -> Result<LinkedDir, Error> {
    let asked = &command.dir;
    let dir = asked.canonicalize().at("link", asked)?;
    if !dir.is_dir() {
        return Err(refused("link", &dir, io::ErrorKind::NotADirectory));
    }
    let shown = dir.display();
    let invalid = |said: String, hint: String| {
        let failure = Failure::of(ErrorKind::Invalid, said);
        Error::from(failure.with_hint(hint))
    };
    if dir.join(FILE).is_file() {
        let said = format!("`{shown}` is a project with an id of its own");
        let hint = format!("write `subject = \"{id}\"` into its {FILE}");
        return Err(invalid(said, hint));
    }
    let again = format!(
        "`stasis link {} {DIR_PREFIX}{id} --confirm`",
        shell_word(&shown.to_string())
    );
    // Of one that is gone nothing is taken away.
    let lies = known.places()?.remove(id);
    let lies = lies.filter(|place| *place != dir && place.is_dir());
    if let Some(place) = lies.as_ref().filter(|place| place.join(FILE).is_file()) {
        let place = place.display();
        let said = format!("`{DIR_PREFIX}{id}` is the project `{place}`, whose {FILE} says so");
        let hint = format!(
            "`{shown}` becomes that subject once `{place}/{FILE}` names another one, or is gone"
        );
        return Err(invalid(said, hint));
    }
    if let Some(place) = lies.as_ref().filter(|_| !command.confirm) {
        let place = place.display();
        let said = format!("`{DIR_PREFIX}{id}` is `{place}` on this host");
        let hint = format!(
            "{again} makes `{shown}` that subject; `{place}` is left as it is, and is no subject any more"
        );
        return Err(invalid(said, hint));
    }
    let was = if command.confirm {
        known.take_over(id, &dir)?
    } else if let Some(other) = known.remember(id, &dir)? {
        let said = format!("`{shown}` is `{DIR_PREFIX}{other}` already");
        let hint = format!(
            "{again} makes it `{DIR_PREFIX}{id}`; the snapshots of `{DIR_PREFIX}{other}` stay in the store, and `stasis restore {DIR_PREFIX}{other} --to DIR` writes them to a new directory"
        );
        return Err(invalid(said, hint));
    } else {
        None
    };
    Ok(LinkedDir {
        subject: format!("{DIR_PREFIX}{id}"),
        dir: shown.to_string(),
        was: was.map(|was| format!("{DIR_PREFIX}{was}")),
        instead_of: lies.map(|place| place.display().to_string()),
    })
}
