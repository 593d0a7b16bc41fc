//! What this machine has, and what each absence costs.

use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::StoreHealth;
use crate::kind::workspace::{HostEnv, Workspace, WorkspaceError, WorkspaceStatus};
use crate::open::Engine;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::facilities::{self, Facilities, Support};
use stasis_quiesce::docker::{Docker, DockerLimits};
use stasis_quiesce::programs;
use stasis_store::location::StoreLocation;
use stasis_sys::confine::{self, Enforced};
use stasis_sys::watch;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was found of one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It is there and works.
    Ok,
    /// It is not there.
    Missing,
    /// It is there and does not work.
    Broken,
    /// Nothing is wrong; it is good to know.
    Note,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DoctorFinding {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// What was seen.
    pub detail: String,
    /// What its absence costs; empty when it is fine.
    pub costs: String,
    /// Whether nothing can be saved or restored without it.
    #[serde(skip)]
    pub is_vital: bool,
}

impl DoctorFinding {
    /// What is not vital; what its absence costs is said only when it is not fine.
    pub fn new(
        name: impl Into<String>,
        health: Health,
        detail: impl Into<String>,
        costs: &'static str,
    ) -> Self {
        let is_fine = matches!(health, Health::Ok | Health::Note);
        let costs = if is_fine { "" } else { costs };
        Self {
            name: name.into(),
            health,
            detail: detail.into(),
            costs: costs.to_owned(),
            is_vital: false,
        }
    }
}

/// What of this host is looked at.
#[derive(Clone, Debug)]
pub struct Examined<'a> {
    /// Where trees are kept if the store is no directory.
    pub place: PathBuf,
    /// The directory that the user stands in.
    pub here: Option<PathBuf>,
    /// The shell's `PATH`.
    pub search_path: &'a OsStr,
    /// The shell's `DOCKER_HOST`.
    pub docker_host: Option<OsString>,
}

/// How long a Docker engine may take to describe itself.
const DOCKER_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks at everything we would like to have, also when the store cannot be opened.
pub async fn examine(store: Result<&Engine, &Error>, examined: Examined<'_>) -> Vec<DoctorFinding> {
    let Examined {
        place,
        here,
        search_path,
        docker_host,
    } = examined;
    let place = match store.map(|engine| engine.location().clone()) {
        Ok(StoreLocation::File(root)) => root,
        _ => place,
    };
    let mut findings = vec![DoctorFinding {
        is_vital: true,
        ..store_health(store).await
    }];
    let place = existing(place);
    match here.filter(|here| !is_one_filesystem(here, &place)) {
        Some(here) => {
            findings.push(reflinks("reflinks (store)", place).await);
            findings.push(reflinks("reflinks (here)", here).await);
        }
        // Where both are the same, once is enough.
        None => findings.push(reflinks("reflinks", place).await),
    }
    findings.extend([openat2(), watches(), confinement(confine::offered())]);
    findings.push(fuse(search_path).await);
    findings.push(docker(docker_host).await);
    let browsers = [
        "chromium",
        "google-chrome",
        "google-chrome-stable",
        "chromium-browser",
    ];
    let costs = "profiles can be saved and loaded, but not run or proved in a browser here";
    findings.push(program("chromium", &browsers, search_path, costs).await);
    let costs = "projects with a PostgreSQL volume cannot be saved here";
    findings.push(program("pg_dump", &["pg_dump"], search_path, costs).await);
    findings.extend(NOTES.map(|(name, detail)| DoctorFinding::new(name, Health::Note, detail, "")));
    findings
}

/// What a user should know whatever is found.
const NOTES: [(&str, &str); 2] = [
    (
        "secrets",
        "everything in a directory is in its snapshots, .env files and keys too; leave them out with `stasis save --exclude .env`, or encrypt the \
         store with --key-file",
    ),
    (
        "session directory",
        "an agent that runs as you can also write to the session directory of its workspace, where its checkpoints are; what must outlive an \
         agent belongs in a store that it cannot write to: `stasis save`",
    ),
];

/// Looks at the workspace that a directory lies in: its budget, and whether anything makes checkpoints by itself.
pub async fn examine_workspace(directory: &Path, host_env: &HostEnv) -> Vec<DoctorFinding> {
    let found = match Workspace::find(directory, host_env).await {
        Ok(workspace) => workspace.status().await,
        Err(Error::Workspace(error)) if matches!(*error, WorkspaceError::NotAWorkspace { .. }) => {
            return Vec::new();
        }
        Err(error) => Err(error),
    };
    match found {
        Ok(status) => vec![budget(&status), watcher(&status)],
        Err(error) => {
            let costs = "no checkpoint can be made here";
            let detail = error_chain(&error);
            vec![DoctorFinding::new(
                "workspace",
                Health::Broken,
                detail,
                costs,
            )]
        }
    }
}

