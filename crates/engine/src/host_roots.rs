//! Directories of this host beneath which a server reads and writes for others, and the places in them.
//!
//! 1. each root is opened when the server starts, and stays open   2. a path is taken apart as text: it begins with the name of a root, goes
//!    on beneath it, and has no `..`   3. the directory above its last name is opened from the root, through no symbolic link
//! 4. whatever is done there goes through that open directory (`HostPlace::path`), and its last name is followed by nobody
//!
//! *Always true:* what is read or written lies in a directory that was reached from a root alone, whoever exchanges names for links before,
//! between or after these steps. Somebody who moves that very directory out of the root while something is done in it has moved what is
//! done there with it. A filesystem that is mounted beneath a root belongs to it.

use crate::address::DIR_PREFIX;
use crate::bridge;
use crate::error::{Error, ErrorKind, OPEN_DIRECTORY};
use crate::kind::project::namesakes::fitting;
use crate::kind::project::{self, FILE, Home, Project};
use crate::open::Engine;
use stasis_disk::fs::root_dir::{self, Mounts, RootDir};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::TenantId;
use stasis_store::location::StoreLocation;
use stasis_sys::descriptor;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The directories of this host beneath which a server may act.
#[derive(Clone, Debug, Default)]
pub struct HostRoots {
    all: Vec<Arc<HostRoot>>,
}

#[derive(Debug)]
struct HostRoot {
    /// As it was named, and without links.
    names: [PathBuf; 2],
    dir: RootDir,
}

/// A name in an open directory beneath a root.
#[derive(Clone, Debug)]
pub struct HostPlace {
    parent: Arc<OwnedFd>,
    name: CString,
}

/// Why nothing is done at a path. What else there is on the host follows from neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RefusedPath {
    /// There are no roots.
    #[error("this server has no roots: it reads and writes no directories of its host")]
    NoRoots,
    /// It is none beneath a root.
    #[error(
        "this is no path beneath a root of the server: such a path is absolute, has neither `..` nor a symbolic link in it, and the directory above its last name is there"
    )]
    Outside,
}

impl HostRoots {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What each is called, as the server was given it.
    pub fn named(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|root| root.names[0].as_path())
    }

    /// The place that a path names.
    pub async fn place(&self, asked: &str) -> Result<HostPlace, RefusedPath> {
        if self.is_empty() {
            return Err(RefusedPath::NoRoots);
        }
        let (root, way) = self.split(Path::new(asked)).ok_or(RefusedPath::Outside)?;
        let opened = bridge::blocking(move || root.place(&way)).await;
        opened.ok_or(RefusedPath::Outside)
    }

    /// The root that a path lies beneath, and the way from there.
    fn split(&self, asked: &Path) -> Option<(Arc<HostRoot>, PathBuf)> {
        if !asked.is_absolute() || asked.components().any(|one| one == Component::ParentDir) {
            return None;
        }
        let names = self
            .all
            .iter()
            .flat_map(|root| root.names.iter().map(move |name| (root, name)));
        let around = names.filter_map(|(root, name)| Some((root, asked.strip_prefix(name).ok()?)));
        // Of roots that lie in one another, the nearest.
        let (root, way) = around.min_by_key(|(_, way)| way.as_os_str().len())?;
        way.file_name()?;
        Some((root.clone(), way.components().collect()))
    }
}

impl HostRoot {
    fn open(named: &Path) -> Result<Self, Error> {
        let invalid = |said: String| Error::from(Failure::of(ErrorKind::Invalid, said));
        let shown = named.display();
        if !named.is_absolute() {
            return Err(invalid(format!("the root `{shown}` is no absolute path")));
        }
        let whole = named.canonicalize().at("open the root", named)?;
        if whole.parent().is_none() {
            let said = format!("the root `{shown}` is the whole host: name a directory in it");
            return Err(invalid(said));
        }
        let dir = RootDir::open(&whole, Mounts::Cross).at("open the root", named)?;
        Ok(Self {
            names: [named.components().collect(), whole],
            dir,
        })
    }

    fn place(&self, way: &Path) -> Option<HostPlace> {
        let name = CString::new(way.file_name()?.as_bytes()).ok()?;
        let above = way.parent().unwrap_or(Path::new("")).as_os_str();
        let parent = self.dir.directory(above.as_bytes()).ok()?;
        let seen = root_dir::find(&parent, &name).ok()?;
        if seen.is_some_and(|seen| seen.file_type().is_symlink()) {
            return None;
        }
        Some(HostPlace {
            parent: Arc::new(parent),
            name,
        })
    }
}

