//! What a host remembers of the sessions that were registered or woken on it.
//!
//! Whoever can write to the bucket must not thereby read files of, end processes on, or run programs on every host that puts sessions to sleep.
//! A host remembers what was registered or woken on it, by a digest: session, directory, roots, and the sandbox with its commands. What the
//! store says otherwise is not acted on, unless somebody says that it is trusted.
//!
//! It also remembers the mark of what it starts, before it does: whoever is killed before that is in the store leaves nothing that runs
//! unknown. And whose workspace a directory is, and which directory that was: an empty one in its place is not taken for it. And which
//! sessions said that they run in a sandbox of a name, which one that says the same may join; who really does is known to the store.

use super::{SessionHost, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, make_directory};
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::fs::remove;
use stasis_model::digest::StoreDigest;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::{Label, SandboxName, SessionRef, TenantId};
use stasis_model::session::document::{Sandbox, SandboxCommands, SessionDocument};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    note.write(&format!("{session}\n{identity}\n{}", host.name))
        .await?;
    let Some(state) = &host.state else {
        return Ok(());
    };
    let name = digest_of(&dir);
    let above = Path::new(dir).ancestors().skip(1);
    let notes: Vec<PathBuf> = above
        .map(|above| below_of(state, &above.to_string_lossy()).join(&name))
        .collect();
    let text = format!("{dir}\n");
    let written = bridge::blocking(move || {
        let new = notes.into_iter().filter(|note| !note.exists());
        let mut new = new.map(|note| atomic_write(&note, text.as_bytes()));
        new.try_for_each(|written| written)
    });
    Ok(written.await?)
}

/// Where the workspaces are noted that lie somewhere in a directory.
fn below_of(state: &Path, dir: &str) -> PathBuf {
    let name = digest_of(&("below", dir));
    state.join("sessions").join(format!("{name}.below"))
}

/// Whose workspace a directory is, or was.
struct WorkspaceNote {
    session: SessionRef,
    /// Which directory it was; empty when it was not there yet.
    identity: String,
    /// What this host was called then.
    host: String,
}

