//! Every subject of a store, which of them are on this host, and its workspaces.
//!
//! *Always true:* a subject whose documents cannot be read is listed with what is wrong with it; a store that does not answer
//! is an error, and never looks like an empty one.

mod list;
mod page;

pub use crate::address::{DIR_PREFIX, PROFILE_PREFIX};
use crate::address::{SubjectAddress, shell_word};
use crate::bridge;
use crate::check::Remedy;
use crate::error::{Error, ErrorKind, refused};
use crate::kind::project::namesakes::fitting;
use crate::kind::project::{FILE, Home, KnownDirs};
use crate::kind::workspace::{WorkspaceRow, workspaces};
use crate::near::{did_you_mean, names_of, near_subjects};
use crate::open::Engine;
use crate::own_places;
pub use page::{SubjectCursor, SubjectPage, SubjectsAsked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_model::display_as_serialized;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::{Lineage, ProjectId, TenantId};
use stasis_model::nearest::nearest;
use stasis_store::documents::roots;
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use stasis_store::part::Part;
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

/// The directories of this host in which hooks of agents make checkpoints.
pub async fn hooked_workspaces(state: &Path) -> Vec<String> {
    let state = state.to_owned();
    let rows = bridge::blocking(move || workspaces(&state)).await;
    let there = rows.into_iter();
    let there = there.filter(|row| row.is_there && !row.hooks_off);
    there.map(|row| row.workspace).collect()
}

impl Engine {
    /// The directories that are subjects of the store.
    pub(crate) async fn directories(
        &self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<(ChunkRoot, TenantId, ProjectId)>, Error> {
        self.directories_in(tenant, &Part::Whole).await
    }

    /// Those in a part of the listing.
    pub(crate) async fn directories_in(
        &self,
        tenant: Option<&TenantId>,
        part: &Part,
    ) -> Result<Vec<(ChunkRoot, TenantId, ProjectId)>, Error> {
        let all = roots::directories(&self.bucket, tenant, part).await?;
        let all = all.into_iter();
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
