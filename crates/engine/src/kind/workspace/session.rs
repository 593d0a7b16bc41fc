//! Where a workspace's checkpoints and events are kept, and by which rules.
//!
//! By default in `workspaces/<name>-<12 hex digits>` of this host's state directory. If they are elsewhere, a file `elsewhere`
//! there says where. `session.json` says which workspace it is, by its path and by what the filesystem says it is
//! ([`super::known_sessions`]); `config.toml`, which is the user's and may be missing, is read when the session is opened and not again.

use super::answers::{SessionForm, WorkspaceMade};
use super::commands::InitWorkspace;
use super::known_sessions::{KnownSession, KnownSessions, SessionIdentity, lead_to, usual};
use crate::dir_identity::DirIdentity;
use crate::error::{Error, OPEN_DIRECTORY, WorkspaceError, refused};
use crate::own_places::{self, IDENTITY};
use serde::{Deserialize, Serialize};
use stasis_disk::form::slots::{self, Eviction, OWN_PATTERNS, Pool, PoolSettings};
use stasis_disk::fs::atomic_write::{atomic_write, make_directory};
use stasis_disk::fs::facilities::{self, Support};
use stasis_disk::session_db::SessionDb;
use stasis_disk::tree::clone::Fallback;
use stasis_disk::tree::walk::{WalkSettings, matcher};
use stasis_disk::watch::MonitorSettings;
use stasis_model::failure::AtPath;
use stasis_model::filesystem::Filesystem;
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Budget, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a session is configured by.
pub(super) const CONFIG: &str = "config.toml";
pub(super) const DATABASE: &str = "session.db";
/// More than this is no configuration.
const LARGEST: u64 = 1 << 20;

/// What a workspace needs to know of this host.
#[derive(Clone, Debug)]
pub struct HostEnv {
    /// The state directory, `$XDG_STATE_HOME/stasis`.
    pub state: PathBuf,
    /// The home directory, which is no workspace.
    pub home: Option<PathBuf>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

/// `config.toml`: every key may be left out, none may be misspelt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionConfig {
    /// The most bytes of all checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) budget_bytes: Option<u64>,
    /// What to do where nothing can be shared.
    #[serde(default)]
    pub(super) fallback: Fall,
    /// What is told in no file event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ignore: Option<Vec<String>>,
    /// What is in no checkpoint; else what tools install for themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exclude: Option<Vec<String>>,
    /// Whether the first lines of prompts and commands are kept with checkpoints; they are unless somebody says no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) keep_event_text: Option<bool>,
    #[serde(default)]
    pub(super) vm: Vm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fall {
    #[default]
    Chunks,
    Copy,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vm {
    #[serde(default)]
    pub(super) snapshots: Settings,
}

/// An opened session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) directory: PathBuf,
    pub(super) path: PathBuf,
    pub(super) system: Option<PathBuf>,
    pub(super) config: SessionConfig,
    pub(super) budget: Budget,
    pub(super) db: SessionDb,
    pub(super) host: HostEnv,
}

impl Session {
    /// Opens the session that is in a directory.
    fn open(path: PathBuf, host: &HostEnv) -> Result<Self, Error> {
        let identity = SessionIdentity::read(&path.join(IDENTITY))?;
        let config = read(&path.join(CONFIG))?;
        let total = facilities::total_bytes(&path).at("read", &path)?;
        let budget = config.budget_bytes.map(Budget::of_bytes);
        let budget = budget.unwrap_or_else(|| Budget::for_disk(total));
        let session_db = SessionDb::open(&path.join(DATABASE))?;
        Ok(Self {
            directory: identity.workspace,
            system: identity.system,
            path,
            config,
            budget,
            db: session_db,
            host: host.clone(),
        })
    }

    /// The session of the workspace that a directory is, or lies in.
    pub(super) fn find(directory: &Path, host: &HostEnv) -> Result<Self, Error> {
        let whole = directory.canonicalize().at(OPEN_DIRECTORY, directory)?;
        let known = KnownSessions::new(&host.state);
        for above in whole.ancestors() {
            let found = known.of(above)?;
            let may_be_here = |found: &KnownSession| {
                found.own.workspace == above || may_be_workspace(above, host).is_ok()
            };
            if let Some(found) = found.filter(may_be_here) {
                found.settle(above, host)?;
                return Self::open(found.path, host);
            }
        }
        Err(WorkspaceError::NotAWorkspace {
            directory: directory.to_owned(),
            lost: known.lost(&whole, host),
        }
        .into())
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.config.vm.snapshots
    }

