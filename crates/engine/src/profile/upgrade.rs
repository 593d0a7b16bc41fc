//! Carries a profile to a newer Chrome.
//!
//! 1. load: the lineage has no snapshot, and an older major has one: that one becomes the directory
//! 2. the browser migrates it, as browsers do when they start
//! 3. save: count cookies and origins in the older archive and in the new one
//! 4. publish under the new major, with the older snapshot as its ancestor; or, when there are fewer, store and do not
//!
//! *Always true:* the older lineage is only read. The new one is published from the base that it had when it was loaded,
//! as a rule none: of two hosts that carry at once, one owns the lease, and without leases the second one diverges. A
//! crash before 4 leaves a lineage without a snapshot, and the next run carries again; after 4 it is restored like any
//! other. The rules are in [`stasis_model::upgrade`].

use super::capture::{Capture, ProfileSaved};
use super::error::ProfileError;
use super::load::{FallbackReason, ProfileLoad};
use super::refusal::OperatorError;
use crate::bridge;
use crate::check::Spawn;
use crate::error::{Error, whole};
use crate::open::Engine;
use crate::warning::Warning;
use serde::Serialize;
use stasis_disk::archive::{Archive, ArchiveError, ReadSettings};
use stasis_disk::check::{self, CheckSettings, IdentityError};
use stasis_model::digest::ArchiveDigest;
use stasis_model::event::{EventKind, Severity};
use stasis_model::id::{ChromeMajor, Lineage};
use stasis_model::pointer::Active;
use stasis_model::tree::EntryKind;
use stasis_model::upgrade::{self, Ancestor, Counts, Known, Source, UpgradeWish};
use stasis_store::leases::Lease;
use stasis_store::profiles::{self, Snapshots};

use super::load::judge::{Failure, pointer_failure};

/// How many sites that lost something are named.
const NAMED: usize = 10;

/// Which snapshot a load takes, and what a save of it supersedes.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    /// Of which lineage: the one that was asked for, or that of an older major.
    pub(super) lineage: Lineage,
    /// The snapshot.
    pub(super) active: Active,
    /// Whether it is of an older major, and what was active under the major that was asked for.
    #[expect(
        clippy::option_option,
        reason = "carried in the place of nothing is not the same as not carried"
    )]
    pub(super) carried: Option<Option<ArchiveDigest>>,
}

/// What a profile is known by, and what of it could not be read.
#[derive(Debug, Default)]
pub(super) struct Counted {
    known: Known,
    unread: Vec<String>,
}

/// How a profile came through the migration to a newer Chrome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UpgradeReport {
    /// What it was carried from.
    pub from: Ancestor,
    /// What it was known by; `None` when that could not be counted.
    pub before: Option<Counts>,
    /// What it is known by; `None` when that could not be counted.
    pub after: Option<Counts>,
    /// Whether there is less than before.
    pub has_lost: bool,
    /// Sites and origins of which something is missing, the first few.
    pub missing: Vec<String>,
    /// What could not be counted, and why.
    pub unread: Vec<String>,
}

impl Engine {
    /// The other majors of a profile that have an active snapshot.
    async fn other_actives(&self, asked: &Lineage) -> Result<Vec<(Lineage, Active)>, Error> {
        let mut others = Vec::new();
        for lineage in profiles::lineages_of_profile(&*self.bucket, asked).await? {
            if lineage == *asked {
                continue;
            }
            let pointer = self.lineages.pointer(&lineage).await?;
            let active = pointer.and_then(|pointer| pointer.value.active);
            others.extend(active.map(|active| (lineage, active)));
        }
        Ok(others)
    }

    /// Whether no other Chrome has a snapshot of the profile, as far as can be told.
    pub(super) async fn has_no_other_major(&self, lineage: &Lineage) -> bool {
        let others = self.other_actives(lineage).await;
        others.is_ok_and(|others| others.is_empty())
    }

    /// Decides which snapshot a load takes; `None` when the profile has none at all.
    pub(super) async fn choose(
        &self,
        load: &ProfileLoad,
        own: Option<Active>,
    ) -> Result<Option<Chosen>, Failure> {
        let is_named = matches!(load.upgrade, UpgradeWish::From(_));
        if let Some(active) = own.clone().filter(|_| !is_named) {
            let lineage = load.lineage.clone();
            let carried = None;
            return Ok(Some(Chosen {
                lineage,
                active,
                carried,
            }));
        }
        let others = self.other_actives(&load.lineage).await;
        let others = others.map_err(pointer_failure)?;
        let majors: Vec<ChromeMajor> = others.iter().map(|(lineage, _)| lineage.major).collect();
        let policy = self.policy(&load.lineage.tenant).await;
        let policy = policy.map_err(Failure::unreachable)?.on_major_upgrade;
        let wanted = load.lineage.major;
        match upgrade::source(wanted, own.is_some(), &majors, load.upgrade, policy) {
            Source::Own | Source::Nothing => Ok(None),
            Source::Carry(major) => {
                let mut others = others.into_iter();
                let found = others.find(|(lineage, _)| lineage.major == major);
                Ok(found.map(|(lineage, active)| Chosen {
                    lineage,
                    active,
                    carried: Some(own.map(|own| own.archive)),
                }))
            }
            Source::Refused(why) => {
                let error = ProfileError::OnlyOtherMajors {
                    asked: load.lineage.clone(),
                    others: others.into_iter().map(|(lineage, _)| lineage).collect(),
                    why,
                };
                let failure = Failure::new(FallbackReason::VersionMismatch, error);
                Err(if is_named { failure.insists() } else { failure })
            }
        }
    }