fn budget(status: &WorkspaceStatus) -> DoctorFinding {
    let (held, all) = (status.held_bytes, status.budget_bytes);
    let percent = held.saturating_mul(100) / all.max(1);
    let detail = format!("checkpoints of {} take {percent}% of it", status.workspace);
    let health = if percent < BUDGET_FULL {
        Health::Ok
    } else {
        Health::Broken
    };
    let costs = "old checkpoints go sooner, and new ones may be refused: delete some, or raise `budget_bytes` in the config.toml of the session directory";
    DoctorFinding::new("budget", health, detail, costs)
}

fn watcher(status: &WorkspaceStatus) -> DoctorFinding {
    let costs = "only hooks and commands make checkpoints; start one with: stasis protect";
    match &status.watched_by {
        Some(by) => DoctorFinding::new("watcher", Health::Ok, by.clone(), costs),
        None => DoctorFinding::new("watcher", Health::Missing, "none is running", costs),
    }
}

/// From how much of its budget on a workspace has too little, in percent.
const BUDGET_FULL: u64 = 95;
/// How many directories a large working tree has.
const WATCHES_WANTED: u64 = 65_536;

fn watches() -> DoctorFinding {
    let costs = "directories beyond the limit are read again every few seconds instead; raise it with: sysctl fs.inotify.max_user_watches=524288";
    let name = "inotify watches";
    match watch::limits() {
        None => DoctorFinding::new(name, Health::Missing, "the kernel names no limits", costs),
        Some(limits) => {
            let (watches, programs) = (limits.directories, limits.programs);
            let detail = format!("{watches} directories, {programs} programs");
            let health = if watches < WATCHES_WANTED {
                Health::Missing
            } else {
                Health::Ok
            };
            DoctorFinding::new(name, health, detail, costs)
        }
    }
}

/// Whether the most important thing works: the store, even if nothing was saved in it yet.
pub fn store_works(findings: &[DoctorFinding]) -> bool {
    findings
        .iter()
        .all(|finding| !finding.is_vital || finding.health != Health::Broken)
}

const STORE: &str = "store";
const FUSE_DEVICE: &str = "/dev/fuse";
const FUSE_HELPER: &str = "fusermount3";

async fn store_health(store: Result<&Engine, &Error>) -> DoctorFinding {
    let costs = "nothing can be saved or restored";
    let asked = match store {
        Ok(engine) => engine
            .store()
            .ping()
            .await
            .map(|()| engine.location().to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let costs = "nothing was saved here yet, or the disk is not mounted; the first command that writes makes a directory";
            return DoctorFinding::new(STORE, Health::Missing, error_chain(error), costs);
        }
        Err(error) => return DoctorFinding::new(STORE, Health::Broken, error_chain(error), costs),
    };
    match asked {
        Ok(location) => DoctorFinding::new(STORE, Health::Ok, location, costs),
        Err(error) => DoctorFinding::new(STORE, Health::Broken, error_chain(&error), costs),
    }
}

impl StoreHealth<'_> {
    /// Asks the store for something small.
    async fn ping(self) -> Result<(), Error> {
        self.ensure_trusted().await?;
        self.bucket
            .exists(&stasis_store::layout::probe_result())
            .await?;
        Ok(())
    }
}

async fn reflinks(name: &'static str, place: PathBuf) -> DoctorFinding {
    let costs = "checkpoints and freezes copy bytes instead of sharing them: slower, and more disk; use xfs or btrfs";
    let shown = place.display().to_string();
    match bridge::blocking(move || facilities::examine(&place)).await {
        Ok(found) => DoctorFinding {
            name: name.to_owned(),
            ..reflink_finding(&found, &shown, costs)
        },
        Err(error) => DoctorFinding::new(name, Health::Broken, format!("{shown}: {error}"), costs),
    }
}

fn reflink_finding(found: &Facilities, place: &str, costs: &'static str) -> DoctorFinding {
    let free = found.free_bytes / 1_000_000_000;
    let detail = format!("{} at {place}, {free} GB free", found.filesystem);
    let health = if found.reflinks == Support::Yes {
        Health::Ok
    } else {
        Health::Missing
    };
    DoctorFinding::new("reflinks", health, detail, costs)
}

fn is_one_filesystem(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|seen| seen.dev()).ok();
    device(one).is_some() && device(one) == device(other)
}