    /// What is in no checkpoint. A tool may come long after `init`, and a pattern of one that is not there would cost the snapshot of
    /// a whole subvolume: it counts as soon as the tool's directory is there. The last pattern that names an entry decides, so that
    /// no `!` of a user brings back what is ours.
    pub(super) fn excludes(&self) -> Vec<String> {
        let mut patterns = match &self.config.exclude {
            Some(patterns) => patterns.clone(),
            None => tools_in(&self.directory).map(str::to_owned).collect(),
        };
        patterns.extend(self.own());
        patterns
    }

    /// What is in no checkpoint and must not go with the directory that it is in: what the user excluded, and what is ours. What a tool
    /// installs for itself may go: it is kept with that directory until the undo is forgotten.
    pub(super) fn kept_out(&self) -> Vec<String> {
        let mut patterns = self.config.exclude.clone().unwrap_or_default();
        patterns.extend(self.own());
        patterns
    }

    /// The session directories and stores that lie in the workspace.
    fn own(&self) -> Vec<String> {
        let places = own_places::within(&self.directory, &self.host.state);
        places.iter().map(own_places::pattern).collect()
    }

    /// Says of an entry, and whether it is a directory, that it is in no checkpoint; none if everything is.
    pub(super) fn excluded(
        &self,
    ) -> Result<Option<impl Fn(&EntryPath, bool) -> bool + use<>>, Error> {
        let patterns = self.excludes();
        if patterns.is_empty() {
            return Ok(None);
        }
        Ok(Some(matcher(&patterns).map_err(WorkspaceError::from)?))
    }

    /// How the tree is walked: without what is excluded, and without what a revert makes for a moment.
    pub(super) fn walk(&self) -> WalkSettings {
        let mut excludes = self.excludes();
        excludes.extend(OWN_PATTERNS.map(str::to_owned));
        WalkSettings {
            excludes,
            ..WalkSettings::default()
        }
    }

    pub(super) fn monitoring(&self) -> MonitorSettings {
        let usual = MonitorSettings::default();
        let mut ignore = self.config.ignore.clone().unwrap_or(usual.ignore);
        ignore.extend(OWN_PATTERNS.map(str::to_owned));
        ignore.extend(self.own());
        MonitorSettings { ignore, ..usual }
    }

    /// The checkpoints.
    pub(super) fn pool(&self, eviction: Eviction) -> Result<Pool, Error> {
        let settings = PoolSettings {
            fallback: match self.config.fallback {
                Fall::Chunks => Fallback::Refuse,
                Fall::Copy => Fallback::Copy,
            },
            eviction,
            // Not without what reverts make for a moment: a whole subvolume is snapshotted only if nothing is left out.
            walk: WalkSettings {
                excludes: self.excludes(),
                ..WalkSettings::default()
            },
            ..PoolSettings::new(self.budget)
        };
        Ok(Pool::open(&self.path, settings)?)
    }

