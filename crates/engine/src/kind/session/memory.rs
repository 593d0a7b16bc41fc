//! What a host remembers of the sessions that were registered or woken on it.
//!
//! Whoever can write to the bucket must not thereby read files of, end processes on, or run programs on every host that puts sessions to sleep.
//! A host remembers what was registered or woken on it, by a digest: session, directory, roots, and the sandbox with its commands. What the
//! store says otherwise is not acted on, unless somebody says that it is trusted.
//!
//! It also remembers the mark of what it starts, before it does: whoever is killed before that is in the store leaves nothing that runs
//! unknown. And whose workspace a directory is.

use super::{SessionHost, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use serde::Serialize;
use stasis_disk::fs::atomic_write::atomic_write;
use stasis_disk::fs::remove;
use stasis_model::digest::StoreDigest;
use stasis_model::failure::AtPath;
use stasis_model::id::SessionRef;
use stasis_model::session::document::{SandboxCommands, SessionDocument};
use std::path::PathBuf;

/// What this host remembers of a session that was registered or woken on it.
fn known_here(document: &SessionDocument) -> impl Serialize + '_ {
    (
        &document.session,
        &document.place.dir,
        &document.roots,
        &document.sandbox,
    )
}

/// Whether a session is as it was registered or woken on this host.
pub(super) async fn is_known_here(host: &SessionHost, document: &SessionDocument) -> bool {
    is_remembered(host, &known_here(document)).await
}

/// Remembers that a session was registered or woken on this host.
pub(super) async fn remember_session(
    host: &SessionHost,
    document: &SessionDocument,
) -> Result<(), Error> {
    remember(host, &known_here(document)).await?;
    let note = HostNote::workspace(host, &document.place.dir);
    note.write(&document.session.to_string()).await
}

/// Remembers that commands of a session were typed here.
pub(super) async fn remember_commands(
    host: &SessionHost,
    session: &SessionRef,
    commands: &SandboxCommands,
) -> Result<(), Error> {
    if commands.is_empty() {
        return Ok(());
    }
    remember(host, &(session, commands)).await
}

fn place_of(host: &SessionHost, what: &impl Serialize) -> Option<PathBuf> {
    let text = serde_json::to_vec(what).ok()?;
    let digest = StoreDigest::of(&text).to_string();
    let state = host.state.as_ref()?;
    Some(state.join("sessions").join(digest))
}

/// A small text that this host keeps about something.
struct HostNote(Option<PathBuf>);

impl HostNote {
    /// The mark of what was last started for a session.
    fn started(host: &SessionHost, session: &SessionRef) -> Self {
        Self(place_of(host, &("started", session)))
    }

    /// Whose workspace a directory is.
    fn workspace(host: &SessionHost, dir: &str) -> Self {
        Self(place_of(host, &("workspace", dir)))
    }

    async fn read(self) -> Option<String> {
        let path = self.0?;
        let text = bridge::blocking(move || std::fs::read_to_string(path)).await;
        text.ok().map(|text| text.trim().to_owned())
    }

    async fn write(self, text: &str) -> Result<(), Error> {
        let Some(path) = self.0 else {
            return Ok(());
        };
        let text = format!("{text}\n");
        let written = bridge::blocking(move || atomic_write(&path, text.as_bytes()));
        Ok(written.await?)
    }

    async fn remove(self) -> Result<(), Error> {
        let Some(path) = self.0 else {
            return Ok(());
        };
        let removed = bridge::blocking(move || remove::file_at(&path).at("remove", &path));
        Ok(removed.await?)
    }
}

/// The mark of what was started last for a session on this host and is not known to have ended.
pub(super) async fn started(host: &SessionHost, session: &SessionRef) -> Option<String> {
    HostNote::started(host, session).read().await
}

/// Remembers the mark of what is about to be started.
pub(super) async fn remember_started(
    host: &SessionHost,
    session: &SessionRef,
    mark: &str,
) -> Result<(), Error> {
    HostNote::started(host, session).write(mark).await
}

/// Nothing runs any more that was started for a session.
pub(super) async fn forget_started(host: &SessionHost, session: &SessionRef) -> Result<(), Error> {
    HostNote::started(host, session).remove().await
}

/// Whose workspace a directory of this host is, as far as this host knows.
pub(super) async fn workspace_of(host: &SessionHost, dir: &str) -> Option<SessionRef> {
    let text = HostNote::workspace(host, dir).read().await?;
    text.parse().ok()
}

/// Says that a directory is already the workspace of another session.
pub(super) fn is_of_another(dir: &str, other: &SessionRef) -> Error {
    let said = format!("`{dir}` is the workspace of `{other}`");
    let hint = format!(
        "give each session a directory of its own, or `stasis session delete {other}` if that one is not needed any more"
    );
    failure(ErrorKind::Conflict, said).with_hint(hint).into()
}

pub(super) async fn is_remembered(host: &SessionHost, what: &impl Serialize) -> bool {
    match place_of(host, what) {
        Some(path) => bridge::blocking(move || path.exists()).await,
        None => false,
    }
}

async fn remember(host: &SessionHost, what: &impl Serialize) -> Result<(), Error> {
    let Some(path) = place_of(host, what) else {
        return Ok(());
    };
    let written = bridge::blocking(move || atomic_write(&path, b"known\n"));
    Ok(written.await?)
}
