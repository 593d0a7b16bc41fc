//! Looks at a directory that stands still, and makes an archive of it.

use super::base::BaseArchive;
use super::command::Capture;
use crate::error::{Error, ProfileError};
use crate::kind::profile::checked;
use crate::kind::profile::contents::{self, CountedContents};
use crate::kind::profile::directory::{database_files, facts, open};
use crate::warning::Warning;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::crypt::DataKey;
use stasis_disk::form::archive::{
    Archive, CreateReport, CreateSettings, EncryptSettings, EncryptedArchive, create_nameless,
    encrypt_nameless,
};
use stasis_disk::tree::survey::{TreeSurvey, survey};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::chrome::{CACHES, DatabaseFiles, LEFT_OUT};
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::{CookieStore, Mode, ProfileManifest};
use stasis_model::id::{ChromeMajor, Label};
use stasis_store::layout::Key;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// How many of the largest directories are named.
const NAMED: usize = 5;

/// A directory that was archived.
pub(super) struct Made {
    pub(super) is_encrypted: bool,
    pub(super) cookie_store: CookieStore,
    pub(super) report: CreateReport,
    pub(super) file: Arc<File>,
    /// Where the store has the archive that it was made from, and how many bytes that has.
    pub(super) base: Option<(Key, u64)>,
    pub(super) chrome_version: Label,
    pub(super) has_crashed: bool,
    pub(super) ended_well: Option<bool>,
    /// The databases that are damaged: then it must not be published.
    pub(super) damaged: Vec<String>,
    /// Which of its files are databases.
    pub(super) files: DatabaseFiles,
    /// What went less well than it should have, such as databases that could not be checked.
    pub(super) unchecked: Vec<Warning>,
    /// What the profile is known by, where it was carried to a newer Chrome.
    pub(super) counted: Option<CountedContents>,
}

impl Made {
    /// Adds the files that were databases in the snapshot before, and are none any more.
    pub(super) fn compare_with(&mut self, before: &ProfileManifest) {
        // Those that are known by their names were judged by the check already.
        let judged = self.files.unrecognised(&[]);
        let all = self.files.unrecognised(&before.sqlite_databases);
        let new = all.into_iter().filter(|path| !judged.contains(path));
        self.damaged.extend(new);
        self.damaged.sort();
        self.damaged.dedup();
    }
}

/// What an archive is made with.
#[derive(Clone)]
pub(super) struct Making {
    pub(super) limit: u64,
    pub(super) major: ChromeMajor,
    pub(super) key: Option<Arc<DataKey>>,
    pub(super) base: Option<BaseArchive>,
}

/// Looks, archives, encrypts.
pub(super) fn make(capture: &Capture, making: &Making, spool: &Path) -> Result<Made, Error> {
    let facts = look(capture, making.limit, making.major)?;
    let files = database_files(&open(&capture.dir)?, &capture.dir)?;
    let (damaged, unchecked) = checked(capture, &files, spool)?;
    let cookie_store = cookie_store(capture, spool);
    let base = making.base.as_ref();
    let settings = settings(capture, base.map(|base| base.archive.clone()));
    let (mut report, mut file) = create_nameless(&capture.dir, spool, &settings)?;
    let counted = capture
        .upgraded_from
        .map(|_| counted(capture, &file, spool));
    let counted = counted.transpose()?;
    if let Some(key) = &making.key {
        let near = base.and_then(|base| base.encrypted.clone());
        (report, file) = encrypted(report, file, key, spool, near)?;
    }
    let base = base.and_then(|base| Some((base.place.clone()?, base.size)));
    Ok(Made {
        is_encrypted: making.key.is_some(),
        cookie_store,
        report,
        file: Arc::new(file),
        base,
        chrome_version: facts.version.map(|(_, full)| full).unwrap_or_default(),
        has_crashed: facts.has_crashed,
        ended_well: facts.ended_well,
        damaged,
        files,
        unchecked,
        counted,
    })
}