    /// How checkpoints are kept here, and on which filesystem.
    pub(super) fn form(&self) -> (SessionForm, Filesystem) {
        let Ok(here) = facilities::examine(&self.path) else {
            return (SessionForm::Chunked, Filesystem::Other);
        };
        let device = |path: &Path| {
            std::fs::metadata(path)
                .map(|seen| std::os::unix::fs::MetadataExt::dev(&seen))
                .ok()
        };
        let is_near =
            device(&self.path) == device(&self.directory) || here.filesystem == Filesystem::Btrfs;
        let shares = match here.reflinks {
            // Nothing can be tried on a full disk; what checkpoints are there tells as much.
            Support::Unknown => self.has_clones(),
            tried => tried == Support::Yes,
        };
        let form = match (shares && is_near, self.config.fallback) {
            (true, _) => SessionForm::Clone,
            (false, Fall::Chunks) => SessionForm::Chunked,
            (false, Fall::Copy) => SessionForm::Copy,
        };
        (form, here.filesystem)
    }
}

impl Session {
    /// Whether some checkpoint is a directory, or a list of clones.
    fn has_clones(&self) -> bool {
        let slots = std::fs::read_dir(self.path.join(slots::DIRECTORY));
        let mut slots = slots.into_iter().flatten().flatten();
        slots.any(|slot| {
            let has = |name: &str| slot.path().join(name).exists();
            has(slots::WORKSPACE) || has(slots::VERSIONS)
        })
    }
}

/// The text of a small file of the session; none when there is no such file.
pub(super) fn text_of(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::metadata(path) {
        Ok(seen) if seen.len() > LARGEST => {
            Err(refused("read", path, std::io::ErrorKind::FileTooLarge))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        seen => {
            seen.at("read", path)?;
            Ok(Some(std::fs::read_to_string(path).at("read", path)?))
        }
    }
}

fn read(path: &Path) -> Result<SessionConfig, Error> {
    let text = text_of(path)?.unwrap_or_default();
    let config: SessionConfig = toml::from_str(&text).map_err(|error| {
        let before = error.span().map(|span| &text[..span.start.min(text.len())]);
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        WorkspaceError::Config {
            path: path.to_owned(),
            detail: format!("line {line}: {}", error.message()),
        }
    })?;
    let patterns = config.exclude.as_deref().unwrap_or_default();
    let _good = matcher(patterns).map_err(|error| WorkspaceError::Config {
        path: path.to_owned(),
        detail: crate::error::error_chain(&error),
    })?;
    Ok(config)
}

fn is_home(directory: &Path, host: &HostEnv) -> bool {
    let home = host.home.as_ref();
    home.is_some_and(|home| home.canonicalize().is_ok_and(|home| home == directory))
}

/// Makes a directory known as a workspace; where one lay at its path whose session is known, that goes on.
pub(super) fn init(init: &InitWorkspace, host: &HostEnv) -> Result<WorkspaceMade, Error> {
    let is_meant = |found: &KnownSession, directory: &Path| {
        // One that was moved may be given any session, its own as well.
        found.own.workspace == directory || init.session.is_none()
    };
    init_unless(init, host, is_meant)
}

/// Makes a new directory known as a workspace: what lay at its path before was another one.
pub(super) fn init_new(init: &InitWorkspace, host: &HostEnv) -> Result<WorkspaceMade, Error> {
    init_unless(init, host, |found, directory| found.own.is_of(directory))
}

fn init_unless(
    init: &InitWorkspace,
    host: &HostEnv,
    is_meant: impl Fn(&KnownSession, &Path) -> bool,
) -> Result<WorkspaceMade, Error> {
    let asked = &init.directory;
    let directory = asked.canonicalize().at(OPEN_DIRECTORY, asked)?;
    if !directory.is_dir() {
        let why = std::io::ErrorKind::NotADirectory;
        return Err(refused(OPEN_DIRECTORY, asked, why));
    }
    let refused = |why| {
        let directory = directory.clone();
        Err(WorkspaceError::Refused { directory, why }.into())
    };
    if let Err(why) = may_be_workspace(&directory, host) {
        return refused(why);
    }
    let known = KnownSessions::new(&host.state);
    let found = known.of(&directory)?;
    if let Some(found) = found.filter(|found| is_meant(found, &directory)) {
        let is_other = |wanted: &PathBuf| resolved(wanted) != resolved(&found.path);
        if init.session.as_ref().is_some_and(is_other) {
            return refused(
                "it is a workspace already, with its checkpoints elsewhere: `stasis workspace status` says where",
            );
        }
        found.settle(&directory, host)?;
        return Ok(made(&Session::open(found.path, host)?, true));
    }
    let usual = usual(&directory, &host.state);
    let session = match &init.session {
        Some(session) => std::path::absolute(session).at(OPEN_DIRECTORY, session)?,
        None => free_place(&usual),
    };
    if resolved(&session).starts_with(&directory) {
        return refused("its session directory would be in it, and so in every checkpoint");
    }
    make_directory(&session)?;
    let session = session.canonicalize().at(OPEN_DIRECTORY, &session)?;
    if session.starts_with(&directory) {
        return refused("its session directory would be in it, and so in every checkpoint");
    }
    let before = adopted(&session, &directory, known.all())?;
    let system = init.system.as_ref();
    let system = system.map(|system| system.canonicalize().at(OPEN_DIRECTORY, system));
    let system = system.transpose()?;
    let own = SessionIdentity {
        identity: DirIdentity::of(&directory),
        workspace: directory,
        fork_of: before.as_ref().and_then(|before| before.fork_of.clone()),
        system: system.or_else(|| before?.system),
    };
    init_session(&session, &own, init.budget)?;
    lead_to(&session, &usual)?;
    let opened = Session::open(session, host)?;
    // Everything that has to be there before anything can be read, and what is let go when the disk is full.
    let _ = opened.pool(Eviction::Nothing)?.reserve().make();
    Ok(made(&opened, false))
}

/// Why a directory cannot be a workspace.
pub(super) fn may_be_workspace(directory: &Path, host: &HostEnv) -> Result<(), &'static str> {
    if directory.parent().is_none() {
        return Err("it is the root of everything");
    }
    if is_home(directory, host) {
        return Err("it is the home directory; name a directory in it");
    }
    if directory.to_str().is_none() {
        return Err("its path is not text");
    }
    Ok(())
}

/// Where a new session goes: the usual place of its workspace, or beside that if one that was moved away from there is in it.
fn free_place(usual: &Path) -> PathBuf {
    let numbered = (2..).map(|number: u32| {
        let mut name = usual.as_os_str().to_owned();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    });
    let mut places = [usual.to_owned()].into_iter().chain(numbered);
    let free = places.find(|place| !place.join(IDENTITY).exists());
    free.expect("there are more numbers than sessions")
}

/// What a session directory was before; refused if the workspace it belongs to is still there, and is another directory.
fn adopted(
    session: &Path,
    directory: &Path,
    all: &[KnownSession],
) -> Result<Option<SessionIdentity>, Error> {
    let file = session.join(IDENTITY);
    if !file.exists() {
        return Ok(None);
    }
    let before = KnownSession {
        path: session.to_owned(),
        own: SessionIdentity::read(&file)?,
    };
    // A workspace that was moved is still the one that it was; of one that another took the place of, nothing is there.
    let is_free = before.own.is_of(directory)
        || !before.own.workspace.exists()
        || (before.is_superseded(all) && before.now_at(all).is_none());
    if !is_free {
        let (session, other) = (session.to_owned(), before.own.workspace);
        return Err(WorkspaceError::OtherSession { session, other }.into());
    }
    Ok(Some(before.own))
}

/// Makes a directory a session; one that is one already keeps all but its workspace.
fn init_session(session: &Path, own: &SessionIdentity, budget: Option<u64>) -> Result<(), Error> {
    if !session.join(CONFIG).exists() {
        atomic_write(&session.join(CONFIG), configuration(budget).as_bytes())?;
    }
    drop(SessionDb::open(&session.join(DATABASE))?);
    // Last: what says whose it is, is a session.
    Ok(own.write(session)?)
}

/// A path without symbolic links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let there = path
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there {
        Some((above, whole)) => path
            .strip_prefix(above)
            .map_or(whole.clone(), |rest| whole.join(rest)),
        None => path.to_owned(),
    }
}