/// Whether snapshots can be mounted: the kernel's device, and for whoever is not root the program that may use it.
async fn fuse(search_path: &OsStr) -> DoctorFinding {
    let name = "fuse";
    if !Path::new(FUSE_DEVICE).exists() {
        let costs = "`stasis mount` does not work; `modprobe fuse`, or give the container the device: --device /dev/fuse --cap-add SYS_ADMIN";
        return DoctorFinding::new(name, Health::Missing, "there is no /dev/fuse", costs);
    }
    let costs = "`stasis mount` works for root only; install it with: apt install fuse3, or dnf install fuse3";
    let Some(program) = programs::find(&[FUSE_HELPER], search_path, &["--version"]).await else {
        let detail = format!("{FUSE_DEVICE} is there, but no {FUSE_HELPER} on the PATH");
        return DoctorFinding::new(name, Health::Missing, detail, costs);
    };
    let version = program.answer.unwrap_or_else(|| FUSE_HELPER.to_owned());
    DoctorFinding::new(name, Health::Ok, format!("{FUSE_DEVICE}, {version}"), costs)
}

fn openat2() -> DoctorFinding {
    let costs = "trees are walked one path component at a time: safe, but slower";
    match facilities::openat2() {
        Support::Yes => DoctorFinding::new(
            "openat2",
            Health::Ok,
            "the kernel keeps paths beneath their root",
            costs,
        ),
        _ => DoctorFinding::new(
            "openat2",
            Health::Missing,
            "not offered by this kernel, or blocked by a sandbox",
            costs,
        ),
    }
}

/// What binds the process that checks databases besides its limits.
fn confinement(offered: Enforced) -> DoctorFinding {
    let names = |wanted: bool| -> Vec<&'static str> {
        let all = offered.by_name().into_iter();
        all.filter(|(_, in_force)| *in_force == wanted)
            .map(|(name, _)| name)
            .collect()
    };
    let (in_force, missing) = (names(true).join(", "), names(false).join(", "));
    let detail = match (&*in_force, &*missing) {
        (in_force, "") => format!("checks of databases are bound by {in_force}"),
        ("", missing) => format!("the kernel, or a sandbox around us, has none of {missing}"),
        (in_force, missing) => format!("bound by {in_force}, but not by {missing}"),
    };
    let health = if missing.is_empty() {
        Health::Ok
    } else {
        Health::Missing
    };
    let costs = "a database made to break SQLite could reach more than itself while it is checked; use Linux 5.13 or newer with these enabled, or allow their calls in the container";
    DoctorFinding::new("confinement", health, detail, costs)
}

async fn docker(host: Option<OsString>) -> DoctorFinding {
    let costs = "containers cannot be saved or restored here";
    let docker = Docker::from_variable(host).with_limits(DockerLimits {
        reply: DOCKER_TIMEOUT,
        ..DockerLimits::default()
    });
    match docker.engine().await {
        Ok(engine) => {
            let detail = format!("engine {}, API {}", engine.version, engine.api);
            DoctorFinding::new("docker", Health::Ok, detail, costs)
        }
        Err(failure) => {
            let health = match failure.kind() {
                ErrorKind::Unreachable => Health::Missing,
                _ => Health::Broken,
            };
            let host = docker.host().display();
            let hint = failure.hint().unwrap_or("see its log");
            let detail = format!("no engine answers at {host}: {hint}");
            DoctorFinding::new("docker", health, detail, costs)
        }
    }
}

async fn program(
    name: &'static str,
    names: &[&str],
    search_path: &OsStr,
    costs: &'static str,
) -> DoctorFinding {
    match programs::find(names, search_path, &["--version"]).await {
        None => DoctorFinding::new(
            name,
            Health::Missing,
            format!("none of {} on the PATH", names.join(", ")),
            costs,
        ),
        Some(program) => match program.answer {
            Some(answer) => DoctorFinding::new(name, Health::Ok, answer, costs),
            None => DoctorFinding::new(
                name,
                Health::Broken,
                format!("{} does not answer", program.path.display()),
                costs,
            ),
        },
    }
}

/// The nearest directory above that exists.
fn existing(mut place: PathBuf) -> PathBuf {
    while !place.is_dir() && place.pop() {}
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_bind_a_check_is_named_with_what_it_costs() {
        let seen = |privileges, files, calls| {
            let found = confinement(Enforced {
                privileges,
                files,
                calls,
            });
            (found.health, found.detail, found.costs.is_empty())
        };

        assert_eq!(
            seen(true, true, true),
            (
                Health::Ok,
                "checks of databases are bound by no_new_privs, Landlock, seccomp".to_owned(),
                true
            )
        );
        assert_eq!(
            seen(true, false, true),
            (
                Health::Missing,
                "bound by no_new_privs, seccomp, but not by Landlock".to_owned(),
                false
            )
        );
        let (health, detail, _) = seen(false, false, false);
        assert_eq!(health, Health::Missing);
        assert!(
            detail.ends_with("none of no_new_privs, Landlock, seccomp"),
            "{detail}"
        );
    }
}
