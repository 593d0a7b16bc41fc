//! Makes a snapshot of a directory that stands still, and publishes it under a lease.
//!
//! 1. look: which Chrome wrote it, how large it is; refuse before anything is read
//! 2. check its databases as a load would; archive it into a file without a name, copying the frames that the base has
//! 3. archive, manifest, a listing that shows both
//! 4. publish the pointer, if no database is damaged or missing, the fence is ours and the active snapshot is the base
//!
//! *Always true:* the live directory is only read. A crash before 4 leaves objects that nothing points to; the
//! snapshot before stays the one. What diverged or is damaged stays in the store, unpublished and visible.

mod base;
pub(super) mod command;
mod making;

pub use command::{BrowserState, Capture, ProfileSaved, SaveOutcome};
pub(super) use making::look;
use making::{Made, Making, make};

use super::directory::nobody_uses;
use super::fetch::is_no_room;
use super::millis;
use super::session::SubjectSession;
use crate::bridge;
use crate::error::{Error, LineageError, ProfileError};
use crate::handle::Profiles;
use crate::upload::pieces;
use crate::warning::Warning;
use stasis_disk::form::archive::CreateReport;
use stasis_model::chrome::DatabaseFiles;
use stasis_model::digest::TreeDigest;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::manifest::{
    CRASHED, CapturedBy, CookieStore, ENCRYPTED, Mode, NewProfileManifest, ProfileManifest,
};
use stasis_model::format::pointer::Active;
use stasis_model::id::OpId;
use stasis_model::policy::shrink;
use stasis_model::protocol::step::Refusal;
use stasis_store::bucket::{CopySource, DerivedObject};
use stasis_store::documents::leases::Lease;
use stasis_store::documents::profiles::{LineageSnapshots, NewArchive};
use stasis_store::layout::StoredForm;
use std::ops::Range;
use std::sync::Arc;

/// How many damaged databases a manifest names.
const NAMED: usize = 20;
/// How many sound ones, for its successor to be compared with.
const LISTED: usize = 500;