/// What tools install for themselves into the projects that use them, also long after `init`: the directory by which one sees that,
/// and the pattern of what is large and comes back by itself.
const TOOL_DIRECTORIES: [(&str, &str); 1] = [(".opencode", "/.opencode/node_modules/")];

/// The patterns of the tools that a workspace has to do with.
fn tools_in(workspace: &Path) -> impl Iterator<Item = &'static str> {
    let used = TOOL_DIRECTORIES.iter();
    let used = used.filter(|(directory, _)| workspace.join(directory).is_dir());
    used.map(|(_, pattern)| *pattern)
}

/// What a new session is configured by: everything as it is anyway, for whoever wants to change it.
fn configuration(budget: Option<u64>) -> String {
    let excluded = TOOL_DIRECTORIES.map(|(_, pattern)| pattern);
    let budget = match budget {
        Some(bytes) => format!("budget_bytes = {bytes}"),
        None => "# budget_bytes = 10000000000  # of all checkpoints; else 10 GB, or a tenth of the disk if that is less".to_owned(),
    };
    format!(
        "{budget}\n\
         # fallback = \"chunks\"  # where nothing can be shared; or \"copy\"\n\
         # exclude = {excluded:?}  # patterns of what is in no checkpoint, as in a .gitignore\n\
         # keep_event_text = true  # the first line of each prompt and command, with its checkpoint\n\
         # ignore = [\".git\", \"node_modules\", \"target\", \"__pycache__\", \".venv\", \".cache\"]  # told in no file event\n\
         \n\
         [vm.snapshots]\n\
         # auto_max = 10\n\
         # manual_max = 12\n\
         # auto_interval = 300  # seconds\n"
    )
}

fn made(session: &Session, existed: bool) -> WorkspaceMade {
    let (form, filesystem) = session.form();
    let mut hints = Vec::new();
    if form == SessionForm::Chunked {
        hints.push(
            "checkpoints are kept as compressed chunks, because nothing can be shared with the workspace here; a --session-dir on the \
             workspace's own filesystem, if that is xfs or btrfs, makes them clones"
                .to_owned(),
        );
    }
    let has_own = existed || session.config.exclude.is_some();
    let excluded = tools_in(&session.directory).filter(|_| !has_own);
    hints.extend(excluded.map(|pattern| {
        let (path, config) = (pattern.trim_matches('/'), session.path.join(CONFIG));
        format!(
            "{path} is in no checkpoint, because its tool installs it again by itself; `exclude` in {} changes that",
            config.display()
        )
    }));
    WorkspaceMade {
        workspace: session.directory.display().to_string(),
        session: session.path.display().to_string(),
        form,
        filesystem,
        budget_bytes: session.budget.bytes(),
        hints,
        existed,
    }
}
