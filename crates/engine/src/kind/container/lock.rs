//! One operation on a container at a time, whatever it is called by.

use super::SeenEngine;
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use stasis_disk::fs::atomic_write::{make_private_directory, remove_durably};
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_model::container::subject::engine_digits;
use stasis_model::failure::{AtPath as _, Failure};
use stasis_model::id::ContainerSubject;
use stasis_quiesce::docker::Docker;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A container that is ours alone until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, others may work on the container"]
pub(in crate::kind) struct ContainerLock {
    lock: LockFile,
    path: PathBuf,
}

impl ContainerLock {
    /// Removes its file, too: nobody else has ever looked for one of this name.
    pub(super) async fn forget(self) {
        bridge::blocking(move || {
            let removed = remove_durably(&self.path);
            drop(self.lock);
            if let Err(error) = removed {
                let error = error_chain(&error);
                tracing::info!(error, "a lock that nobody needs is left");
            }
        })
        .await;
    }
}

impl Containers<'_> {
    /// Where this host keeps what it knows of containers.
    pub(super) async fn own_place(self) -> Result<PathBuf, Error> {
        let Some(state) = self.local_dirs.state.clone() else {
            let said = "there is no directory for what this host knows of containers";
            let hint = "set HOME or XDG_STATE_HOME, the same for all who work with this engine";
            return Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into());
        };
        place_in(state).await
    }

    /// What tells this host and store from others that work with the same engine: where its locks are, and where the snapshots. A copy
    /// of a store is another one: it does not know what was saved since.
    pub(super) async fn by(self) -> Result<String, Error> {
        let place = self.own_place().await?;
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let (place, store) = (place.display(), &self.location);
        Ok(engine_digits(&format!("{host} {place} {store}")))
    }

    /// Makes a container ours alone, by the name that the engine has for it, or says who works on it.
    pub(super) async fn lock(
        self,
        seen: &SeenEngine,
        name: &str,
        doing: &str,
    ) -> Result<ContainerLock, Error> {
        let subject = ContainerSubject::new(name, &seen.digits);
        self.lock_subject(subject.as_str(), name, doing).await
    }

    /// The same of one that a label names.
    pub(super) async fn lock_subject(
        self,
        subject: &str,
        name: &str,
        doing: &str,
    ) -> Result<ContainerLock, Error> {
        let place = self.own_place().await?;
        let text = format!(
            "{doing} by process {} since {}",
            std::process::id(),
            self.clock.now()
        );
        take(&place, (subject, name), text).await
    }
}

/// The same for whoever works with a container that he knows as something else, such as what runs a session.
pub(in crate::kind) async fn lock_in(
    state: PathBuf,
    docker: &Docker,
    (name, doing): (&str, &str),
) -> Result<ContainerLock, Error> {
    let engine = docker.engine().await?;
    let subject = ContainerSubject::new(name, &engine_digits(&engine.id));
    let place = place_in(state).await?;
    let text = format!("{doing} by process {}", std::process::id());
    take(&place, (subject.as_str(), name), text).await
}

async fn take(
    place: &Path,
    (subject, name): (&str, &str),
    text: String,
) -> Result<ContainerLock, Error> {
    let path = place.join(format!("{subject}.lock"));
    let taken = path.clone();
    let attempt = bridge::blocking(move || LockFile::take(&taken, &text)).await?;
    match attempt {
        LockAttempt::Taken(lock) => Ok(ContainerLock { lock, path }),
        LockAttempt::Held(holder) => Err(in_use(name, &holder)),
    }
}

/// The place of locks and records, which must be our own: in a directory of somebody else's he could not take our locks, nor we his.
async fn place_in(state: PathBuf) -> Result<PathBuf, Error> {
    let place = state.join("containers");
    bridge::blocking(move || {
        make_private_directory(&place)?;
        let owner = place.metadata().at("look at", &place)?.uid();
        let own = rustix::process::geteuid().as_raw();
        if owner == own {
            return Ok(place);
        }
        let said = format!(
            "`{}` belongs to user {owner}, and this is user {own}: they would not see each other's work",
            place.display()
        );
        let hint = "work as that user, or set XDG_STATE_HOME to a directory of your own";
        Err(Failure::of(ErrorKind::Denied, said).with_hint(hint).into())
    })
    .await
}

/// The beginning of an id, by which people know it.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn in_use(container: &str, holder: &str) -> Error {
    let holder = match holder.trim() {
        "" => "another process",
        holder => holder,
    };
    let said = format!("the container `{container}` is in use: {holder}");
    let hint = "one operation on a container at a time: run it again when that is over";
    Failure::of(ErrorKind::Conflict, said)
        .with_hint(hint)
        .into()
}