/// The checks that a load makes. Of a running browser there is a clone, which was checked when it was made.
fn checked(
    capture: &Capture,
    files: &DatabaseFiles,
    scratch: &Path,
) -> Result<(Vec<String>, Vec<Warning>), Error> {
    if capture.browser.mode == Mode::Hot {
        return Ok((Vec::new(), Vec::new()));
    }
    let settings = CheckSettings {
        cancel: capture.cancel.clone(),
        walk: settings(capture, None).walk,
        ..CheckSettings::new(scratch)
    };
    let report = check::tree(&open(&capture.dir)?, &settings, &capture.spawn)?;
    let damaged = checked::damaged(&report, files);
    Ok((damaged, checked::unchecked(&report)))
}

/// What the profile in an archive that was just made is known by.
fn counted(capture: &Capture, file: &File, scratch: &Path) -> Result<CountedContents, Error> {
    let plain = file.try_clone().at("read", scratch)?;
    let settings = CheckSettings {
        cancel: capture.cancel.clone(),
        ..CheckSettings::new(scratch)
    };
    let archive = Archive::over(Arc::new(plain), scratch)?;
    contents::count(&archive, &settings, &capture.spawn)
}

/// Encrypts an archive that was just made; its report is of the stored bytes from now on, and its digests tell nobody
/// anything who has no key.
fn encrypted(
    report: CreateReport,
    plain: File,
    key: &DataKey,
    spool: &Path,
    base: Option<Arc<EncryptedArchive>>,
) -> Result<(CreateReport, File), Error> {
    let archive = Archive::over(Arc::new(plain), spool)?;
    let settings = EncryptSettings {
        base,
        ..EncryptSettings::default()
    };
    let (encrypted, file) = encrypt_nameless(&archive, key, spool, &settings)?;
    let report = CreateReport {
        archive_sha256: encrypted.archive_sha256,
        stored_bytes: encrypted.stored_bytes,
        tree_digest: key.veil(&report.tree_digest),
        shared: encrypted.shared,
        ..report
    };
    Ok((report, file))
}

fn patterns(capture: &Capture) -> Vec<String> {
    let caches = CACHES.iter().take(if capture.exclude_caches {
        CACHES.len()
    } else {
        0
    });
    LEFT_OUT
        .iter()
        .chain(caches)
        .map(ToString::to_string)
        .collect()
}

fn settings(capture: &Capture, base: Option<Arc<Archive>>) -> CreateSettings {
    CreateSettings {
        base,
        walk: WalkSettings {
            excludes: patterns(capture),
            // What cannot be read, or changes, is no snapshot that may supersede another.
            strict: true,
            cancel: capture.cancel.clone(),
            ..WalkSettings::default()
        },
        progress: capture.progress.clone(),
        ..CreateSettings::default()
    }
}

/// Everything that can be said against a directory before it is read.
pub(in crate::kind::profile) fn look(
    capture: &Capture,
    limit: u64,
    major: ChromeMajor,
) -> Result<stasis_disk::chrome::ProfileFacts, Error> {
    let root = open(&capture.dir)?;
    let facts = facts(&root, &capture.dir)?;
    if let Some((found, _)) = facts.version.as_ref().filter(|(found, _)| *found != major) {
        return Err(ProfileError::OtherMajor {
            dir: capture.dir.clone(),
            asked: major,
            found: *found,
        }
        .into());
    }
    let walk = settings(capture, None).walk;
    let TreeSurvey {
        bytes, directories, ..
    } = survey(&root, &walk, &capture.progress).map_err(|error| Error::Archive(error.into()))?;
    if bytes > limit {
        let largest = directories.into_iter().take(NAMED);
        return Err(ProfileError::TooLarge {
            dir: capture.dir.clone(),
            bytes,
            limit,
            largest: largest
                .map(|(path, bytes)| (path.to_string(), bytes))
                .collect(),
        }
        .into());
    }
    Ok(facts)
}

/// What the key to the cookies is; that nobody can tell is no reason not to save.
fn cookie_store(capture: &Capture, scratch: &Path) -> CookieStore {
    let settings = CheckSettings {
        cancel: capture.cancel.clone(),
        ..CheckSettings::new(scratch)
    };
    let root = open(&capture.dir).ok();
    let known =
        root.and_then(|root| check::sqlite::cookie_store(&root, &settings, &capture.spawn).ok());
    known.unwrap_or_default()
}