impl WorkspaceNote {
    async fn of(host: &SessionHost, dir: &str) -> Option<Self> {
        let text = HostNote::workspace(host, dir).read().await?;
        let mut lines = text.lines();
        Some(Self {
            session: lines.next()?.parse().ok()?,
            identity: lines.next()?.to_owned(),
            host: lines.next()?.to_owned(),
        })
    }
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
    let note = WorkspaceNote::of(host, dir).await?;
    let is = identity(dir).await?;
    Some(note.session == *session && note.identity == is)
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

/// The sessions that said on this host that they run in a sandbox of a name.
pub(super) async fn members(
    host: &SessionHost,
    document: &SessionDocument,
    name: &SandboxName,
) -> Vec<SessionRef> {
    let (tenant, at) = (&document.session.tenant, &document.place.host);
    let Some(state) = host.state.as_deref() else {
        return Vec::new();
    };
    let texts = texts_in(members_of(state, tenant, at, name)).await;
    let all = texts.iter().filter_map(|text| text.parse().ok());
    all.collect()
}

/// What is noted in the files of a directory.
async fn texts_in(dir: PathBuf) -> Vec<String> {
    let read = bridge::blocking(move || {
        let entries = dir.read_dir().into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        texts.map(|text| text.trim_end().to_owned()).collect()
    });
    read.await
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

/// What was started last for a session on this host and is not known to have ended.
#[derive(Serialize, Deserialize)]
pub(super) struct StartedNote {
    /// The mark that it was started with.
    pub(super) mark: String,
    /// What it was to be.
    pub(super) sandbox: Sandbox,
}

/// What was started last for a session on this host.
pub(super) async fn started(host: &SessionHost, session: &SessionRef) -> Option<StartedNote> {
    let text = HostNote::started(host, session).read().await?;
    serde_json::from_str(&text).ok()
}

/// Remembers what is about to be started, and its mark.
pub(super) async fn remember_started(
    host: &SessionHost,
    session: &SessionRef,
    (mark, sandbox): (&str, &Sandbox),
) -> Result<(), Error> {
    let note = StartedNote {
        mark: mark.to_owned(),
        sandbox: sandbox.clone(),
    };
    let text = serde_json::to_string(&note).unwrap_or_default();
    HostNote::started(host, session).write(&text).await
}

/// Nothing runs any more that was started with a mark for a session.
pub(super) async fn forget_started(
    host: &SessionHost,
    session: &SessionRef,
    mark: &str,
) -> Result<(), Error> {
    let note = started(host, session).await;
    if note.is_none_or(|note| note.mark != mark) {
        return Ok(());
    }
    HostNote::started(host, session).remove().await
}

/// What commands reach was ended, whoever of a session started it.
pub(super) async fn forget_ended(
    host: &SessionHost,
    session: &SessionRef,
    ended: &Sandbox,
) -> Result<(), Error> {
    let note = started(host, session).await;
    let is_this = |note: &StartedNote| {
        let one = &note.sandbox;
        let ends_so = one.commands.terminate == ended.commands.terminate;
        one.name == ended.name && one.driver == ended.driver && ends_so
    };
    if !note.as_ref().is_some_and(is_this) {
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

/// A workspace that this host knows.
pub(super) struct KnownWorkspace {
    /// Whose.
    pub(super) session: SessionRef,
    /// Where.
    pub(super) dir: String,
    /// What this host was called when it was last said to be one.
    pub(super) host: String,
}

/// The workspaces that this host knows at a directory, around it, and in it.
pub(super) async fn workspaces_at(host: &SessionHost, dir: &str) -> Vec<KnownWorkspace> {
    let mut places: Vec<String> = Path::new(dir)
        .ancestors()
        .map(|above| above.to_string_lossy().into_owned())
        .collect();
    if let Some(state) = &host.state {
        places.extend(texts_in(below_of(state, dir)).await);
    }
    let mut all = Vec::new();
    for place in places {
        let note = WorkspaceNote::of(host, &place).await;
        all.extend(note.map(|note| KnownWorkspace {
            session: note.session,
            dir: place,
            host: note.host,
        }));
    }
    all
}

/// Whether a directory of this host is known as the workspace of a session.
pub(super) async fn is_workspace_of(host: &SessionHost, session: &SessionRef, dir: &str) -> bool {
    let note = WorkspaceNote::of(host, dir).await;
    note.is_some_and(|note| note.session == *session)
}

/// How a lock of this host is waited for.
#[derive(Clone, Copy)]
pub(super) struct LockWait<'w> {
    /// For how long.
    pub(super) longest: Duration,
    /// Set by anybody to give up.
    pub(super) cancel: Option<&'w AtomicBool>,
}

impl LockWait<'_> {
    /// It is free, or somebody else's.
    pub(super) fn not_at_all() -> Self {
        Self {
            longest: Duration::ZERO,
            cancel: None,
        }
    }

    fn is_cancelled(&self) -> bool {
        let cancel = self.cancel;
        cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    fn is_over(&self, waited: Duration) -> bool {
        waited >= self.longest || self.is_cancelled()
    }

    /// What is said when it is over.
    pub(super) fn refusal(&self, said: String) -> Failure {
        if self.is_cancelled() {
            return failure(ErrorKind::Cancelled, "it was given up while it waited");
        }
        let hint = "try again when it is done; one that is stopped must be continued or killed";
        failure(ErrorKind::Conflict, said).with_hint(hint)
    }
}

/// A lock that whoever changes the workspace of a session on this host holds; none if another process has it.
pub(super) async fn try_lock(
    host: &SessionHost,
    session: &SessionRef,
    wait: LockWait<'_>,
) -> Result<Option<HostLock>, Error> {
    lock_at(place_of(host, &("lock", &host.name, session)), wait).await
}

/// The same; it is an error if another process has it.
pub(super) async fn lock(
    host: &SessionHost,
    session: &SessionRef,
    wait: LockWait<'_>,
) -> Result<HostLock, Error> {
    let locked = try_lock(host, session, wait).await?;
    locked.ok_or_else(|| {
        let said = format!("another process on this host works on the workspace of `{session}`");
        wait.refusal(said).into()
    })
}

/// A lock that whoever starts a sandbox of a tenant on this host holds until it is known to run; none if another process has it.
pub(super) async fn try_lock_sandbox(
    host: &SessionHost,
    (tenant, name): (&TenantId, &SandboxName),
    wait: LockWait<'_>,
) -> Result<Option<HostLock>, Error> {
    lock_at(place_of(host, &("lock", &host.name, tenant, name)), wait).await
}

async fn lock_at(path: Option<PathBuf>, wait: LockWait<'_>) -> Result<Option<HostLock>, Error> {
    const LOOK: Duration = Duration::from_millis(50);
    let Some(path) = path else {
        return Ok(Some(HostLock(None)));
    };
    let mut waited = Duration::ZERO;
    loop {
        let path = path.clone();
        let locked = bridge::blocking(move || {
            if let Some(above) = path.parent() {
                make_directory(above)?;
            }
            LockFile::try_take(&path)
        });
        if let Some(lock) = locked.await? {
            return Ok(Some(HostLock(Some(lock))));
        }
        if wait.is_over(waited) {
            return Ok(None);
        }
        tokio::time::sleep(LOOK).await;
        waited += LOOK;
    }
}

/// Held until it is dropped.
pub(super) struct HostLock(#[expect(dead_code, reason = "dropped in the end")] Option<LockFile>);

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
