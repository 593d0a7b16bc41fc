//! `stasis.toml`: what a project is, as its owner writes it down.
//!
//! Only what can be said wrong is checked here; whether a program or a database is there, is found out when it is needed.

use crate::format::manifest::Consistency;
use crate::id::{Label, ProjectId, ServiceName, VolumeName};
use crate::invalid::Invalid;
use crate::policy::retention::{KeepPeriods, Repository};
use crate::tree::EntryPath;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The file itself: every key may be left out but `id`, none may be misspelt.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectConfig {
    /// What the project is called.
    pub id: ProjectId,
    /// The name that its history has, if that is another one: what was saved before the project got its id stays its own.
    pub subject: Option<ProjectId>,
    /// The version of the application, as it stands in every snapshot.
    pub app_version: Option<Label>,
    /// Where the application's data lies. Without it: in the application's own tree if any volume says `path`, else in
    /// the state directory.
    layout: Option<Layout>,
    /// The state directory, from the directory of this file; `./state` without it.
    state: Option<PathBuf>,
    /// A store for the snapshots; without it they lie in the state directory.
    pub store: Option<String>,
    /// The parts of the state that are held still in their own way.
    #[serde(default)]
    pub volumes: BTreeMap<VolumeName, VolumeConfig>,
    /// The programs that belong to it.
    #[serde(default)]
    pub services: BTreeMap<ServiceName, ServiceConfig>,
    /// When to save without being asked.
    #[serde(default)]
    pub autosave: AutosaveConfig,
    /// Which snapshots are kept.
    #[serde(default)]
    pub retention: RetentionConfig,
}

/// Where the application's data lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Where the application has it: the whole directory of the file is saved, and volumes are paths in it.
    InPlace,
    /// In `current/` of a state directory, files in `files/` and each volume in `volumes/NAME`; snapshots lie beside it.
    State,
}

/// Where dumps of servers lie in a tree whose layout has no place for them.
const DUMPS: &str = ".stasis/volumes";

/// One volume.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// How it is held still.
    pub consistency: Consistency,
    /// A file or a directory of the application, from the directory of this file.
    pub path: Option<String>,
    /// The server's URL, for `postgres`.
    pub url: Option<String>,
    /// The variable that holds the URL, for those who keep passwords out of files.
    pub url_env: Option<String>,
    /// The programs that write it: they are paused while a `generic` one is cloned. For `postgres`, the one that is the
    /// server: it is not stopped by a restore.
    #[serde(default)]
    pub services: Vec<ServiceName>,
}

/// One program. At most one of `container` and `pid_file` is given; with neither, we start it and know its process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// How it is started.
    pub start: Option<CommandLine>,
    /// How it is stopped; without it, by a signal.
    pub stop: Option<CommandLine>,
    /// The file in which it leaves its process id.
    pub pid_file: Option<PathBuf>,
    /// The Docker container that it is.
    pub container: Option<String>,
    /// How to see that it is well.
    pub health: Option<HealthConfig>,
    /// What is run around saves and restores.
    #[serde(default)]
    pub hooks: HooksConfig,
    /// How long it may take to stop.
    #[serde(default = "ten_seconds")]
    pub stop_timeout_s: u64,
}

/// A command: words, or a line for the shell.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// A program and its arguments.
    Words(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
}

impl CommandLine {
    /// The program and its arguments.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Words(words) => words.clone(),
            Self::Shell(line) => ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Words(words) => words.first().is_none_or(String::is_empty),
            Self::Shell(line) => line.trim().is_empty(),
        }
    }
}

/// How to see that a program is well: one of the three.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthConfig {
    /// A command that exits with 0.
    pub command: Option<CommandLine>,
    /// `host:port` that takes connections.
    pub tcp: Option<String>,
    /// A socket in the file system that takes connections.
    pub socket: Option<PathBuf>,
    /// How long it may take to become well.
    #[serde(default = "half_a_minute")]
    pub timeout_s: u64,
}

/// What is run around saves and restores.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HooksConfig {
    /// Before anything is read.
    pub pre_save: Option<CommandLine>,
    /// When the snapshot exists, or the save has failed.
    pub post_save: Option<CommandLine>,
    /// Before anything is replaced.
    pub pre_restore: Option<CommandLine>,
    /// When the restored state is in its place.
    pub post_restore: Option<CommandLine>,
    /// How long each may take.
    #[serde(default = "a_minute")]
    pub timeout_s: u64,
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self {
            pre_save: None,
            post_save: None,
            pre_restore: None,
            post_restore: None,
            timeout_s: a_minute(),
        }
    }
}

/// When to save without being asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutosaveConfig {
    /// How long nothing must have changed.
    pub debounce_s: u64,
    /// Save at the latest so long after the first change, however busy it is.
    pub max_delay_s: u64,
}

impl Default for AutosaveConfig {
    fn default() -> Self {
        Self {
            debounce_s: 30,
            max_delay_s: 600,
        }
    }
}

impl AutosaveConfig {
    /// How long nothing must have changed.
    pub fn debounce(&self) -> Duration {
        Duration::from_secs(self.debounce_s)
    }

    /// How long a first change may wait.
    pub fn max_delay(&self) -> Duration {
        Duration::from_secs(self.max_delay_s)
    }
}

/// Which snapshots are kept: the newest, and the newest of calendar periods in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// At most so many, pinned ones not counted. 100 if no period is asked for.
    pub max_snapshots: Option<u64>,
    /// Of how many hours the newest is kept besides.
    pub keep_hourly: u64,
    /// Of how many days.
    pub keep_daily: u64,
    /// Of how many weeks.
    pub keep_weekly: u64,
    /// Of how many months.
    pub keep_monthly: u64,
    /// Of how many years.
    pub keep_yearly: u64,
}

