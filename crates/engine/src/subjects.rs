//! Every subject of a store, and which of them are on this host.
//!
//! *Always true:* a subject whose documents cannot be read is listed with what is wrong with it; a store that does not answer
//! is an error, and never looks like an empty one.

use crate::bridge;
use crate::catalog::references::is_damage;
use crate::error::{Error, ErrorKind, error_chain, refused};
use crate::kind::project::{FILE, Home, KnownDirs, known};
use crate::open::Engine;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::key::PoolId;
use stasis_model::id::{ProjectId, TenantId};
use stasis_model::time::Timestamp;
use stasis_store::documents::roots::{self, Root};
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

pub use stasis_model::subject_ref::{DIR_PREFIX, PROFILE_PREFIX};

/// What a subject is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum SubjectKind {
    Dir,
    Profile,
}

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
    /// What is wrong with its documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

/// All subjects of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SubjectList {
    /// One row for each, by tenant and name.
    pub items: Vec<SubjectRow>,
}

/// A directory that is a subject from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LinkedDir {
    /// Which subject.
    pub subject: String,
    /// The directory.
    pub dir: String,
}

/// The directories that are called so: the one whose id this is, else those whose ids begin with it.
pub(crate) fn fitting<'a>(ids: &'a [ProjectId], name: &str) -> Vec<&'a ProjectId> {
    if let Some(exact) = ids.iter().find(|id| id.as_str() == name) {
        return vec![exact];
    }
    let is_called = |id: &&ProjectId| {
        // What was minted ends in digits of chance; a name that somebody chose is only itself.
        let parts = id.as_str().rsplit_once('-');
        let is_random = |digits: &str| {
            digits.len() == known::DIGITS && digits.bytes().all(|one| one.is_ascii_hexdigit())
        };
        parts.is_some_and(|(known_as, digits)| known_as == name && is_random(digits))
    };
    ids.iter().filter(is_called).collect()
}

impl Engine {
    /// Lists every subject of the store.
    pub async fn subjects(&self, tenant: Option<&TenantId>) -> Result<SubjectList, Error> {
        let places = self.places().await?;
        let mut items = Vec::new();
        let mut pools: HashMap<PoolId, Option<bool>> = HashMap::new();
        for (layout, owner, id) in self.directories(tenant).await? {
            let root = Root::new(self.bucket.clone(), layout);
            let Some(mut row) = self.directory_row(&root, owner, &id, &places).await? else {
                continue;
            };
            let pool = root.layout().pool_id();
            row.encrypted = match pools.get(&pool) {
                Some(known) => *known,
                None => self.is_encrypted(&root, &mut row.damage).await?,
            };
            pools.insert(pool, row.encrypted);
            items.push(row);
        }
        for row in self.profiles().list(tenant).await?.profiles {
            let newest = row.flipped_at_ms;
            items.push(SubjectRow {
                subject: format!("{PROFILE_PREFIX}{}", row.subject),
                kind: SubjectKind::Profile,
                tenant: row.subject.tenant.clone(),
                snapshots: row.snapshots,
                newest: newest.map(|at| at.to_string()),
                newest_ms: newest.map(Timestamp::millis),
                bytes: row.bytes,
                encrypted: Some(row.encrypted),
                dir: None,
                damage: row.damage,
            });
        }
        if items.is_empty() {
            self.dirs().ensure_edition().await?;
        }
        items.sort_by(|one, other| {
            let key = |row: &SubjectRow| (row.tenant.clone(), row.subject.clone());
            key(one).cmp(&key(other))
        });
        Ok(SubjectList { items })
    }

