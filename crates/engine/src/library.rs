//! Stasis as a library: one store with the clock, the randomness and the directories of this host.

use crate::error::{Error, refused};
use crate::keys::TenantKey;
use crate::kind::workspace::{HostEnv, Workspace};
use crate::open::{Engine, Open};
use crate::system::{self, SystemClock, SystemRng};
use crate::undo::{UndoneRestore, undo};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open store; dereferences to its [`Engine`], whose handles have the verbs.
#[derive(Clone, Debug)]
pub struct Stasis {
    engine: Engine,
}

impl Stasis {
    /// Opens the store at a URL: `file:///srv/stasis`, `s3://bucket/prefix` or `memory:`. A directory that is not there is made;
    /// how to get into a bucket is asked of the usual variables and files.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(Open {
            location: url.parse().map_err(Error::bad_location)?,
            create: true,
            aws: system::aws(),
            local_dirs: system::local_dirs(),
        })
        .await
    }

    /// Opens a store without asking the environment anything.
    pub async fn open_with(open: Open) -> Result<Self, Error> {
        let engine = Engine::open(open, Arc::new(SystemClock), Arc::new(SystemRng)).await?;
        Ok(Self { engine })
    }

    /// The same store for a tenant that has a key, for encrypted profiles and directories.
    #[must_use = "the store is not changed in place"]
    pub fn with_key(self, key: TenantKey) -> Self {
        let engine = self.engine.with_key(key);
        Self { engine }
    }

    /// The workspace that a directory is, or lies in.
    pub async fn workspace(&self, directory: &Path) -> Result<Workspace, Error> {
        let state = self.engine.local_dirs.state.clone();
        let no_state = || {
            let asked = Path::new("$XDG_STATE_HOME");
            refused("find the state directory", asked, io::ErrorKind::NotFound)
        };
        let host = HostEnv {
            state: state.ok_or_else(no_state)?,
            home: system::home(),
            clock: Arc::new(SystemClock),
        };
        Workspace::find(directory, &host).await
    }

    /// Brings back what the last restore of a directory replaced; doing it again undoes that.
    pub async fn undo(&self, target: impl Into<PathBuf>) -> Result<UndoneRestore, Error> {
        undo(target.into(), &SystemClock).await
    }
}

impl Deref for Stasis {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}
