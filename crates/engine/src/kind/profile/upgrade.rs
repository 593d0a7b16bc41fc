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

use super::capture::command::{Capture, ProfileSaved};
use super::contents::{CountedContents, UpgradeReport, count};
use super::load::command::{FallbackReason, ProfileLoad, ProfileLoaded};
use super::load::judge::{LoadFailure, pointer_failure};
use crate::bridge;
use crate::error::{Error, ProfileError, error_chain};
use crate::handle::Profiles;
use crate::warning::Warning;
use stasis_disk::check::CheckSettings;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::format::pointer::Active;
use stasis_model::id::{ChromeMajor, Lineage};
use stasis_model::upgrade::{self, Ancestor, ProfileCounts, UpgradeSource, UpgradeWish};
use stasis_store::documents::leases::Lease;
use stasis_store::documents::profiles::{self, LineageSnapshots, StoredSnapshot};
use std::collections::BTreeSet;

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

/// The active snapshot of an older major.
struct Older {
    lineage: Lineage,
    active: Active,
    manifest: ProfileManifest,
}

impl Profiles<'_> {
    /// The other majors of a profile that have an active snapshot.
    async fn other_actives(self, asked: &Lineage) -> Result<Vec<(Lineage, Active)>, Error> {
        let mut others = Vec::new();
        for lineage in
            profiles::lineages_of_profile(&*self.bucket, &asked.tenant, &asked.profile).await?
        {
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
    pub(super) async fn has_no_other_major(self, lineage: &Lineage) -> bool {
        let others = self.other_actives(lineage).await;
        others.is_ok_and(|others| others.is_empty())
    }

    /// Decides which snapshot a load takes; `None` when the profile has none at all.
    pub(super) async fn choose(
        self,
        load: &ProfileLoad,
        own: Option<Active>,
    ) -> Result<Option<Chosen>, LoadFailure> {
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
        let policy = self.tenants().policy(&load.lineage.tenant).await;
        let policy = policy.map_err(LoadFailure::unreachable)?.on_major_upgrade;
        let wanted = load.lineage.major;
        match upgrade::source(wanted, own.is_some(), &majors, load.upgrade, policy) {
            UpgradeSource::Own | UpgradeSource::Nothing => Ok(None),
            UpgradeSource::Carry(major) => {
                let mut others = others.into_iter();
                let found = others.find(|(lineage, _)| lineage.major == major);
                Ok(found.map(|(lineage, active)| Chosen {
                    lineage,
                    active,
                    carried: Some(own.map(|own| own.archive)),
                }))
            }
            UpgradeSource::Refused(why) => {
                let error = ProfileError::OnlyOtherMajors {
                    asked: load.lineage.clone(),
                    others: others.into_iter().map(|(lineage, _)| lineage).collect(),
                    why,
                };
                let failure = LoadFailure::new(FallbackReason::VersionMismatch, error);
                Err(if is_named { failure.insists() } else { failure })
            }
        }
    }

    /// What a run should know of other versions of its browser before it begins with this snapshot, or with none.
    ///
    /// What differs between them only a load finds out, which has both: see [`Self::not_carried`].
    pub(super) async fn other_majors(
        self,
        lineage: &Lineage,
        own: Option<&ProfileManifest>,
    ) -> Option<Warning> {
        // What is damaged of others is theirs to say.
        let others = self.other_actives(lineage).await.ok()?;
        let Some(own) = own else {
            let others: Vec<String> = others.iter().map(|(one, _)| one.to_string()).collect();
            let subject = lineage.to_string();
            return (!others.is_empty()).then_some(Warning::OnlyOtherMajors { subject, others });
        };
        let carried = own.upgraded_from.map(|from| from.sha256);
        let mut newest: Option<ProfileManifest> = None;
        for (other, active) in others {
            if carried == Some(active.archive) {
                continue;
            }
            let snapshots = LineageSnapshots::of(&*self.bucket, &other);
            let Ok(manifest) = snapshots.manifest(&active).await else {
                continue;
            };
            let since = newest.as_ref().unwrap_or(own).captured_at_ms;
            if manifest.captured_at_ms > since {
                newest = Some(manifest);
            }
        }
        newest.map(|newest| Warning::OtherMajorIsNewer {
            subject: lineage.to_string(),
            major: lineage.major,
            other: newest.lineage().to_string(),
            sha256: newest.archive_sha256.prefix(),
        })
    }

    /// A word about the snapshot of an older major that has something which this one lacks. `None` where a user would miss
    /// nothing: it is what this lineage was carried from, or older than that, or keeps no site signed in that this one does not.
    pub(super) async fn not_carried(
        self,
        load: &ProfileLoad,
        loaded: &ProfileLoaded,
    ) -> Option<Warning> {
        let older = self
            .newest_older(&load.lineage, loaded.upgraded_from)
            .await?;
        let missing = match self.missing_from(load, loaded, &older).await {
            Ok(missing) => missing,
            Err(error) => {
                let (error, older) = (error_chain(&error), &older.lineage);
                tracing::info!(error, %older, "an older major was not compared");
                return None;
            }
        };
        if missing.is_empty() {
            return None;
        }
        Some(Warning::OlderMajorNotCarried {
            subject: load.lineage.to_string(),
            older: older.lineage.to_string(),
            older_major: older.lineage.major.into(),
            sha256: older.active.archive.prefix(),
            missing: missing.into_iter().take(NAMED).collect(),
        })
    }

    /// The active snapshot of an older major that was captured last, if that was after the one this lineage was carried from.
    async fn newest_older(self, asked: &Lineage, carried: Option<Ancestor>) -> Option<Older> {
        let others = self.other_actives(asked).await.ok()?.into_iter();
        let is_new = |active: &Active| carried.is_none_or(|from| from.sha256 != active.archive);
        let others = others.filter(|(one, active)| one.major < asked.major && is_new(active));
        let mut newest: Option<Older> = None;
        for (lineage, active) in others {
            let snapshots = LineageSnapshots::of(&*self.bucket, &lineage);
            let Ok(manifest) = snapshots.manifest(&active).await else {
                continue;
            };
            let at = manifest.captured_at_ms;
            if newest
                .as_ref()
                .is_none_or(|newest| newest.manifest.captured_at_ms < at)
            {
                newest = Some(Older {
                    lineage,
                    active,
                    manifest,
                });
            }
        }
        let newest = newest?;
        let Some(from) = carried else {
            return Some(newest);
        };
        // An ancestor that gc has removed is older than everything that there is.
        let ancestor = self.ancestor(asked, from).await.ok();
        let carried_at = ancestor.map(|found| found.manifest.captured_at_ms);
        let is_later = carried_at.is_none_or(|at| at < newest.manifest.captured_at_ms);
        is_later.then_some(newest)
    }

    /// The sites and origins that an older snapshot has, and the one that was loaded lacks.
    async fn missing_from(
        self,
        load: &ProfileLoad,
        loaded: &ProfileLoaded,
        older: &Older,
    ) -> Result<BTreeSet<String>, Error> {
        let mut stored = LineageSnapshots::of(&*self.bucket, &load.lineage)
            .all()
            .await?;
        stored
            .snapshots
            .retain(|one| Some(one.active.archive) == loaded.sha256);
        let Some(own) = stored.snapshots.pop() else {
            return Ok(BTreeSet::new());
        };
        let spool = self.spool().await?;
        let mut known = Vec::new();
        for (manifest, active) in [
            (&older.manifest, &older.active),
            (&own.manifest, &own.active),
        ] {
            let archive = self.fetch_archive(manifest, active, &load.cancel).await?;
            let settings = CheckSettings {
                cancel: load.cancel.clone(),
                ..CheckSettings::new(&spool)
            };
            let spawn = load.spawn.clone();
            let counted = bridge::blocking(move || count(&archive, &settings, &spawn)).await?;
            known.push(counted.known);
        }
        Ok(known[0].missing_in(&known[1], self.lineages.now()))
    }

    /// Compares a profile after its migration with the snapshot it was carried from.
    pub(super) async fn compare_upgrade(
        self,
        capture: &Capture,
        lease: &Lease,
        from: Ancestor,
        after: Option<CountedContents>,
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
            Err(error) => report.unread.push(error_chain(&error)),
        }
        report.unread.extend(after.unread);
        report.unread.truncate(NAMED);
        report
    }

    /// What the ancestor is known by.
    async fn count_ancestor(
        self,
        capture: &Capture,
        lineage: &Lineage,
        from: Ancestor,
    ) -> Result<CountedContents, Error> {
        let found = self.ancestor(lineage, from).await?;
        let archive = self.fetch_archive(&found.manifest, &found.active, &capture.cancel);
        let archive = archive.await?;
        let settings = CheckSettings {
            cancel: capture.cancel.clone(),
            ..CheckSettings::new(self.spool().await?)
        };
        let spawn = capture.spawn.clone();
        bridge::blocking(move || count(&archive, &settings, &spawn)).await
    }

    /// The snapshot that a lineage was carried from.
    async fn ancestor(self, lineage: &Lineage, from: Ancestor) -> Result<StoredSnapshot, Error> {
        let older = Lineage {
            major: from.chrome_major,
            ..lineage.clone()
        };
        let all = LineageSnapshots::of(&*self.bucket, &older).all().await?;
        let mut all = all.snapshots.into_iter();
        let found = all.find(|one| one.active.archive == from.sha256);
        let missing = || ProfileError::NoSnapshot {
            wanted: from.sha256.prefix(),
            subject: older.clone().into(),
        };
        Ok(found.ok_or_else(missing)?)
    }

    /// Says where an operator looks that a profile was carried.
    pub(super) async fn record_upgrade(self, capture: &Capture, saved: &mut ProfileSaved) {
        let Some(report) = &saved.upgrade else {
            return;
        };
        let actor = &capture.holder.run_id;
        let shown = |counts: Option<ProfileCounts>| counts.map(|counts| counts.to_string());
        let event = self
            .events()
            .event(EventKind::ProfileUpgraded, Severity::Info, actor)
            .about(saved.subject.clone(), saved.op_id)
            .with("from_chrome_major", report.from.chrome_major.to_string())
            .with("from_sha256", report.from.sha256.to_string())
            .with("sha256", saved.sha256.to_string())
            .with("before", shown(report.before).unwrap_or_default())
            .with("after", shown(report.after).unwrap_or_default());
        if report.before.is_none() || !report.unread.is_empty() {
            let reason = report.unread.join("; ");
            saved.warnings.push(Warning::UpgradeNotCompared { reason });
        }
        let recorded = self.events().record(&saved.subject.tenant, event).await;
        saved.warnings.extend(recorded);
    }
}