impl RetentionConfig {
    /// How many of the newest are kept where nothing else is asked for.
    const USUAL: u64 = 100;

    /// What is kept.
    pub fn policy(&self) -> Repository {
        let periods = KeepPeriods {
            hourly: self.keep_hourly,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
            monthly: self.keep_monthly,
            yearly: self.keep_yearly,
        };
        let usual = (!periods.is_any()).then_some(Self::USUAL);
        Repository {
            keep_last: self.max_snapshots.or(usual),
            periods,
            ..Repository::default()
        }
    }
}

fn ten_seconds() -> u64 {
    10
}

fn half_a_minute() -> u64 {
    30
}

fn a_minute() -> u64 {
    60
}

const STRAY_PATH: &str = "says `path`: that is for files of the layout `in-place`, not for the state directory or a server";

impl ProjectConfig {
    /// Where the application's data lies.
    pub fn layout(&self) -> Layout {
        let has_path = || self.volumes.values().any(|volume| volume.path.is_some());
        match self.layout {
            Some(layout) => layout,
            None if has_path() && self.state.is_none() => Layout::InPlace,
            None => Layout::State,
        }
    }

    /// The state directory, from the directory of the file.
    pub fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| "./state".into())
    }

    /// Where a volume lies in the saved tree.
    pub fn place_of(&self, name: &VolumeName) -> EntryPath {
        let path = self.volumes.get(name).and_then(|one| one.path.as_deref());
        let path = match (self.layout(), path) {
            (Layout::State, _) => format!("volumes/{name}"),
            (Layout::InPlace, Some(path)) => path.to_owned(),
            (Layout::InPlace, None) => format!("{DUMPS}/{name}"),
        };
        within(&path).expect("the file was checked: it is a path in the tree")
    }

    /// Whether what it says fits together.
    pub fn check(&self) -> Result<(), Invalid> {
        let layout = self.layout();
        if layout == Layout::InPlace && self.state.is_some() {
            return Err(Invalid::new(
                "`state` is for the layout `state`, and this file says `in-place`",
            ));
        }
        for (name, volume) in &self.volumes {
            let bad = |why: &str| Err(Invalid::new(format!("volume `{name}` {why}")));
            let mut services = volume.services.iter();
            if let Some(service) = services.find(|one| !self.services.contains_key(*one)) {
                return bad(&format!(
                    "names the service `{service}`, and there is no `[services.{service}]`"
                ));
            }
            let has_url = volume.url.is_some() || volume.url_env.is_some();
            match volume.consistency {
                Consistency::Postgres if !has_url => {
                    return bad("is a Postgres database: say where with `url` or `url_env`");
                }
                Consistency::Sqlite | Consistency::Generic if has_url => {
                    return bad("has a `url`, and is not a Postgres database");
                }
                _ => {}
            }
            let is_server = volume.consistency == Consistency::Postgres;
            match (layout, &volume.path) {
                (Layout::InPlace, None) if !is_server => {
                    return bad("lies in the application's own tree: say where with `path`");
                }
                (Layout::State, Some(_)) => return bad(STRAY_PATH),
                (_, Some(_)) if is_server => return bad(STRAY_PATH),
                (_, Some(path)) if within(path).is_none() => {
                    return Err(Invalid::new(format!(
                        "volume `{name}`: `{path}` is not a path within the directory, as in `data/app.db`"
                    )));
                }
                _ => {}
            }
        }
        for (name, service) in &self.services {
            service.check(name)?;
        }
        if self.retention.max_snapshots == Some(0) {
            return Err(Invalid::new("`max_snapshots` must be at least 1"));
        }
        Ok(())
    }

    /// The programs that a restore must not stop, because databases are restored through them.
    pub fn servers(&self) -> impl Iterator<Item = &ServiceName> {
        self.volumes
            .values()
            .filter(|volume| volume.consistency == Consistency::Postgres)
            .flat_map(|volume| &volume.services)
    }
}

/// A path within a tree, with or without a `./` before it.
fn within(path: &str) -> Option<EntryPath> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let parsed = EntryPath::parse(path.as_bytes()).ok()?;
    (!parsed.is_root()).then_some(parsed)
}

impl ServiceConfig {
    fn check(&self, name: &ServiceName) -> Result<(), Invalid> {
        let bad = |why: &str| Err(Invalid::new(format!("service `{name}`{why}")));
        if self.pid_file.is_some() && self.container.is_some() {
            return bad(" says both `pid_file` and `container`");
        }
        if self.pid_file.is_none() && self.container.is_none() && self.start.is_none() {
            return bad(" says neither `start`, nor `pid_file`, nor `container`");
        }
        let commands = [
            ("start", &self.start),
            ("stop", &self.stop),
            ("hooks.pre_save", &self.hooks.pre_save),
            ("hooks.post_save", &self.hooks.post_save),
            ("hooks.pre_restore", &self.hooks.pre_restore),
            ("hooks.post_restore", &self.hooks.post_restore),
        ];
        for (key, command) in commands {
            if command.as_ref().is_some_and(CommandLine::is_empty) {
                return bad(&format!(": `{key}` is empty"));
            }
        }
        if let Some(health) = &self.health {
            let ways = [
                health.command.is_some(),
                health.tcp.is_some(),
                health.socket.is_some(),
            ];
            if ways.iter().filter(|is_said| **is_said).count() != 1 {
                return bad(": `health` is one of `command`, `tcp` and `socket`");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
