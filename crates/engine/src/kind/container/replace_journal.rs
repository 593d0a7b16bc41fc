//! What is written down before a container is replaced, so that whoever finds it after a crash knows what there was.

use super::{SeenEngine, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded, remove_durably};
use stasis_model::container::status::ContainerStatus;
use stasis_model::failure::AtPath as _;
use stasis_model::id::{ContainerSubject, OpId, SnapshotId, TenantId};
use stasis_quiesce::docker::ContainerHealth;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// No such record is longer.
const LONGEST: u64 = 1 << 20;
/// How the names of such records end.
const ENDING: &str = ".replace.json";

/// A replacement that was begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReplaceJournal {
    /// The restore.
    pub(super) op_id: OpId,
    /// The container that is replaced.
    pub(super) container_id: String,
    /// Its name.
    pub(super) container_name: String,
    /// What it is called meanwhile.
    pub(super) aside: String,
    /// When it was started last: somebody who starts it later may work with it.
    #[serde(default)]
    pub(super) started: String,
    /// What it did.
    pub(super) was: ContainerStatus,
    /// When the engine starts it by itself.
    pub(super) restart_policy: Value,
    /// How the new one shows that it works.
    pub(super) health: JournalHealth,
    /// The store that has its snapshots.
    pub(super) store: String,
    /// Whose they are.
    pub(super) tenant: TenantId,
    /// The snapshot that gets everything of it. There is one for sure once volumes are written to.
    pub(super) safety: SnapshotId,
    /// Whether its volumes may have been written to.
    pub(super) is_filling: bool,
    /// Whether the new one works, and only the old one is left to be removed.
    pub(super) is_done: bool,
    /// Volumes that go with the old one, once it is being removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) copies: Vec<String>,
}

/// How a container shows that it works, as it is written down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournalHealth {
    command: Option<String>,
    running_for_ms: u64,
    total_timeout_ms: u64,
}

impl From<&ContainerHealth> for JournalHealth {
    fn from(health: &ContainerHealth) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            command: health.command.clone(),
            running_for_ms: millis(health.running_for),
            total_timeout_ms: millis(health.total_timeout),
        }
    }
}

impl JournalHealth {
    pub(super) fn health(&self) -> ContainerHealth {
        ContainerHealth {
            command: self.command.clone(),
            running_for: Duration::from_millis(self.running_for_ms),
            total_timeout: Duration::from_millis(self.total_timeout_ms),
            ..ContainerHealth::default()
        }
    }
}

impl ReplaceJournal {
    /// Writes it down.
    pub(super) async fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(self);
        let text = text.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
        let path = path.to_owned();
        Ok(bridge::blocking(move || atomic_write(&path, &text)).await?)
    }

    /// Reads what somebody wrote down.
    pub(super) async fn read(path: &Path) -> Result<Option<Self>, Error> {
        let asked = path.to_owned();
        let text = bridge::blocking(move || match read_bounded(&asked, LONGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.at("read", &asked).map(Some),
        });
        let Some(text) = text.await? else {
            return Ok(None);
        };
        let parsed = serde_json::from_slice(&text);
        parsed.map(Some).map_err(|error| {
            let said = format!("`{}` is damaged: {error}", path.display());
            failure(ErrorKind::Corrupt, said).into()
        })
    }

    /// Nobody needs it any more.
    pub(super) async fn remove(path: &Path) -> Result<(), Error> {
        let path = path.to_owned();
        Ok(bridge::blocking(move || remove_durably(&path)).await?)
    }

    /// Refuses one whose snapshots are in another store: only with that it can be brought back.
    pub(super) fn ensure_of_store(&self, store: &str) -> Result<(), Error> {
        if self.store == store {
            return Ok(());
        }
        let (name, of) = (&self.container_name, &self.store);
        let said = format!(
            "the replacement of `{name}` was interrupted, and what it was is in the store `{of}`"
        );
        let hint = format!("`stasis --store {of} container cleanup` brings it back");
        Err(failure(ErrorKind::Conflict, said).with_hint(hint).into())
    }
}

impl Containers<'_> {
    /// Where is written down that a container is being replaced.
    pub(super) async fn journal_path(
        self,
        seen: &SeenEngine,
        name: &str,
    ) -> Result<PathBuf, Error> {
        let subject = ContainerSubject::new(name, &seen.digits);
        Ok(self.own_place().await?.join(format!("{subject}{ENDING}")))
    }

    /// Refuses the name of a container that comes back under it.
    pub(super) async fn ensure_not_interrupted(
        self,
        seen: &SeenEngine,
        name: &str,
    ) -> Result<(), Error> {
        let path = self.journal_path(seen, name).await?;
        if ReplaceJournal::read(&path).await?.is_none() {
            return Ok(());
        }
        let said = format!("a replacement of `{name}` was interrupted");
        let hint = "`stasis container cleanup` brings it back, or to its end: run that first";
        Err(failure(ErrorKind::Conflict, said).with_hint(hint).into())
    }

    /// The containers of an engine whose replacement was begun and did not end.
    pub(super) async fn interrupted(self, seen: &SeenEngine) -> Result<Vec<String>, Error> {
        let all = self.interruptions(seen).await?;
        Ok(all.into_iter().map(|one| one.container_name).collect())
    }

    /// What is written down of them.
    pub(super) async fn interruptions(
        self,
        seen: &SeenEngine,
    ) -> Result<Vec<ReplaceJournal>, Error> {
        self.journals(&format!(".{}{ENDING}", seen.digits)).await
    }

    /// Snapshots that somebody needs to bring a container back.
    pub(super) async fn needed_to_go_back(self) -> Result<BTreeSet<SnapshotId>, Error> {
        let all = self.journals(ENDING).await?;
        Ok(all.into_iter().map(|one| one.safety).collect())
    }

    async fn journals(self, ending: &str) -> Result<Vec<ReplaceJournal>, Error> {
        let (place, ending) = (self.own_place().await?, ending.to_owned());
        let listed = bridge::blocking(move || {
            let mut paths = Vec::new();
            for entry in std::fs::read_dir(&place).at("list", &place)? {
                let entry = entry.at("list", &place)?;
                if entry.file_name().to_string_lossy().ends_with(&ending) {
                    paths.push(entry.path());
                }
            }
            Ok::<_, Error>(paths)
        });
        let mut all = Vec::new();
        for path in listed.await? {
            all.extend(ReplaceJournal::read(&path).await?);
        }
        Ok(all)
    }
}
