//! The directory that a browser keeps its profile in: what it says of itself, and who works in it.

use crate::bridge;
use crate::error::{Error, ErrorKind, OPEN_DIRECTORY, ProfileError};
use crate::handle::Profiles;
use stasis_disk::chrome::{self, ProfileFacts};
use stasis_disk::fs::atomic_write::make_private_directory;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_model::chrome::DatabaseFiles;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::Lineage;
use stasis_quiesce::browser::{self, DirectoryUser, ProcessRole};
use std::path::{Path, PathBuf};

/// The variable that tells a command where its directory is.
pub(super) const DIR_VARIABLE: &str = "STASIS_PROFILE_DIR";
/// What a browser makes in its user data directory, before anything else.
const PROFILE_NAMES: [&str; 4] = ["Last Version", "Local State", "First Run", "Default"];

/// Where the profiles of a host live, in its state directory.
const PROFILES: &str = "profiles";

impl Profiles<'_> {
    /// Where a profile lives on this host when nobody says otherwise. The directories above it are there afterwards, and nobody
    /// else may look into them: a profile is signed in.
    pub async fn own_dir(self, lineage: &Lineage) -> Result<PathBuf, Error> {
        let Some(state) = self.local_dirs.state.clone() else {
            let said = "there is no place for the profile on this host";
            let failure = Failure::of(ErrorKind::Invalid, said);
            return Err(failure.with_hint("say one with --dir").into());
        };
        let all = state.join(PROFILES);
        let parent = all.join(lineage.tenant.as_str());
        let dir = parent.join(format!("{}@{}", lineage.profile, lineage.major));
        let made = bridge::blocking(move || {
            make_private_directory(&all)?;
            make_private_directory(&parent)
        });
        made.await?;
        Ok(dir)
    }
}

/// Opens the directory of a profile.
pub(super) fn open(dir: &Path) -> Result<RootDir, Error> {
    let root = RootDir::open(dir.components().as_path(), Mounts::Stay);
    Ok(root.at(OPEN_DIRECTORY, dir)?)
}

/// Which files of a profile are databases.
pub(super) fn database_files(root: &RootDir, dir: &Path) -> Result<DatabaseFiles, Error> {
    Ok(chrome::database_files(root).at("read", dir)?)
}

/// What a profile says of itself.
pub(super) fn facts(root: &RootDir, dir: &Path) -> Result<ProfileFacts, Error> {
    Ok(chrome::facts(root).at("read", dir)?)
}

/// Whether a directory is a browser's, as far as its names tell, or is empty.
pub(super) async fn looks_like_a_profile(dir: &Path) -> bool {
    let dir = dir.to_owned();
    bridge::blocking(move || {
        let has = |name: &&str| dir.join(name).symlink_metadata().is_ok();
        let is_empty = std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none());
        is_empty || PROFILE_NAMES.iter().any(has)
    })
    .await
}

/// The browser that works in the directory, its first process first. Who only has a file of it open does not count.
pub(super) async fn users(dir: &Path) -> Result<Vec<DirectoryUser>, Error> {
    let path = dir.to_owned();
    let users = bridge::blocking(move || browser::users_of(&path)).await;
    let failed = |source| ProfileError::Users {
        dir: dir.to_owned(),
        source,
    };
    let users = users.map_err(failed)?.into_iter();
    Ok(users
        .filter(|user| user.role <= ProcessRole::Child)
        .collect())
}

/// Refuses a directory that a browser works in: what is read from it, or put there, would be worth nothing.
pub(super) async fn nobody_uses(dir: &Path) -> Result<(), Error> {
    if !dir.exists() {
        return Ok(());
    }
    match users(dir).await?.first() {
        Some(user) => Err(ProfileError::InUse {
            dir: dir.to_owned(),
            pid: user.process.pid(),
        }
        .into()),
        None => Ok(()),
    }
}
