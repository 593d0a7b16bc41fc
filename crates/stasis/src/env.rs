//! Every environment variable that Stasis looks at.
//!
//! | variable | meaning |
//! |---|---|
//! | `STASIS_STORE` | the store's URL |
//! | `STASIS_KEY_FILE`, `STASIS_KEY_COMMAND` | a file with the tenant's key, a command that prints it |
//! | `STASIS_BROWSER` | the browser that is asked for its version |
//! | `STASIS_REGION`, `STASIS_EGRESS_GEO` | the region this host is in, and where the world sees it |
//! | `STASIS_CACHES`, `STASIS_ON_FAILURE`, `STASIS_WAIT` | as `caches`, `on_failure` and `wait` in `[profile]` of the configuration |
//! | `STASIS_CONTAINER_MAX_PER_CONTAINER`, `STASIS_CONTAINER_MAX_SNAPSHOTS`, `STASIS_CONTAINER_MAX_BYTES`, `STASIS_CONTAINER_MAX_AGE` | how many snapshots of containers there may be, how large and how old |
//! | `STASIS_LISTEN` | where `stasis serve` listens |
//! | `STASIS_LOG` | which events are shown, as in `info` or `stasis_store=debug` |
//! | `NO_COLOR`, `TERM` | whether colour is wanted, and whether the terminal has any |
//! | `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`, `XDG_STATE_HOME`, `HOME` | where our files lie |
//! | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | keys to a bucket |
//! | `AWS_PROFILE`, `AWS_SHARED_CREDENTIALS_FILE`, `AWS_CONFIG_FILE` | where else keys may be |
//! | `AWS_REGION`, `AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` | where the bucket is |
//! | `PATH` | where programs are |
//! | `DOCKER_HOST` | which daemon has a project's containers |
//! | `CLAUDE_CONFIG_DIR`, `CODEX_HOME`, `GEMINI_CLI_HOME` | where coding agents keep their settings |
//! | `CLAUDE_PROJECT_DIR`, `GEMINI_PROJECT_DIR` | the project of the agent that runs a hook |
//! | `STASIS_HOOK_TEST` | set by `stasis hook test` for the hooks that it runs |
//! | whatever `url_env` of a project's file names | where its database is |

use crate::profile_settings::{ProfileDefaults, ProfileSetting};
use crate::system::SystemClock;
use anyhow::Context as _;
use stasis_engine::kind::workspace::HostEnv;
use stasis_engine::open::{AwsSettings, LocalDirs};
use stasis_engine::system::{self, base_directory, directory, variable as text};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// What `hook test` says to the hooks that it runs, so that their record says so.
pub(crate) const HOOK_TEST: &str = "STASIS_HOOK_TEST";

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) store: Option<String>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) key_command: Option<String>,
    pub(crate) profile: ProfileDefaults,
    pub(crate) log: Option<String>,
    /// Whether a terminal may be shown colour: neither `NO_COLOR` nor a terminal without any.
    pub(crate) allows_color: bool,
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) data_directory: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) local_dirs: LocalDirs,
    pub(crate) aws: AwsSettings,
    pub(crate) search_path: OsString,
    pub(crate) agents: AgentDirectories,
    /// The directories that agents say their project is, to the hooks they run; it stays when their shell is elsewhere.
    pub(crate) agent_projects: Vec<PathBuf>,
    /// Whether a hook is run by `hook test`.
    pub(crate) is_hook_test: bool,
    /// All that are text, for projects whose files name some.
    pub(crate) variables: BTreeMap<String, String>,
}

/// The directories in which coding agents keep what belongs to the user.
#[derive(Debug)]
pub(crate) struct AgentDirectories {
    pub(crate) claude_code: Option<PathBuf>,
    pub(crate) codex: Option<PathBuf>,
    pub(crate) gemini: Option<PathBuf>,
    pub(crate) opencode: Option<PathBuf>,
}

impl Environment {
    /// Looks at all of them, once.
    pub(crate) fn read() -> Self {
        let home = system::home();
        Self {
            store: text("STASIS_STORE"),
            key_file: text("STASIS_KEY_FILE").map(PathBuf::from),
            key_command: text("STASIS_KEY_COMMAND"),
            profile: profile(),
            log: text("STASIS_LOG"),
            allows_color: text("NO_COLOR").is_none()
                && text("TERM").is_some_and(|term| term != "dumb"),
            config_file: base_directory("XDG_CONFIG_HOME", ".config")
                .map(|base| base.join("config.toml")),
            data_directory: base_directory("XDG_DATA_HOME", ".local/share"),
            local_dirs: system::local_dirs(),
            aws: system::aws(),
            home: home.clone(),
            search_path: env::var_os("PATH").unwrap_or_default(),
            agents: agents(home.as_ref()),
            agent_projects: ["CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR"]
                .into_iter()
                .filter_map(directory)
                .collect(),
            is_hook_test: text(HOOK_TEST).is_some(),
            variables: env::vars_os()
                .filter_map(|(key, value)| {
                    Some((key.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
        }
    }

    /// What a workspace needs to know of this host.
    pub(crate) fn host_env(&self) -> anyhow::Result<HostEnv> {
        let state = self.local_dirs.state.clone().context(
            "neither HOME nor XDG_STATE_HOME is set, so nobody knows which directories are workspaces; set one of them",
        )?;
        Ok(HostEnv {
            state,
            home: self.home.clone(),
            clock: Arc::new(SystemClock),
        })
    }
}

/// What variables say of profiles.
fn profile() -> ProfileDefaults {
    let said = |setting: ProfileSetting| text(setting.variable());
    ProfileDefaults {
        region: said(ProfileSetting::Region),
        egress_geo: said(ProfileSetting::EgressGeo),
        caches: said(ProfileSetting::Caches),
        browser: said(ProfileSetting::Browser),
        on_failure: said(ProfileSetting::OnFailure),
        wait: said(ProfileSetting::Wait),
    }
}

fn agents(home: Option<&PathBuf>) -> AgentDirectories {
    let or_in_home = |directory: Option<PathBuf>, default: &str| {
        directory.or_else(|| home.map(|home| home.join(default)))
    };
    AgentDirectories {
        claude_code: or_in_home(directory("CLAUDE_CONFIG_DIR"), ".claude"),
        codex: or_in_home(directory("CODEX_HOME"), ".codex"),
        // This one stands for the home itself.
        gemini: or_in_home(
            directory("GEMINI_CLI_HOME").map(|home| home.join(".gemini")),
            ".gemini",
        ),
        opencode: or_in_home(directory("XDG_CONFIG_HOME"), ".config")
            .map(|base| base.join("opencode")),
    }
}