impl Profiles<'_> {
    /// Captures a directory under a lease that is ours.
    pub(super) async fn capture(
        self,
        capture: &Capture,
        session: &SubjectSession,
    ) -> Result<ProfileSaved, Error> {
        let started = self.clock.uptime();
        let (lease, lineage) = (&session.lease, session.lineage());
        let key = self.key_to_archive(session).await?;
        let near = capture
            .base
            .or(capture.upgraded_from.map(|from| from.sha256));
        let base = self.base_archive(session, near, key.clone()).await;
        let making = Making {
            limit: session.policy.max_profile_bytes,
            major: lineage.major,
            key,
            base,
        };
        let mut made = self.make_somewhere(capture, making).await?;
        if capture.browser.mode == Mode::Cold {
            nobody_uses(&capture.dir).await?;
        }
        let capture_ms = millis(self.clock.uptime().saturating_sub(started));
        let op_id = self.lineages.op_id();
        let mut saved = saved(capture, lease, &made.report, op_id);
        saved.capture_ms = capture_ms;
        let before = self
            .snapshot_before(session, capture, made.report.tree_digest)
            .await?;
        if let Some(before) = &before {
            made.compare_with(before);
        }
        note_findings(&mut saved, capture, &made);
        let tree_digest = made.report.tree_digest;
        if before
            .as_ref()
            .is_some_and(|before| before.tree_digest == tree_digest)
        {
            return Ok(unchanged(saved, capture, &made));
        }
        note_shrinking(&mut saved, before.as_deref(), capture, &made.files);
        let mut manifest = self.manifest_for(capture, lease, &made, op_id);
        let inherited = before.and_then(|base| base.upgraded_from);
        manifest.upgraded_from = capture.upgraded_from.or(inherited);
        let started = self.clock.uptime();
        self.session_key(session).await?;
        let (to, sent) = self.store_snapshot(session, &manifest, &made).await?;
        self.cache_manifest(lineage, &to, &manifest).await;
        saved.bytes_uploaded = sent;
        saved.upload_ms = millis(self.clock.uptime().saturating_sub(started));
        if let Some(cache) = self.archive_cache().await {
            let (file, digest) = (made.file.clone(), manifest.archive_sha256);
            bridge::blocking(move || cache.keep(digest, &file)).await;
        }
        if let Some(from) = capture.upgraded_from {
            let after = made.counted.take();
            let report = self.compare_upgrade(capture, lease, from, after).await;
            saved.upgrade = Some(report);
        }
        self.publish_stored(capture, session, to, &mut saved)
            .await?;
        Ok(saved)
    }

    /// The manifest of the active snapshot, if that is what the directory began as.
    ///
    /// That nothing changed since is an answer that nothing else confirms: unless giving the lease back will, it is given
    /// only of the pointer as it is now.
    async fn snapshot_before(
        self,
        session: &SubjectSession,
        capture: &Capture,
        tree_digest: TreeDigest,
    ) -> Result<Option<Arc<ProfileManifest>>, Error> {
        let pointer = self.session_pointer(session).await?;
        let before = self.active_base(session, pointer, capture.base).await;
        let is_same = |before: &Arc<ProfileManifest>| before.tree_digest == tree_digest;
        if session.ends_with_its_lease() || !before.as_ref().is_some_and(is_same) {
            return Ok(before);
        }
        let pointer = self.session_pointer_now(session).await?;
        Ok(self.active_base(session, pointer, capture.base).await)
    }

    /// Moves the pointer to a snapshot that is stored, unless something speaks against it.
    async fn publish_stored(
        self,
        capture: &Capture,
        session: &SubjectSession,
        to: Active,
        saved: &mut ProfileSaved,
    ) -> Result<(), Error> {
        let lease = &session.lease;
        let has_lost = saved.upgrade.as_ref().is_some_and(|report| report.has_lost);
        let against = if !saved.damaged_databases.is_empty() {
            Some(SaveOutcome::Damaged)
        } else if has_lost {
            Some(SaveOutcome::UpgradeIncomplete)
        } else if saved.shrunk_from.is_some() || !saved.missing_databases.is_empty() {
            Some(SaveOutcome::Shrunk)
        } else if capture.held_back {
            Some(SaveOutcome::Diverged)
        } else {
            None
        };
        if let Some(outcome) = against {
            self.hold_back(capture, lease, outcome, saved).await;
            return Ok(());
        }
        let started = self.clock.uptime();
        self.publish_to(capture, lease, to, saved).await?;
        saved.pointer_flip_ms = millis(self.clock.uptime().saturating_sub(started));
        if saved.outcome.is_published() {
            self.record_upgrade(capture, saved).await;
        }
        Ok(())
    }

    /// Archives a directory into the cache's place; where that cannot be written, elsewhere.
    async fn make_somewhere(self, capture: &Capture, making: Making) -> Result<Made, Error> {
        let cache = self.spool().await;
        let tried = match cache {
            Ok(spool) => {
                let (job, making) = (capture.clone(), making.clone());
                bridge::blocking(move || make(&job, &making, &spool)).await
            }
            Err(error) => Err(error),
        };
        let (error, without) = match (tried, self.without_cache()) {
            (Err(error), Some(without)) if is_no_room(&error) => (error, without),
            (tried, _) => return tried,
        };
        let (job, spool) = (capture.clone(), without.profiles().spool().await?);
        let mut made = bridge::blocking(move || make(&job, &making, &spool)).await?;
        let reason = crate::error::error_chain(&error);
        made.unchecked.push(Warning::CacheSkipped { reason });
        Ok(made)
    }

    fn manifest_for(
        self,
        capture: &Capture,
        lease: &Lease,
        made: &Made,
        op_id: OpId,
    ) -> ProfileManifest {
        let (report, browser) = (&made.report, &capture.browser);
        let version = concat!("stasis-", env!("CARGO_PKG_VERSION"));
        let mut manifest = ProfileManifest::new(NewProfileManifest {
            lineage: lease.lineage.clone(),
            archive_sha256: report.archive_sha256,
            archive_size_bytes: report.stored_bytes,
            tree_digest: report.tree_digest,
            captured_at: self.lineages.now(),
            captured_by: CapturedBy {
                host: capture.holder.host.clone(),
                host_run_id: capture.holder.host_run_id.clone(),
                writer_version: version.parse().expect("a version is a label"),
            },
            op_id,
        });
        manifest.chrome_version = made.chrome_version.clone();
        manifest.uncompressed_size_bytes = report.bytes;
        manifest.file_count = report.files;
        manifest.encoder_id.clone_from(&report.encoder_id);
        manifest.captured_in = capture.captured_in.clone();
        manifest.mode = browser.mode;
        manifest.chrome_uptime_seconds_at_capture = browser.uptime_s;
        manifest.clean_exit = clean_exit(browser, made);
        manifest.ending.clone_from(&browser.ending);
        manifest.freeze_ms = browser.freeze_ms;
        manifest.cookie_store = made.cookie_store;
        manifest.caches_left_out = capture.exclude_caches;
        manifest.checked_at_ms = made.damaged.is_empty().then(|| self.lineages.now());
        manifest.damaged_databases = made.damaged.iter().take(NAMED).cloned().collect();
        manifest.sqlite_databases = made.files.sqlite.iter().take(LISTED).cloned().collect();
        manifest.predecessor_sha256 = capture.base;
        manifest.lease_epoch = lease.fence.epoch;
        if made.is_encrypted {
            manifest.incompat.push(ENCRYPTED.to_owned());
        }
        // What runs says "crashed" of itself until it has ended.
        let crashed = made.has_crashed && browser.mode == Mode::Cold;
        let crashed = crashed.then_some(CRASHED);
        let notes = crashed
            .into_iter()
            .chain((!capture.notes.is_empty()).then_some(&*capture.notes));
        manifest.notes = notes.collect::<Vec<_>>().join("\n");
        manifest
    }

    async fn store_snapshot(
        self,
        session: &SubjectSession,
        manifest: &ProfileManifest,
        made: &Made,
    ) -> Result<(Active, u64), Error> {
        let (lineage, quotas) = (session.lineage(), &session.policy.quotas);
        self.ensure_profile_room(quotas, lineage, manifest).await?;
        let snapshots = LineageSnapshots::of(&*self.bucket, lineage);
        let read = |range: Range<u64>| pieces(made.file.clone(), range);
        let body = || read(0..manifest.archive_size_bytes);
        let derived = made.base.as_ref().map(|(key, size)| DerivedObject {
            size: manifest.archive_size_bytes,
            read: &read,
            source: CopySource {
                key,
                size: *size,
                ranges: &made.report.shared,
            },
        });
        let archive = NewArchive {
            digest: manifest.archive_sha256,
            size: manifest.archive_size_bytes,
            form: if manifest.is_encrypted() {
                StoredForm::Encrypted
            } else {
                StoredForm::Plain
            },
            body: &body,
            derived,
        };
        let stored = snapshots.put_archive(&archive).await?;
        let keys = stored.keys;
        let active = snapshots.put_manifest(manifest, &keys).await;
        let active = active.map_err(ProfileError::from)?;
        if snapshots.is_listed(&keys, archive.size).await? {
            Ok((active, stored.sent))
        } else {
            Err(ProfileError::NotListed(lineage.clone()).into())
        }
    }

    async fn publish_to(
        self,
        capture: &Capture,
        lease: &Lease,
        to: Active,
        saved: &mut ProfileSaved,
    ) -> Result<(), Error> {
        let published = self
            .lineages
            .publish_leased(lease, saved.op_id, capture.base, to)
            .await;
        let refused = match self.operations().settled(published).await {
            Ok(moved) => {
                self.note_pointer(&lease.lineage, &moved.pointer).await;
                return Ok(());
            }
            Err(refused) => refused,
        };
        let Some(Refusal::Diverged { active, .. }) = refusal(&refused) else {
            return Err(refused);
        };
        saved.outcome = SaveOutcome::Diverged;
        saved.active_sha256 = *active;
        let event = self.events().event(
            EventKind::Diverged,
            Severity::Warning,
            &capture.holder.run_id,
        );
        let event = event
            .about(lease.lineage.clone(), saved.op_id)
            .with("sha256", saved.sha256.to_string());
        saved
            .warnings
            .extend(self.events().record(&lease.lineage.tenant, event).await);
        Ok(())
    }

    /// Leaves a snapshot that is stored unpublished, and says so where an operator looks.
    async fn hold_back(
        self,
        capture: &Capture,
        lease: &Lease,
        outcome: SaveOutcome,
        saved: &mut ProfileSaved,
    ) {
        saved.outcome = outcome;
        saved.active_sha256 = lease.base.as_ref().map(|base| base.archive);
        let actor = &capture.holder.run_id;
        let event = self
            .events()
            .event(EventKind::NotPublished, Severity::Warning, actor);
        let event = event
            .about(lease.lineage.clone(), saved.op_id)
            .with("sha256", saved.sha256.to_string())
            .with("because", outcome.to_string());
        let recorded = self.events().record(&lease.lineage.tenant, event).await;
        saved.warnings.extend(recorded);
    }
}

