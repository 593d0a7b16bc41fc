//! What a host remembers of the sessions that were registered or woken on it.
//!
//! Whoever can write to the bucket must not thereby read files of, end processes on, or run programs on every host that puts sessions to sleep.
//! A host remembers what was registered or woken on it, by a digest: session, directory, roots, and the sandbox with its commands. What the
//! store says otherwise is not acted on, unless somebody says that it is trusted.
//!
//! It also remembers the mark of what it starts, before it does: whoever is killed before that is in the store leaves nothing that runs
//! unknown. And whose workspace a directory is, and which directory that was: an empty one in its place is not taken for it. And which
//! sessions said that they run in a sandbox, so that whoever ends it need not read all sessions of the tenant to know.

use super::{SessionHost, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use serde::Serialize;
use stasis_disk::fs::atomic_write::{atomic_write, make_directory};
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::fs::remove;
use stasis_model::digest::StoreDigest;
use stasis_model::failure::AtPath;
use stasis_model::id::{Label, SandboxName, SessionRef, TenantId};
use stasis_model::session::document::{SandboxCommands, SandboxDriver, SessionDocument};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// How many workspaces are remembered that lie somewhere in a directory, the newest.
const BELOW: usize = 100;

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
    HostNote::had(host, &document.session).write("here").await?;
    remember_workspace(host, &document.session, &document.place.dir).await?;
    if let (Some(sandbox), Some(state)) = (&document.sandbox, &host.state) {
        let (tenant, session) = (&document.session.tenant, &document.session);
        let members = members_of(state, tenant, &document.place.host, &sandbox.name);
        let member = members.join(digest_of(session));
        let text = format!("{session}\n");
        bridge::blocking(move || atomic_write(&member, text.as_bytes())).await?;
        let first = HostNote::process(host, &sandbox.driver);
        if first.0.is_some() && process_of(host, &sandbox.driver).await.is_none() {
            first.write(&session.to_string()).await?;
        }
    }
    Ok(())
}

/// Whether a session was ever registered or woken on this host.
pub(super) async fn had(host: &SessionHost, session: &SessionRef) -> bool {
    HostNote::had(host, session).read().await.is_some()
}

/// Remembers whose workspace a directory is, before anything is put into it, and after.
pub(super) async fn remember_workspace(
    host: &SessionHost,
    session: &SessionRef,
    dir: &str,
) -> Result<(), Error> {
    let identity = identity(dir).await.unwrap_or_default();
    let note = HostNote::workspace(host, dir);
    note.write(&format!("{session} {identity}")).await?;
    for above in Path::new(dir).ancestors().skip(1) {
        let above = above.to_string_lossy();
        let known = HostNote::below(host, &above).read().await;
        let known = known.unwrap_or_default();
        if known.lines().any(|one| one == dir) {
            continue;
        }
        let newest = known.lines().rev().take(BELOW - 1);
        let mut all: Vec<&str> = newest.collect();
        all.reverse();
        all.push(dir);
        HostNote::below(host, &above).write(&all.join("\n")).await?;
    }
    Ok(())
}

/// What tells a directory from another one that is later called the same.
async fn identity(dir: &str) -> Option<String> {
    let dir = PathBuf::from(dir);
    let seen = bridge::blocking(move || dir.metadata()).await.ok()?;
    let made = seen.created().ok();
    let made = made.and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    let made = made.unwrap_or_default().as_nanos();
    Some(format!("{}:{}:{made}", seen.dev(), seen.ino()))
}

/// Whether a directory is the one that was a session's workspace; nothing where nobody remembers.
pub(super) async fn is_same_workspace(
    host: &SessionHost,
    session: &SessionRef,
    dir: &str,
) -> Option<bool> {
    let text = HostNote::workspace(host, dir).read().await?;
    let (of, was) = text.split_once(' ')?;
    let is = identity(dir).await?;
    Some(of == session.to_string() && was == is)
}

fn digest_of(what: &impl Serialize) -> String {
    let text = serde_json::to_vec(what).unwrap_or_default();
    StoreDigest::of(&text).to_string()
}

fn members_of(state: &Path, tenant: &TenantId, host: &Label, name: &SandboxName) -> PathBuf {
    let sandbox = digest_of(&("sandbox", tenant, host, name));
    state.join("sessions").join(format!("{sandbox}.members"))
}

/// A session that is no more, or does not run in a sandbox any more, is not looked at again.
pub(super) async fn forget_member(
    host: &SessionHost,
    document: &SessionDocument,
    (name, member): (&SandboxName, &SessionRef),
) {
    let (tenant, at) = (&document.session.tenant, &document.place.host);
    let Some(state) = host.state.as_deref() else {
        return;
    };
    let path = members_of(state, tenant, at, name).join(digest_of(member));
    if let Err(error) = bridge::blocking(move || remove::file_at(&path)).await {
        tracing::debug!(%member, %error, "a note of this host was not removed");
    }
}

/// The sessions that said on this host that they run in a sandbox; nothing where this host remembers nothing.
pub(super) async fn members(
    host: &SessionHost,
    document: &SessionDocument,
    name: &SandboxName,
) -> Option<Vec<SessionRef>> {
    let (tenant, at) = (&document.session.tenant, &document.place.host);
    let members = members_of(host.state.as_deref()?, tenant, at, name);
    let read = bridge::blocking(move || {
        let entries = members.read_dir().into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        let all = texts.filter_map(|text| text.trim().parse().ok());
        all.collect::<Vec<SessionRef>>()
    });
    Some(read.await)
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
    let state = host.state.as_ref()?;
    Some(state.join("sessions").join(digest_of(what)))
}

