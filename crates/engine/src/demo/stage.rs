//! Where a demo happens: a private directory that is gone afterwards, and nothing else of this host.

use crate::error::{Error, ErrorKind};
use crate::kind::workspace::HostEnv;
use crate::open::{AwsSettings, Engine, LocalDirs, Open, StoreLocation};
use stasis_disk::check::Spawn;
use stasis_disk::fs::remove;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::rng::Rng;
use stasis_model::time::Clock;
use stasis_quiesce::docker::Docker;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a demo needs of the program that it runs in.
#[derive(Clone, Debug)]
pub struct DemoSettings {
    /// In which directory that of the demo is made.
    pub parent: PathBuf,
    /// Whether it stays afterwards.
    pub keep: bool,
    /// The shell's `PATH`: programs that are not on it are not shown.
    pub search_path: OsString,
    /// The browser, if somebody names one.
    pub browser: Option<PathBuf>,
    /// The Docker engine, if there is one.
    pub docker: Docker,
    /// How the process that opens databases is started.
    pub spawn: Spawn,
    /// Set by anybody at any time to stop: what was begun is finished, the directory goes.
    pub cancel: Arc<AtomicBool>,
}

/// The directory of a demo; it goes with its last handle, unless it is kept.
#[derive(Debug)]
pub(super) struct DemoStage {
    pub(super) home: PathBuf,
    pub(super) settings: DemoSettings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) rng: Arc<dyn Rng>,
}

impl DemoStage {
    pub(super) fn make(
        settings: DemoSettings,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Result<Self, Error> {
        // A short name that nobody can have taken before us, and a directory that must be new: sockets have short paths.
        let id: String = rng.op_id().to_string().chars().take(13).collect();
        let home = settings.parent.join(format!("stasis-demo-{id}"));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&home);
        made.at("make the directory of the demo", &home)?;
        Ok(Self {
            home,
            settings,
            clock,
            rng,
        })
    }

    /// A place in the directory.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// Refuses to begin something new when somebody wants to stop.
    pub(super) fn go_on(&self) -> Result<(), Error> {
        if self.settings.cancel.load(Ordering::Relaxed) {
            return Err(Failure::of(ErrorKind::Cancelled, "the demo was stopped").into());
        }
        Ok(())
    }

    /// Waits for something, unless somebody wants to stop: then it is dropped.
    pub(super) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(Duration::from_millis(50)) => self.go_on()?,
            }
        }
    }

    /// What a workspace may know of this host: the demo's own directories.
    pub(super) fn host_env(&self) -> HostEnv {
        HostEnv {
            state: self.at("state"),
            home: None,
            clock: self.clock.clone(),
        }
    }

    /// The demo's own store, as a host sees it that has this name.
    pub(super) async fn engine(&self, host: &str) -> Result<Engine, Error> {
        let open = Open {
            location: StoreLocation::File(self.at("store")),
            create: true,
            aws: AwsSettings::default(),
            local_dirs: LocalDirs {
                cache: Some(self.at(host).join("cache")),
                state: Some(self.at(host).join("state")),
            },
        };
        Engine::open(open, self.clock.clone(), self.rng.clone()).await
    }

    /// Where a program is, if it is on the search path.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        stasis_quiesce::programs::located(&[name], &self.settings.search_path)
    }

    /// The environment of every program that the demo starts: the search path, and a home in the demo's directory.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let home = self.at("home");
        let variable = |name: &str, value: &OsStr| (name.into(), value.to_owned());
        let mut variables = vec![
            variable("PATH", &self.settings.search_path),
            variable("HOME", home.as_os_str()),
            variable("LC_ALL", OsStr::new("C")),
            variable("GIT_CONFIG_GLOBAL", OsStr::new("/dev/null")),
            variable("GIT_CONFIG_NOSYSTEM", OsStr::new("1")),
        ];
        for name in ["AUTHOR", "COMMITTER"] {
            variables.push(variable(&format!("GIT_{name}_NAME"), OsStr::new("demo")));
            variables.push(variable(
                &format!("GIT_{name}_EMAIL"),
                OsStr::new("demo@localhost"),
            ));
        }
        for name in ["CONFIG", "CACHE", "DATA", "STATE"] {
            variables.push(variable(
                &format!("XDG_{name}_HOME"),
                home.join(name).as_os_str(),
            ));
        }
        variables
    }

    /// Runs a program in a directory to its end, and returns what it printed; a failure has what it said.
    pub(super) fn run(&self, directory: &Path, words: &[&str]) -> Result<String, Error> {
        let [program, arguments @ ..] = words else {
            return Ok(String::new());
        };
        let output = std::process::Command::new(program)
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .envs(self.variables())
            // Ctrl-C is for us: what was begun is finished.
            .process_group(0)
            .stdin(std::process::Stdio::null())
            .output()
            .on("run", words.join(" "))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let failure = Failure::new(ErrorKind::Failed, "run", words.join(" "));
            return Err(failure.because(said).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Removes the directory, unless it is kept; what could not be removed is an error.
    pub(super) fn clear(&self) -> Result<(), Error> {
        if self.settings.keep {
            return Ok(());
        }
        let removed = remove::tree_at(&self.home).map_err(std::io::Error::from);
        Ok(removed.at("remove the directory of the demo", &self.home)?)
    }
}

impl Drop for DemoStage {
    fn drop(&mut self) {
        // Whoever ends the demo as usual has heard of a failure already.
        let _ = self.clear();
    }
}