impl HostPlace {
    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.to_bytes())
    }

    /// A path that leads there through the open directory, whatever the names above it lead to by now; for as long as this is kept.
    pub(crate) fn path(&self) -> PathBuf {
        descriptor::link_to(&*self.parent).join(self.name())
    }

    /// What it is called now, by which this host remembers it.
    fn whole_path(&self) -> Result<PathBuf, Error> {
        let above = descriptor::path_of(&*self.parent).at("find", "the directory above")?;
        Ok(above.join(self.name()))
    }
}

/// A path without links, of something that need not be there yet: on a new host nothing of ours is.
fn whole_of(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    found.unwrap_or_else(|| path.to_owned())
}

impl Engine {
    /// Opens the roots of this host; none of them may have to do with the store or with what this host keeps for itself.
    pub async fn host_roots(&self, named: &[PathBuf]) -> Result<HostRoots, Error> {
        let (named, mut own) = (named.to_vec(), Vec::new());
        if let StoreLocation::File(store) = &self.location {
            own.push(store.clone());
        }
        own.extend(self.local_dirs.state.clone());
        own.extend(self.local_dirs.cache.clone());
        bridge::blocking(move || {
            let roots = named.iter().map(|named| HostRoot::open(named));
            let roots = roots.collect::<Result<Vec<_>, Error>>()?;
            for root in &roots {
                let [named, whole] = &root.names;
                let mut own = own.iter().map(|own| whole_of(own));
                let meets = |own: &PathBuf| own.starts_with(whole) || whole.starts_with(own);
                if let Some(own) = own.find(meets) {
                    let (named, own) = (named.display(), own.display());
                    let said = format!(
                        "the root `{named}` and `{own}`, where Stasis keeps data of its own, overlap"
                    );
                    return Err(Failure::of(ErrorKind::Invalid, said).into());
                }
            }
            let all = roots.into_iter().map(Arc::new).collect();
            Ok(HostRoots { all })
        })
        .await
    }

    /// The directory at a place as a subject of a tenant, called so or to be called so by its first save; read through the place alone.
    ///
    /// One with a file of ours is refused: that names programs and places, and whoever may write to the directory wrote it.
    pub async fn directory_at(
        &self,
        tenant: &TenantId,
        name: &str,
        place: &HostPlace,
        host: project::Host,
    ) -> Result<Project, Error> {
        let name = name.strip_prefix(DIR_PREFIX).unwrap_or(name);
        let (whole, opening) = (place.whole_path()?, place.clone());
        let is_declared = bridge::blocking(move || {
            let path = opening.path();
            let opened = RootDir::open(&path, Mounts::Stay);
            let opened = opened.and_then(|root| root.directory(b""));
            let file = CString::new(FILE).expect("it has no NUL");
            let found = opened.and_then(|opened| root_dir::find(opened, &file));
            Ok::<_, Error>(found.at(OPEN_DIRECTORY, &path)?.is_some())
        });
        let is_declared = is_declared.await?;
        let home = Home::find(&whole, self.local_dirs.state.as_deref()).await?;
        if is_declared || home.declared.is_some() {
            let said = format!(
                "the directory has a file {FILE}, and what that names (programs, servers, other directories) is only used by somebody on the host: `stasis save` there"
            );
            return Err(Failure::of(ErrorKind::Invalid, said).into());
        }
        if home.dir != whole {
            let said = "the directory was moved meanwhile";
            return Err(Failure::of(ErrorKind::Retry, said).into());
        }
        self.ensure_called(tenant, name, &home).await?;
        Ok(self.project(home, tenant, host))
    }

    /// Refuses a directory that is not the subject of that name, and would not become it.
    async fn ensure_called(&self, tenant: &TenantId, name: &str, home: &Home) -> Result<(), Error> {
        let refused = |said: String, hint: &'static str| -> Result<(), Error> {
            let failure = Failure::of(ErrorKind::Invalid, said);
            Err(failure.with_hint(hint).into())
        };
        let is_called = !fitting(std::slice::from_ref(&home.id), name).is_empty();
        if home.is_known() {
            if is_called {
                return Ok(());
            }
            let said = format!("the directory at that path is another subject than `{name}`");
            return refused(said, "`stasis list` on the host shows which it is");
        }
        let all = self.directories(Some(tenant)).await?;
        let ids: Vec<_> = all.into_iter().map(|(_, _, id)| id).collect();
        if !fitting(&ids, name).is_empty() {
            let said = format!(
                "the directory at that path was never saved from this host, and there is another subject `{name}`"
            );
            return refused(said, "`stasis link` on the host makes it that subject");
        }
        if is_called {
            return Ok(());
        }
        let said = format!(
            "the directory at that path was never saved from this host, and would not be called `{name}`"
        );
        refused(said, "the first save calls it what its last name is")
    }
}

#[cfg(test)]
mod tests;
