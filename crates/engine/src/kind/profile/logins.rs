//! Where a profile seems to be signed in, read from a snapshot: no browser is started, and no value is read.

use super::contents;
use super::locate::Wanted;
use crate::address::as_typed;
use crate::bridge;
use crate::check::Spawn;
use crate::error::Error;
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::{self, CheckSettings, PartlyRead};
use stasis_disk::form::archive::Archive;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_model::logins::{self, SiteLogin};
use stasis_model::time::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Which snapshot is looked into.
#[derive(Clone, Debug)]
pub struct InspectProfile {
    /// Of what.
    pub subject: ProfileRef,
    /// Which.
    pub wanted: Wanted,
    /// A directory for copies of databases.
    pub scratch: PathBuf,
    /// How the process that opens databases is started.
    pub spawn: Spawn,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

/// Where a profile seems to be signed in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileLogins {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    pub subject: Lineage,
    /// Which snapshot was looked into.
    pub sha256: ArchiveDigest,
    /// When that was captured.
    pub captured_at_ms: Timestamp,
    /// What the judgement of expired cookies is about.
    pub at_ms: Timestamp,
    /// One for each host with cookies that outlast the browser.
    #[serde(rename = "items")]
    pub sites: Vec<SiteLogin>,
    /// What could not be looked into, and why.
    pub unread: Vec<String>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// A snapshot that was brought here to be looked into.
pub(super) struct InspectedSnapshot {
    pub(super) lineage: Lineage,
    pub(super) sha256: ArchiveDigest,
    pub(super) captured_at: Timestamp,
    pub(super) archive: Archive,
}

impl Profiles<'_> {
    /// Says where a profile seems to be signed in.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.subject))]
    pub async fn logins(self, cmd: &InspectProfile) -> Result<ProfileLogins, Error> {
        let snapshot = self.inspected(cmd).await?;
        let (settings, spawn) = (check_settings(cmd), cmd.spawn.clone());
        let archive = snapshot.archive;
        let read = bridge::blocking(move || -> Result<_, Error> {
            let entries = contents::entries(&archive, &settings)?;
            Ok(check::cookie_facts(&archive, &entries, &settings, &spawn)?)
        });
        let PartlyRead { found, unread } = read.await?;
        let at_ms = self.lineages.now();
        Ok(ProfileLogins {
            subject: snapshot.lineage,
            sha256: snapshot.sha256,
            captured_at_ms: snapshot.captured_at,
            at_ms,
            sites: logins::judge(found, at_ms),
            unread,
            warnings: self.clock_warnings(),
        })
    }

    /// The archive of the snapshot that is meant, on this host.
    pub(super) async fn inspected(self, cmd: &InspectProfile) -> Result<InspectedSnapshot, Error> {
        let lineage = self.one_lineage(&cmd.subject).await?;
        let inventory = self.sound_inventory(&lineage).await?;
        let captured_at = inventory
            .wanted_whole(&cmd.wanted, &*self.clock)?
            .manifest
            .captured_at_ms;
        let (sha256, archive) = self.opened(&inventory, &cmd.wanted).await?;
        Ok(InspectedSnapshot {
            lineage,
            sha256,
            captured_at,
            archive,
        })
    }
}

pub(super) fn check_settings(cmd: &InspectProfile) -> CheckSettings {
    CheckSettings {
        cancel: cmd.cancel.clone(),
        ..CheckSettings::new(&cmd.scratch)
    }
}