/// Notes what is suspiciously little compared with the snapshot before, unless the user said that this is meant: the number
/// of files, and the databases of logins.
fn note_shrinking(
    saved: &mut ProfileSaved,
    before: Option<&ProfileManifest>,
    capture: &Capture,
    files: &DatabaseFiles,
) {
    let Some(before) = before.filter(|_| !capture.accept_shrink) else {
        return;
    };
    let is_like = before.caches_left_out == capture.exclude_caches;
    let is_suspicious = is_like && shrink::is_suspicious(before.file_count, saved.files);
    saved.shrunk_from = is_suspicious.then_some(before.file_count);
    saved.missing_databases = files.lost_logins(&before.sqlite_databases);
}

/// What the active snapshot is already: nothing is stored.
fn unchanged(saved: ProfileSaved, capture: &Capture, made: &Made) -> ProfileSaved {
    let is_sound = made.damaged.is_empty();
    ProfileSaved {
        is_unchanged: true,
        outcome: if is_sound {
            SaveOutcome::Deduplicated
        } else {
            SaveOutcome::Damaged
        },
        active_sha256: capture.base.filter(|_| !is_sound),
        sha256: capture.base.unwrap_or(saved.sha256),
        ..saved
    }
}

/// Takes over what the capture found out about the browser and its databases.
fn note_findings(saved: &mut ProfileSaved, capture: &Capture, made: &Made) {
    saved.clean_exit = clean_exit(&capture.browser, made);
    if saved.clean_exit == Some(false) && capture.browser.mode == Mode::Cold {
        saved.warnings.push(Warning::BrowserKilled);
    }
    if made.cookie_store == CookieStore::Keyring {
        saved.warnings.push(Warning::CookiesInKeyring);
    }
    saved.warnings.extend(made.unchecked.iter().cloned());
    saved.damaged_databases.clone_from(&made.damaged);
}