    /// What is known of a directory; nothing of one that was deleted.
    async fn directory_row(
        &self,
        root: &Root,
        tenant: TenantId,
        id: &ProjectId,
        places: &BTreeMap<ProjectId, PathBuf>,
    ) -> Result<Option<SubjectRow>, Error> {
        let mut row = SubjectRow {
            subject: format!("{DIR_PREFIX}{id}"),
            kind: SubjectKind::Dir,
            tenant,
            snapshots: 0,
            newest: None,
            newest_ms: None,
            bytes: 0,
            encrypted: None,
            dir: places.get(id).map(|dir| dir.display().to_string()),
            damage: Vec::new(),
        };
        match self.dirs().index(root).await {
            Ok(index) if index.deleted_at_ms.is_some() => return Ok(None),
            Ok(index) => {
                row.snapshots = index.snapshots.len() as u64;
                let newest = index.snapshots.iter().max_by_key(|one| one.at_ms);
                if let Some(one) = newest {
                    row.newest = Some(one.at_ms.to_string());
                    row.newest_ms = Some(one.at_ms.millis());
                    row.bytes = one.bytes;
                }
            }
            Err(error) if is_damage(&error) => row.damage.push(error_chain(&error)),
            Err(error) => return Err(error),
        }
        Ok(Some(row))
    }

    /// Whether the pool of a subject is encrypted, as far as its documents say.
    async fn is_encrypted(
        &self,
        root: &Root,
        damage: &mut Vec<String>,
    ) -> Result<Option<bool>, Error> {
        match self.dirs().settings(root).await {
            Ok(repo) => Ok(Some(repo.is_encrypted())),
            Err(error) if is_damage(&error) => {
                damage.push(error_chain(&error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The directories that are subjects of the store.
    async fn directories(
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

    /// Where this host has which subject.
    async fn places(&self) -> Result<BTreeMap<ProjectId, PathBuf>, Error> {
        let Some(state) = self.local_dirs.state.clone() else {
            return Ok(BTreeMap::new());
        };
        Ok(bridge::blocking(move || KnownDirs::new(&state).places()).await?)
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
                let hint = "`stasis list` shows every subject of the store";
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

    /// Makes a directory of this host a subject that exists: what is saved from it joins that subject's snapshots.
    pub async fn link(
        &self,
        dir: &Path,
        tenant: &TenantId,
        name: &str,
    ) -> Result<LinkedDir, Error> {
        let subject = self.named_directory(tenant, name).await?.id;
        let Some(state) = self.local_dirs.state.clone() else {
            let asked = Path::new("$XDG_STATE_HOME");
            return Err(refused(
                "find the state directory",
                asked,
                io::ErrorKind::NotFound,
            ));
        };
        let (id, dir) = (subject.clone(), dir.to_owned());
        let linked = bridge::blocking(move || {
            let dir = dir.canonicalize().at("link", &dir)?;
            if !dir.is_dir() {
                return Err(refused("link", &dir, io::ErrorKind::NotADirectory));
            }
            if dir.join(FILE).is_file() {
                let said = format!("`{}` is a project with an id of its own", dir.display());
                let hint = format!("write `subject = \"{id}\"` into its {FILE}");
                return Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into());
            }
            let known = KnownDirs::new(&state);
            let lies = known.places()?.remove(&id).filter(|place| *place != dir);
            if let Some(place) = lies {
                let said = format!("`{DIR_PREFIX}{id}` is `{}` on this host", place.display());
                let hint = "two directories of one host are two subjects; move that one away first, or save this one as its own";
                let failure = Failure::of(ErrorKind::Invalid, said);
                return Err(failure.with_hint(hint).into());
            }
            if let Some(other) = known.remember(&id, &dir)? {
                let said = format!("`{}` is `{DIR_PREFIX}{other}` already", dir.display());
                let hint =
                    "its snapshots would not be found from there any more; link another directory";
                let failure = Failure::of(ErrorKind::Invalid, said);
                return Err(failure.with_hint(hint).into());
            }
            Ok::<PathBuf, Error>(dir)
        });
        let dir = linked.await?;
        Ok(LinkedDir {
            subject: format!("{DIR_PREFIX}{subject}"),
            dir: dir.display().to_string(),
        })
    }
}
