//! The socket that clients connect to.
//!
//! To open one at a path:
//!
//! 1. open its directory, which must be ours alone to write to; lock it, so that two who start at once do not take each other's
//! 2. what is there and is no socket is refused; a socket that somebody answers at is refused; one that nobody answers at is removed
//! 3. bind with a mask that leaves the socket to its owner from its first moment
//!
//! *Always true:* nobody but the owner of the process, and root, can connect. A crash leaves a socket at which nobody answers, which
//! the next one replaces. At the end only the socket that we made is removed.

use super::{Server, Stop};
use anyhow::{Context as _, bail};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// The most clients at once.
const CLIENTS: usize = 64;
/// How long nobody is let in after the system had no room for another one.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen: `unix:PATH`.
#[derive(Clone, Debug)]
pub(crate) struct Address(PathBuf);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self(PathBuf::from(path))),
            _ => Err("an address is unix:PATH".to_owned()),
        }
    }
}

/// A socket of ours.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    directory: OwnedFd,
    name: OsString,
    made: Stat,
    path: PathBuf,
}

impl Socket {
    /// Opens the socket at an address.
    pub(crate) fn open(address: &Address) -> anyhow::Result<Self> {
        let path = std::path::absolute(&address.0)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("`{}` cannot be a socket", path.display());
        };
        let name = name.to_owned();
        let directory = own_directory(parent)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)
            .with_context(|| format!("could not lock `{}`", parent.display()))?;
        make_room(&directory, &name, &path)?;
        let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(mask);
        let listener =
            bound.with_context(|| format!("could not listen at `{}`", path.display()))?;
        let made = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::flock(&directory, FlockOperation::Unlock)?;
        Ok(Self {
            listener,
            directory,
            name,
            made,
            path,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Serves everybody who connects, until it is time to stop; whoever is connected then is served to the end of their calls.
    pub(crate) async fn serve(&self, server: &Server, mut stop: Stop) {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.asked() => break,
                connected = self.listener.accept() => match connected {
                    Ok((stream, _)) if clients.len() < CLIENTS => {
                        clients.spawn(one(server.for_another(), stream, stop.clone()));
                    }
                    Ok(_) => tracing::warn!(clients = clients.len(), "there are too many clients; one was sent away"),
                    Err(error) => {
                        tracing::warn!(%error, "a client could not be let in");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = clients.join_next(), if !clients.is_empty() => {}
            }
        }
        while clients.join_next().await.is_some() {}
    }
}

/// A client that says nonsense ends its own connection and nobody else's.
async fn one(server: Server, stream: UnixStream, stop: Stop) {
    let (read, write) = stream.into_split();
    if let Err(error) = server.serve(read, write, stop).await {
        tracing::warn!(error = format!("{error:#}"), "a client was sent away");
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours = |now: &Stat| (now.st_dev, now.st_ino) == (self.made.st_dev, self.made.st_ino);
        let now = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if now.as_ref().is_ok_and(is_ours) {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Opens a directory in which nobody else can make or move anything.
fn own_directory(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())
        .with_context(|| format!("could not open the directory `{}`", path.display()))?;
    let stat = rustix::fs::fstat(&directory)?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours || stat.st_mode & 0o022 != 0 {
        bail!(
            "`{}` is no place for a socket: it must belong to you, and nobody else may write to it",
            path.display()
        );
    }
    Ok(directory)
}

/// Removes a socket at which nobody answers; anything else that is there stays, and is in the way.
fn make_room(directory: &OwnedFd, name: &OsString, path: &Path) -> anyhow::Result<()> {
    let there = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => there,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("could not look at `{}`", path.display()));
        }
    };
    if FileType::from_raw_mode(there.st_mode) != FileType::Socket {
        bail!("`{}` is there and is no socket", path.display());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("somebody listens at `{}` already", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())
                .with_context(|| format!("could not remove the old socket `{}`", path.display()))
        }
        Err(error) => Err(error)
            .with_context(|| format!("could not find out who listens at `{}`", path.display())),
    }
}

#[cfg(test)]
mod tests;