    /// A word at every load, when an older major has a snapshot that this lineage does not derive from.
    pub(super) async fn not_carried(&self, asked: &Lineage) -> Option<Warning> {
        let others = self.other_actives(asked).await.ok()?;
        let older = others
            .into_iter()
            .filter(|(one, _)| one.major < asked.major);
        let (older, active) = older.max_by_key(|(one, _)| one.major)?;
        Some(Warning::OlderMajorNotCarried {
            subject: asked.to_string(),
            older: older.to_string(),
            older_major: older.major.into(),
            sha256: active.archive.prefix(),
        })
    }

    /// Compares a profile after its migration with the snapshot it was carried from.
    pub(super) async fn compare_upgrade(
        &self,
        capture: &Capture,
        lease: &Lease,
        from: Ancestor,
        after: Option<Counted>,
    ) -> UpgradeReport {
        let before = self.count_ancestor(capture, &lease.lineage, from).await;
        let now = self.lineages.now();
        let mut report = UpgradeReport {
            from,
            before: None,
            after: None,
            has_lost: false,
            missing: Vec::new(),
            unread: Vec::new(),
        };
        let after = after.unwrap_or_default();
        report.after = Some(after.known.count(now));
        match before {
            Ok(before) => {
                let counts = before.known.count(now);
                let missing = before.known.missing_in(&after.known, now);
                report.missing = missing.into_iter().take(NAMED).collect();
                report.before = Some(counts);
                // What was readable before and is not now is lost, as far as anybody can tell.
                report.has_lost = upgrade::has_lost(counts, after.known.count(now))
                    || (before.unread.is_empty() && !after.unread.is_empty());
                report.unread = before.unread;
            }
            Err(error) => report.unread.push(whole(&error)),
        }
        report.unread.extend(after.unread);
        report.unread.truncate(NAMED);
        report
    }

    /// What the ancestor is known by.
    async fn count_ancestor(
        &self,
        capture: &Capture,
        lineage: &Lineage,
        from: Ancestor,
    ) -> Result<Counted, Error> {
        let older = Lineage {
            major: from.chrome_major,
            ..lineage.clone()
        };
        let all = Snapshots::of(&*self.bucket, &older).all().await?;
        let mut all = all.snapshots.into_iter();
        let found = all.find(|one| one.active.archive == from.sha256);
        let found = found.ok_or_else(|| OperatorError::NoSnapshot {
            wanted: from.sha256.prefix(),
            subject: older.clone().into(),
        })?;
        let archive = self.fetch_archive(&found.manifest, &found.active, &capture.cancel);
        let archive = archive.await?;
        let settings = CheckSettings {
            cancel: capture.cancel.clone(),
            ..CheckSettings::new(self.profile_spool().await?)
        };
        let spawn = capture.spawn.clone();
        bridge::blocking(move || count(&archive, &settings, &spawn)).await
    }

    /// Says where an operator looks that a profile was carried.
    pub(super) async fn record_upgrade(&self, capture: &Capture, saved: &mut ProfileSaved) {
        let Some(report) = &saved.upgrade else {
            return;
        };
        let actor = &capture.holder.run_id;
        let told = |counts: Option<Counts>| counts.map(|counts| counts.to_string());
        let event = self
            .event(EventKind::ProfileUpgraded, Severity::Info, actor)
            .about(saved.subject.clone(), saved.op_id)
            .with("from_chrome_major", report.from.chrome_major.to_string())
            .with("from_sha256", report.from.sha256.to_string())
            .with("sha256", saved.sha256.to_string())
            .with("before", told(report.before).unwrap_or_default())
            .with("after", told(report.after).unwrap_or_default());
        if report.before.is_none() || !report.unread.is_empty() {
            let reason = report.unread.join("; ");
            saved.warnings.push(Warning::UpgradeNotCompared { reason });
        }
        let recorded = self.record(&saved.subject.tenant, event).await;
        saved.warnings.extend(recorded);
    }
}

/// What the profile in an archive is known by.
pub(super) fn count(
    archive: &Archive,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Counted, Error> {
    let mut entries = Vec::new();
    let reading = ReadSettings {
        cancel: settings.cancel.clone(),
        ..ReadSettings::default()
    };
    archive.list(&reading, |entry| {
        let size = match entry.kind {
            EntryKind::File { size } => size,
            _ => 0,
        };
        entries.push((entry.path.clone(), size));
        Ok::<_, ArchiveError>(())
    })?;
    let identity = check::identity(archive, &entries, settings, spawn);
    let identity = identity.map_err(|error| match error {
        IdentityError::Archive(error) => Error::from(error),
        IdentityError::Check(error) => error.into(),
        error => Error::NoArchive(error.to_string()),
    })?;
    let local = identity.local_storage.iter();
    let local = local.map(|origin| format!("{origin} (localStorage)"));
    let indexed = identity.indexed_db.iter();
    let indexed = indexed.map(|origin| format!("{origin} (IndexedDB)"));
    Ok(Counted {
        known: Known {
            cookies: identity.lives,
            origins: local.chain(indexed).collect(),
        },
        unread: identity.unread,
    })
}