/// Whether the browser ended by itself: as we saw it, else as it wrote down when it did.
fn clean_exit(browser: &BrowserState, made: &Made) -> Option<bool> {
    let has_exited = browser
        .ending
        .as_ref()
        .is_some_and(|ending| ending.how == "exited");
    let written = made.ended_well.filter(|_| has_exited);
    browser.clean_exit.or(written)
}

/// Why the rules said no, if they did.
fn refusal(error: &Error) -> Option<&Refusal> {
    match error {
        Error::Lineage(error) => match &**error {
            LineageError::Refused { refusal, .. } => Some(refusal),
            _ => None,
        },
        _ => None,
    }
}

fn saved(capture: &Capture, lease: &Lease, report: &CreateReport, op_id: OpId) -> ProfileSaved {
    let changing = report.walk.skipped_count + report.walk.vanished_count;
    ProfileSaved {
        subject: lease.lineage.clone(),
        outcome: SaveOutcome::Captured,
        sha256: report.archive_sha256,
        predecessor_sha256: capture.base,
        active_sha256: None,
        began_fresh: capture.held_back,
        shrunk_from: None,
        missing_databases: Vec::new(),
        damaged_databases: Vec::new(),
        upgrade: None,
        op_id,
        mode: capture.browser.mode,
        clean_exit: capture.browser.clean_exit,
        ending: capture.browser.ending.clone(),
        freeze_ms: capture.browser.freeze_ms,
        caches_left_out: capture.exclude_caches,
        files: report.files,
        bytes: report.bytes,
        archive_bytes: report.stored_bytes,
        bytes_reused: report.bytes_reused,
        bytes_uploaded: 0,
        capture_ms: 0,
        upload_ms: 0,
        pointer_flip_ms: 0,
        warnings: match changing {
            0 => Vec::new(),
            entries => vec![Warning::EntriesLeftOut { entries }],
        },
        is_unchanged: false,
    }
}