/// A small text that this host keeps about something.
struct HostNote(Option<PathBuf>);

impl HostNote {
    /// The mark of what was last started for a session.
    fn started(host: &SessionHost, session: &SessionRef) -> Self {
        Self(place_of(host, &("started", &host.name, session)))
    }

    /// A workspace that lies somewhere in a directory.
    fn below(host: &SessionHost, dir: &str) -> Self {
        Self(place_of(host, &("below", dir)))
    }

    /// Which session a process is the sandbox of; whatever commands reach is nobody's alone.
    fn process(host: &SessionHost, driver: &SandboxDriver) -> Self {
        Self(match driver {
            SandboxDriver::Process { .. } => place_of(host, &("process", driver)),
            SandboxDriver::Command => None,
        })
    }

    /// That a session was on this host.
    fn had(host: &SessionHost, session: &SessionRef) -> Self {
        Self(place_of(host, &("had", &host.name, session)))
    }

    /// What the last wake of a session on this host replaced, and where.
    fn woken(host: &SessionHost, session: &SessionRef) -> Self {
        Self(place_of(host, &("woken", &host.name, session)))
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
    Some(started_in(host, session).await?.0)
}

/// The same with the sandbox that it was.
pub(super) async fn started_in(
    host: &SessionHost,
    session: &SessionRef,
) -> Option<(String, SandboxName)> {
    let text = HostNote::started(host, session).read().await?;
    let (mark, name) = text.split_once(' ')?;
    Some((mark.to_owned(), name.parse().ok()?))
}

/// Remembers the mark of what is about to be started.
pub(super) async fn remember_started(
    host: &SessionHost,
    session: &SessionRef,
    (mark, name): (&str, &SandboxName),
) -> Result<(), Error> {
    let note = HostNote::started(host, session);
    note.write(&format!("{mark} {name}")).await
}

/// Nothing runs any more that was started with a mark for a session.
pub(super) async fn forget_started(
    host: &SessionHost,
    session: &SessionRef,
    mark: &str,
) -> Result<(), Error> {
    if started(host, session).await.as_deref() != Some(mark) {
        return Ok(());
    }
    HostNote::started(host, session).remove().await
}

/// Remembers where that is kept which a wake has replaced.
pub(super) async fn remember_woken(
    host: &SessionHost,
    session: &SessionRef,
    dir: &str,
    backup: &str,
) -> Result<(), Error> {
    let note = HostNote::woken(host, session);
    note.write(&format!("{dir}\n{backup}")).await
}

/// The last wake has replaced nothing.
pub(super) async fn forget_woken(host: &SessionHost, session: &SessionRef) -> Result<(), Error> {
    HostNote::woken(host, session).remove().await
}

/// In which directory the last wake replaced something, and where that is.
pub(super) async fn woken(host: &SessionHost, session: &SessionRef) -> Option<(String, String)> {
    let text = HostNote::woken(host, session).read().await?;
    let (dir, backup) = text.split_once('\n')?;
    Some((dir.to_owned(), backup.to_owned()))
}

/// Sessions whose workspaces this host knows at a directory, around it, and in it.
pub(super) async fn workspaces_at(host: &SessionHost, dir: &str) -> Vec<(SessionRef, String)> {
    let mut places: Vec<String> = Path::new(dir)
        .ancestors()
        .map(|above| above.to_string_lossy().into_owned())
        .collect();
    let below = HostNote::below(host, dir).read().await;
    places.extend(below.unwrap_or_default().lines().map(str::to_owned));
    let mut all = Vec::new();
    for place in places {
        let text = HostNote::workspace(host, &place).read().await;
        let session = text.as_deref().and_then(|text| text.split(' ').next());
        if let Some(session) = session.and_then(|session| session.parse().ok()) {
            all.push((session, place));
        }
    }
    all
}

/// Whether a directory of this host is known as the workspace of a session.
pub(super) async fn is_workspace_of(host: &SessionHost, session: &SessionRef, dir: &str) -> bool {
    let text = HostNote::workspace(host, dir).read().await;
    let of = text.as_deref().and_then(|text| text.split(' ').next());
    of == Some(&*session.to_string())
}

/// A lock that whoever starts something for a session on this host holds.
pub(super) async fn lock(host: &SessionHost, session: &SessionRef) -> Result<HostLock, Error> {
    let Some(path) = place_of(host, &("lock", &host.name, session)) else {
        return Ok(HostLock(None));
    };
    let locked = bridge::blocking(move || {
        if let Some(above) = path.parent() {
            make_directory(above)?;
        }
        LockFile::wait(&path)
    });
    Ok(HostLock(Some(locked.await?)))
}

/// Held until it is dropped.
pub(super) struct HostLock(#[expect(dead_code, reason = "dropped in the end")] Option<LockFile>);

/// The session that named a process as its sandbox on this host.
pub(super) async fn process_of(host: &SessionHost, driver: &SandboxDriver) -> Option<SessionRef> {
    let text = HostNote::process(host, driver).read().await?;
    text.parse().ok()
}

/// Says that a directory is already the workspace of another session, or lies in it or around it.
pub(super) fn is_of_another(dir: &str, place: &str, other: &SessionRef) -> Error {
    let said = if dir == place {
        format!("`{dir}` is the workspace of `{other}`")
    } else if Path::new(dir).starts_with(place) {
        format!("`{dir}` lies in the workspace of `{other}`")
    } else {
        format!("the workspace of `{other}` lies in `{dir}`")
    };
    let hint = format!(
        "give each session a directory of its own, or `stasis session delete {other} --confirm` if that one is not needed any more"
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
