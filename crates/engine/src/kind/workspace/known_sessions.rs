//! Which session is whose: the workspaces that this host knows, by their paths and by what the filesystem says they are.
//!
//! 1. The session that knows a directory by what the filesystem says it is, and whose own path is that directory's, or holds it no longer.
//! 2. Else the session whose workspace had that path: what was removed and made anew there goes on with it, and is known by what it is
//!    from then on. Not if another session knows the directory, nor if the workspace lies somewhere else by now.
//!
//! *Always true:* no session is taken for that of a directory which another session knows.

use super::answers::WorkspaceRow;
use super::leave::HOOKS_OFF;
use super::session::{DATABASE, HostEnv, may_be_workspace, text_of};
use crate::dir_identity::DirIdentity;
use crate::error::{Error, LostWorkspace, WorkspaceError};
use crate::own_places::{self, ELSEWHERE, IDENTITY, WORKSPACES};
use crate::system::directory_id;
use serde::{Deserialize, Serialize};
use stasis_disk::form::slots;
use stasis_disk::fs::atomic_write::atomic_write;
use stasis_model::failure::Failure;
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `session.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SessionIdentity {
    /// The workspace.
    pub(super) workspace: PathBuf,
    /// What is cloned besides.
    pub(super) system: Option<PathBuf>,
    /// The session of the workspace that it is a fork of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fork_of: Option<PathBuf>,
    /// What the filesystem said the workspace is: it is known by that when it was moved.
    #[serde(flatten)]
    pub(super) identity: Option<DirIdentity>,
}

impl SessionIdentity {
    /// What a file says.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = text_of(path)?.unwrap_or_default();
        let parsed = serde_json::from_str(&text).map_err(|error| WorkspaceError::Config {
            path: path.to_owned(),
            detail: error.to_string(),
        });
        Ok(parsed?)
    }

    /// Writes it into a session directory.
    pub(super) fn write(&self, session: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self).expect("plain fields are always JSON");
        atomic_write(&session.join(IDENTITY), &text)
    }

    /// Whether a directory is the workspace, under whatever path.
    pub(super) fn is_of(&self, directory: &Path) -> bool {
        self.identity.is_some() && self.identity == DirIdentity::of(directory)
    }
}

/// Where the session of a workspace lies, or what says where it does.
pub(super) fn usual(directory: &Path, state: &Path) -> PathBuf {
    let id = directory_id(directory);
    state.join(WORKSPACES).join(id.as_str())
}

/// Makes the usual place of a workspace lead to its session, if that lies elsewhere.
pub(super) fn lead_to(session: &Path, usual: &Path) -> Result<(), Error> {
    if session != usual.canonicalize().unwrap_or_else(|_| usual.to_owned()) {
        atomic_write(&usual.join(ELSEWHERE), session.as_os_str().as_bytes())?;
    }
    Ok(())
}

/// The session directory of a workspace, if it is one.
pub(crate) fn session_of(directory: &Path, state: &Path) -> Result<Option<PathBuf>, Error> {
    let found = KnownSessions::new(state).of(directory)?;
    Ok(found.map(|session| session.path))
}

/// The sessions of this host, read when they are first asked for.
pub(super) struct KnownSessions<'a> {
    state: &'a Path,
    all: OnceCell<Vec<KnownSession>>,
}

impl<'a> KnownSessions<'a> {
    pub(super) fn new(state: &'a Path) -> Self {
        Self {
            state,
            all: OnceCell::new(),
        }
    }

    pub(super) fn all(&self) -> &[KnownSession] {
        self.all.get_or_init(|| KnownSession::all(self.state))
    }

    /// The session of the workspace that a directory is, if it is one; it may remember another path.
    pub(super) fn of(&self, directory: &Path) -> Result<Option<KnownSession>, Error> {
        let by_path = self.by_path(directory)?;
        let is_of = |one: &&KnownSession| one.own.is_of(directory);
        if let Some(this) = by_path.iter().find(is_of) {
            return Ok(Some(this.clone()));
        }
        let all = self.all();
        // Nothing need lead from its path to its session.
        let mut known = all.iter().filter(is_of);
        if let Some(this) = known.find(|one| one.own.workspace == directory) {
            return Ok(Some(this.clone()));
        }
        let moved = all.iter().find(|one| one.moved_to(directory, all));
        let around = || KnownSession::around(directory).filter(|one| one.came_to(directory));
        if let Some(moved) = moved.cloned().or_else(around) {
            return Ok(Some(moved));
        }
        if all.iter().any(|one| one.own.is_of(directory)) {
            return Ok(None);
        }
        let mut by_path = by_path.into_iter();
        Ok(by_path.find(|one| one.now_at(all).is_none()))
    }

    /// The sessions whose workspace has that path.
    fn by_path(&self, directory: &Path) -> Result<Vec<KnownSession>, Error> {
        let usual = usual(directory, self.state);
        let elsewhere = std::fs::read(usual.join(ELSEWHERE)).ok();
        let elsewhere = elsewhere.map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)));
        let mut found = Vec::new();
        for path in elsewhere.into_iter().chain([usual]) {
            let file = path.join(IDENTITY);
            if file.is_file() {
                let own = SessionIdentity::read(&file)?;
                let is_it = own.workspace == directory && own.is_of(directory);
                found.push(KnownSession { path, own });
                if is_it {
                    // Whatever became of another one.
                    break;
                }
            }
        }
        found.extend(KnownSession::around(directory));
        found.retain(|one| one.own.workspace == directory);
        Ok(found)
    }

    /// The sessions that a directory may have belonged to, as far as anything speaks for it: it is the very directory, or the
    /// workspace is gone and had its name, or nothing but its path is known.
    pub(super) fn lost(&self, directory: &Path, host: &HostEnv) -> Vec<LostWorkspace> {
        let lost = self.all().iter().filter_map(|one| {
            let own = &one.own;
            let found = directory.ancestors().find(|above| own.is_of(above));
            let is_gone = own.workspace.symlink_metadata().is_err();
            let has_name = |above: &&Path| {
                let name = above.file_name();
                name.is_some() && name == own.workspace.file_name()
            };
            let mut named = directory.ancestors().filter(has_name);
            let (named, second) = (named.next(), named.next());
            let is_likely =
                found.is_some() || (is_gone && (own.identity.is_none() || named.is_some()));
            // Of two that have its name, only the user knows which one it is.
            let named = named.filter(|_| second.is_none());
            let named = named.filter(|above| may_be_workspace(above, host).is_ok());
            is_likely.then(|| LostWorkspace {
                workspace: own.workspace.clone(),
                session: one.path.clone(),
                found: found.map(Path::to_owned),
                named: named.map(Path::to_owned),
            })
        });
        let mut lost: Vec<LostWorkspace> = lost.collect();
        lost.sort_by_key(|one| (one.found.is_none(), one.named.is_none()));
        lost
    }
}

/// A session of this host, opened or not.
#[derive(Clone, Debug)]
pub(super) struct KnownSession {
    /// The session directory.
    pub(super) path: PathBuf,
    pub(super) own: SessionIdentity,
}

impl KnownSession {
    /// All that can be read.
    pub(super) fn all(state: &Path) -> Vec<Self> {
        let all = own_places::sessions(state).into_iter();
        let read = all.filter_map(|path| {
            let own = SessionIdentity::read(&path.join(IDENTITY)).ok()?;
            Some(Self { path, own })
        });
        read.collect()
    }

    /// As in the contract: the session directory that a workspace lies in. What lies above a directory may be anybody's, under any name.
    fn around(directory: &Path) -> Option<Self> {
        let path = directory.parent()?.to_owned();
        let own = SessionIdentity::read(&path.join(IDENTITY)).ok()?;
        let is_session = path.join(DATABASE).is_file();
        is_session.then_some(Self { path, own })
    }

    /// Whether a directory is the workspace, and its own path is another one that does not hold it any more.
    fn came_to(&self, directory: &Path) -> bool {
        let was = &self.own.workspace;
        was != directory && self.own.is_of(directory) && !self.own.is_of(was)
    }

    /// The same, and nothing took its place, or it is plain that it was only moved.
    fn moved_to(&self, directory: &Path, all: &[Self]) -> bool {
        let is_gone = || self.own.workspace.symlink_metadata().is_err();
        self.came_to(directory) && (is_gone() || self.now_at(all).is_some())
    }

    /// Where the workspace lies, of one that is not at its path, as far as that is plain: beside it under another name, or where another
    /// session has its own.
    pub(super) fn now_at(&self, all: &[Self]) -> Option<PathBuf> {
        let own = self.own.identity?;
        let is_there = |path: &&PathBuf| self.own.is_of(path);
        let mut paths = all.iter().map(|one| &one.own.workspace);
        let beside = own.beside(&self.own.workspace);
        beside.or_else(|| paths.find(is_there).cloned())
    }

    /// Whether another session knows what lies at the workspace's path.
    pub(super) fn is_superseded(&self, all: &[Self]) -> bool {
        let was = &self.own.workspace;
        let mut others = all.iter().filter(|one| one.path != self.path);
        !self.own.is_of(was) && others.any(|one| one.own.is_of(was))
    }

    /// Goes on with the workspace where it was found.
    pub(super) fn settle(&self, directory: &Path, host: &HostEnv) -> Result<(), Error> {
        if self.own.workspace == directory {
            self.renew();
            return Ok(());
        }
        let own = SessionIdentity {
            workspace: directory.to_owned(),
            ..self.own.clone()
        };
        // First: whoever comes before the rest is written follows it again.
        lead_to(&self.path, &usual(directory, &host.state))?;
        own.write(&self.path)?;
        tracing::info!(workspace = %directory.display(), was = %self.own.workspace.display(), "the workspace was moved");
        Ok(())
    }

    /// Notes what the filesystem says the workspace is, of one that was made anew at its path, or that a build made which did not.
    fn renew(&self) {
        let found = DirIdentity::of(&self.own.workspace);
        if found.is_none() || found == self.own.identity {
            return;
        }
        let own = SessionIdentity {
            identity: found,
            ..self.own.clone()
        };
        // Whoever only looks need not be able to write.
        if let Err(error) = own.write(&self.path) {
            tracing::debug!(%error, "could not note what a workspace is");
        }
    }

    /// What a list shows of it.
    pub(super) fn row(&self, all: &[Self]) -> WorkspaceRow {
        let was = &self.own.workspace;
        let is_there = was.is_dir() && !self.is_superseded(all);
        let place = if is_there && self.own.is_of(was) {
            Some(was.clone())
        } else {
            self.now_at(all).or_else(|| is_there.then(|| was.clone()))
        };
        let slots = std::fs::read_dir(self.path.join(slots::DIRECTORY));
        let slots = slots.into_iter().flatten().flatten();
        let checkpoints = slots.filter(|slot| slot.path().join(slots::METADATA).is_file());
        let fork_of = self.own.fork_of.as_ref();
        let mut others = all.iter();
        let fork_of = fork_of.and_then(|of| others.find(|one| one.path == *of));
        WorkspaceRow {
            is_there: place.is_some(),
            fork_of: fork_of.map(|one| one.own.workspace.display().to_string()),
            workspace: place.as_ref().unwrap_or(was).display().to_string(),
            session: self.path.display().to_string(),
            checkpoints: checkpoints.count() as u64,
            hooks_off: self.path.join(HOOKS_OFF).exists(),
        }
    }
}
