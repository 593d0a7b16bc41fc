//! Makes a directory the profile that a lineage points to; or says, loudly, that it is a fresh one.
//!
//! 1. pointer, manifest, versions, sizes, policy: nothing is downloaded before all of these agree
//! 2. the archive: the one that this host has kept, or from the store, of which only changed frames travel
//! 3. the tree, beside the directory; its databases, where they lie; meanwhile the digest of the archive
//! 4. the swap: the directory is the old one or the verified new one, and the old one is kept
//! 5. the record beside the directory, from which a later save takes its base
//!
//! In 3 the archive is unpacked before its digest is known, as what it is then: something that anybody may have written,
//! which the unpacker and the checks of databases take every archive for. When the digest is another one, what was
//! unpacked is removed, whether it looked well or not; an archive that was kept is forgotten, and 2 begins again at the
//! store; one from the store is refused.
//!
//! A lineage without a snapshot takes that of the newest older major, if the tenant's policy lets it: see
//! [`upgrade`](super::upgrade).
//!
//! An active snapshot that is damaged is passed over, where nobody said what to do then: the newest older one that comes
//! back is loaded instead, under an outcome of its own. It is also the base then, so that what comes of it diverges from
//! the damaged one until somebody has chosen.
//!
//! *Always true:* a fresh profile is never called restored, and has no base, so that what comes of it cannot supersede a
//! snapshot. An outage never reads as "there is no snapshot". Nothing that was in the directory is wiped. There is no
//! swap before the digest of all stored bytes agreed.

pub(super) mod command;
pub(super) mod judge;
mod placing;

pub use command::{
    FallbackReason, LoadOutcome, OnFailure, ProfileLoad, ProfileLoaded, UpgradeWish,
};

use judge::{Fit, LoadFailure, fetch_failure, fit, manifest_failure, pointer_failure};
use placing::{Outcome, Placing};

use super::checked::unchecked;
use super::directory::{looks_like_a_profile, nobody_uses};
use super::fetch::{Fetched, Proof, Supply, WantedArchive, another, is_no_room};
use super::locate::Wanted;
use super::record::Record;
use super::unsaved;
use super::upgrade::Chosen;
use crate::bridge;
use crate::error::{Error, ErrorKind, ProfileError, error_chain};
use crate::handle::Profiles;
use crate::warning::Warning;
use stasis_disk::tree::restore::{
    PlacedTree, Placement, RestoreOrigin, RestoreStage, RestoredTree,
};
use stasis_disk::tree::write::WriteSettings;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::pointer::Active;
use stasis_model::id::Lineage;
use stasis_model::time::Timestamp;
use stasis_model::upgrade::Ancestor;
use stasis_store::documents::profiles::LineageSnapshots;
use std::path::PathBuf;
use std::time::Duration;

/// How many older snapshots are tried in the place of a damaged one.
const OLDER_TRIED: usize = 3;
/// What a record says of a directory that a browser works in.
const RUNNING: &str = "running";

/// More than a filesystem's clock lags behind.
const TICK: Duration = Duration::from_millis(20);

impl Profiles<'_> {
    /// Loads what the lineage points to now.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %load.lineage, dir = %load.dir.display()))]
    pub async fn load(self, load: ProfileLoad) -> Result<ProfileLoaded, Error> {
        self.recover().await;
        nobody_uses(&load.dir).await?;
        let active = self.active_now(&load.lineage).await?;
        match &load.exactly {
            None => self.load_active(&load, active).await,
            Some(wanted) => self.load_wanted(&load, wanted, active).await,
        }
    }

    /// The active snapshot of a lineage, unless its pointer is older than what this host has seen.
    async fn active_now(
        self,
        lineage: &Lineage,
    ) -> Result<Result<Option<Active>, LoadFailure>, Error> {
        let memory = self.memory_of_pointer(lineage).await;
        Ok(match self.lineages.pointer(lineage).await {
            Ok(pointer) => {
                let pointer = pointer.map(|found| found.value);
                let generation = pointer.as_ref().map(|pointer| pointer.generation);
                let generation = generation.unwrap_or_default();
                if let Some(back) = memory.pointer_went_back(generation).await {
                    return Err(self.not_believed(lineage, &back).await);
                }
                Ok(pointer.and_then(|pointer| pointer.active))
            }
            Err(error) => Err(pointer_failure(error.into())),
        })
    }

    /// Loads one snapshot of the lineage because somebody asked for it: it alone, or nothing.
    ///
    /// It becomes the base of what is saved later, which therefore diverges while another snapshot is active.
    async fn load_wanted(
        self,
        load: &ProfileLoad,
        wanted: &Wanted,
        active: Result<Option<Active>, LoadFailure>,
    ) -> Result<ProfileLoaded, Error> {
        let active = active.map_err(|failure| *failure.error)?;
        let inventory = self.inventory(&load.lineage).await?;
        let chosen = inventory.wanted_whole(wanted, &*self.clock)?.active.clone();
        let load = ProfileLoad {
            on_failure: Some(OnFailure::Refuse),
            upgrade: UpgradeWish::Stay,
            ..load.clone()
        };
        let is_active = active.as_ref().map(|active| active.archive) == Some(chosen.archive);
        let mut loaded = self.load_active(&load, Ok(Some(chosen))).await?;
        loaded.active_sha256 = active.map(|active| active.archive).filter(|_| !is_active);
        Ok(loaded)
    }

    /// Loads the snapshot that a lease began with.
    pub(super) async fn load_leased(
        self,
        load: &ProfileLoad,
        base: Option<Active>,
    ) -> Result<ProfileLoaded, Error> {
        self.load_active(load, Ok(base)).await
    }

    /// Loads one snapshot, whatever else there is.
    pub(super) async fn load_exactly(
        self,
        load: &ProfileLoad,
        snapshot: Option<Active>,
    ) -> Result<ProfileLoaded, Error> {
        self.load_or_fresh(load, Ok(snapshot)).await
    }

    async fn load_active(
        self,
        load: &ProfileLoad,
        active: Result<Option<Active>, LoadFailure>,
    ) -> Result<ProfileLoaded, Error> {
        let before = Record::of(&load.dir).await;
        if before.is_none() && load.dir.exists() && !looks_like_a_profile(&load.dir).await {
            return Err(ProfileError::NotReplaced(load.dir.clone()).into());
        }
        let unsaved = before.filter(|record| record.outcome == RUNNING);
        let mut loaded = self.load_or_fresh(load, active).await?;
        if loaded.outcome == LoadOutcome::Success {
            let not_carried = self.not_carried(load, &loaded).await;
            loaded.warnings.extend(not_carried);
        }
        if let (Some(kept), Some(record)) = (loaded.kept.clone(), unsaved) {
            let at = self.clock.now();
            let kept = unsaved::keep(PathBuf::from(kept), &load.dir, record, at).await;
            loaded.kept = Some(kept.path.display().to_string());
            loaded.warnings.extend(kept.warnings);
        }
        Ok(loaded)
    }

    async fn load_or_fresh(
        self,
        load: &ProfileLoad,
        active: Result<Option<Active>, LoadFailure>,
    ) -> Result<ProfileLoaded, Error> {
        let chosen = match active {
            Ok(own) => self.choose(load, own).await,
            Err(failure) => Err(failure),
        };
        let loaded = match chosen {
            Ok(None) => return self.fresh(load, None).await,
            Ok(Some(chosen)) => self.load_chosen(load, &chosen).await,
            Err(failure) => Err(failure),
        };
        let failure = match loaded {
            Ok(mut loaded) => {
                self.note_load(load, &loaded).await?;
                let recorded = self.log_region(load, &loaded).await;
                loaded.warnings.extend(recorded);
                return Ok(loaded);
            }
            Err(failure) => failure,
        };
        let is_local = matches!(failure.error.kind(), ErrorKind::Cancelled | ErrorKind::Bug);
        let on_failure = load.on_failure.unwrap_or(failure.usually);
        if is_local || on_failure == OnFailure::Refuse {
            return Err(*failure.error);
        }
        self.fresh(load, Some(failure)).await
    }

    /// Writes down that a snapshot went to another region, for whoever asks later why sites challenged the run.
    async fn log_region(self, load: &ProfileLoad, loaded: &ProfileLoaded) -> Option<Warning> {
        let changed = loaded.warnings.iter().find_map(|warning| match warning {
            Warning::RegionChanged { from, here } => Some((from.as_str(), here.as_str())),
            _ => None,
        });
        let (from, here) = changed?;
        let kind = EventKind::RegionChanged;
        let event = self.events().event(kind, Severity::Warning, &load.actor);
        let event = event
            .about(load.lineage.clone(), self.lineages.op_id())
            .with("sha256", loaded.sha256.map(|sha| sha.to_string()))
            .with("from", from)
            .with("here", here);
        self.events().record(&load.lineage.tenant, event).await
    }

    /// Loads what was chosen, or what was published before it.
    async fn load_chosen(
        self,
        load: &ProfileLoad,
        chosen: &Chosen,
    ) -> Result<ProfileLoaded, LoadFailure> {
        let mut loaded = match self.load_newest(load, chosen).await {
            Err(failure) if failure.reason.is_damage() && load.on_failure.is_none() => {
                self.load_predecessor(load, chosen, failure).await?
            }
            tried => tried?,
        };
        if let (Some(replaced), Some(sha256)) = (chosen.carried, loaded.sha256) {
            let chrome_major = chosen.lineage.major;
            loaded.base_sha256 = replaced;
            loaded.upgraded_from = Some(Ancestor {
                chrome_major,
                sha256,
            });
            if loaded.outcome == LoadOutcome::Success {
                loaded.outcome = LoadOutcome::Upgraded;
            }
        }
        Ok(loaded)
    }

    /// Loads a snapshot; where the cache cannot be written, without it.
    async fn try_load(
        self,
        load: &ProfileLoad,
        chosen: &Chosen,
    ) -> Result<ProfileLoaded, LoadFailure> {
        let failure = match self.try_once(load, chosen).await {
            Err(failure) if is_no_room(&failure.error) => failure,
            tried => return tried,
        };
        let Some(without) = self.without_cache() else {
            return Err(failure);
        };
        let reason = error_chain(&*failure.error);
        tracing::warn!(reason, "the cache is not used");
        let mut loaded = without.profiles().try_once(load, chosen).await?;
        loaded.warnings.push(Warning::CacheSkipped { reason });
        Ok(loaded)
    }

    async fn try_once(
        self,
        load: &ProfileLoad,
        chosen: &Chosen,
    ) -> Result<ProfileLoaded, LoadFailure> {
        let policy = self.tenants().policy(&load.lineage.tenant).await;
        let policy = policy.map_err(LoadFailure::unreachable)?;
        let snapshots = LineageSnapshots::of(&*self.bucket, &chosen.lineage);
        let manifest = snapshots.manifest(&chosen.active).await;
        let manifest = manifest.map_err(manifest_failure)?;
        self.cache_manifest(&chosen.lineage, &chosen.active, &manifest)
            .await;
        let active = chosen.active.clone();
        let fit = fit(load, active, manifest, &policy, self.lineages.now())?;
        for supply in [Supply::Nearest, Supply::Store] {
            let tried = self.fetch_and_place(load, &fit, supply).await;
            self.note_check(chosen, fit.manifest.checked_at_ms, &tried)
                .await;
            if let Some(loaded) = tried? {
                return Ok(loaded);
            }
        }
        unreachable!("what comes from the store was not kept here")
    }

    /// Records what a load found out about a snapshot that its manifest does not say; a load counts without that.
    async fn note_check(
        self,
        chosen: &Chosen,
        checked_at: Option<Timestamp>,
        tried: &Result<Option<ProfileLoaded>, LoadFailure>,
    ) {
        let sound = match tried {
            Ok(Some(_)) if checked_at.is_none() => true,
            Err(failure) if failure.reason.is_damage() => false,
            _ => return,
        };
        self.record_check(&chosen.lineage, chosen.active.archive, sound)
            .await;
    }

    /// Records what a check of a snapshot found; that it could not be recorded changes nothing of what was found.
    pub(super) async fn record_check(self, lineage: &Lineage, archive: ArchiveDigest, sound: bool) {
        if let Err(error) = self.store().ensure_trusted().await {
            tracing::debug!(%error, "the check was not recorded");
            return;
        }
        let recorded = self.lineages.record_check(lineage, archive, sound).await;
        if let Err(error) = recorded {
            tracing::debug!(%error, "the check was not recorded");
        }
    }

    /// Brings the archive here and makes it the directory; `None` when it was one that this host had kept, and another.
    async fn fetch_and_place(
        self,
        load: &ProfileLoad,
        fit: &Fit,
        supply: Supply,
    ) -> Result<Option<ProfileLoaded>, LoadFailure> {
        let started = self.clock.uptime();
        let mut near: Vec<ArchiveDigest> = Record::of(&load.dir)
            .await
            .and_then(|record| record.sha256)
            .into_iter()
            .collect();
        near.extend(fit.manifest.predecessor_sha256);
        let fetched = self.fetch_unproven(WantedArchive {
            manifest: &fit.manifest,
            active: &fit.active,
            supply,
            near: &near,
            cancel: &load.cancel,
        });
        let fetched = fetched.await.map_err(fetch_failure)?;
        let download_ms = super::millis(self.clock.uptime().saturating_sub(started));
        self.place(load, fit, fetched, download_ms).await
    }

    /// What was retired and swept while we looked has a successor.
    async fn load_newest(
        self,
        load: &ProfileLoad,
        chosen: &Chosen,
    ) -> Result<ProfileLoaded, LoadFailure> {
        let tried = self.try_load(load, chosen).await;
        let Err(failure) = &tried else {
            return tried;
        };
        let is_gone = matches!(
            failure.reason,
            FallbackReason::NoManifest | FallbackReason::NoArchive
        );
        let pointer = self.lineages.pointer(&chosen.lineage).await;
        let now = pointer
            .ok()
            .flatten()
            .and_then(|pointer| pointer.value.active);
        // Who asked for this one has no use for a newer one.
        let is_gone = is_gone && load.exactly.is_none();
        match now.filter(|now| is_gone && now.archive != chosen.active.archive) {
            Some(active) => {
                let newer = Chosen {
                    active,
                    ..chosen.clone()
                };
                self.try_load(load, &newer).await
            }
            None => tried,
        }
    }

    /// Extracts beside the directory, checks, proves, swaps; `None` when the archive was another one.
    async fn place(
        self,
        load: &ProfileLoad,
        fit: &Fit,
        fetched: Fetched,
        download_ms: u64,
    ) -> Result<Option<ProfileLoaded>, LoadFailure> {
        let started = self.clock.uptime();
        let Fit {
            active,
            manifest,
            warnings,
        } = fit;
        let bytes_fetched = fetched.bytes_brought;
        let scratch = self.spool().await;
        let (files, bytes) = (manifest.file_count, manifest.uncompressed_size_bytes);
        load.progress.expect(files, bytes);
        let job = Placing {
            archive: fetched.archive,
            unproven: fetched.unproven,
            load: load.clone(),
            bytes,
            scratch: scratch
                .map_err(|error| LoadFailure::new(FallbackReason::ExtractFailed, error))?,
            snapshot: active.archive.prefix(),
            origin: RestoreOrigin {
                at: self.clock.now(),
                from: format!("{} {}", manifest.lineage(), active.archive.prefix()),
            },
        };
        let (restored, report) = match bridge::blocking(move || job.place()).await? {
            Outcome::Placed(placed) => *placed,
            Outcome::Unproven(Proof::NotWhatWasStored(found)) => {
                return Err(fetch_failure(another(active, &found.prefix())));
            }
            Outcome::Unproven(_) => return Ok(None),
        };
        let mut warnings = warnings.clone();
        warnings.extend(unchecked(&report));
        let kept = kept(&restored);
        Ok(Some(ProfileLoaded {
            subject: load.lineage.clone(),
            outcome: LoadOutcome::Success,
            reason: None,
            detail: None,
            sha256: Some(active.archive),
            base_sha256: Some(active.archive),
            active_sha256: None,
            upgraded_from: manifest.upgraded_from,
            captured_at: Some(manifest.captured_at_ms.to_string()),
            captured_at_ms: Some(manifest.captured_at_ms),
            dir: load.dir.display().to_string(),
            kept,
            empty: manifest.is_empty(),
            files: restored.written.files,
            bytes: restored.written.bytes,
            archive_bytes: manifest.archive_size_bytes,
            bytes_fetched,
            databases: report.databases.len() as u64,
            download_ms,
            extract_ms: super::millis(self.clock.uptime().saturating_sub(started)),
            warnings,
        }))
    }

    /// Loads the newest snapshot that was active before a damaged one; fails as that one did when none comes back.
    async fn load_predecessor(
        self,
        load: &ProfileLoad,
        damaged: &Chosen,
        failure: LoadFailure,
    ) -> Result<ProfileLoaded, LoadFailure> {
        let Ok(inventory) = self.inventory(&damaged.lineage).await else {
            return Err(failure);
        };
        let damaged_sha256 = damaged.active.archive;
        for older in inventory.published_before(damaged_sha256).take(OLDER_TRIED) {
            let older = Chosen {
                active: older.clone(),
                ..damaged.clone()
            };
            let Ok(mut loaded) = self.try_load(load, &older).await else {
                continue;
            };
            loaded.outcome = LoadOutcome::Predecessor;
            loaded.reason = Some(failure.reason);
            loaded.detail = Some(error_chain(&*failure.error));
            tracing::warn!(detail = loaded.detail, "an older snapshot was loaded");
            let kind = EventKind::PredecessorLoaded;
            let event = self.events().event(kind, Severity::Warning, &load.actor);
            let event = event
                .about(damaged.lineage.clone(), self.lineages.op_id())
                .with("damaged_sha256", damaged_sha256.to_string())
                .with("sha256", older.active.archive.to_string())
                .with("detail", loaded.detail.clone().unwrap_or_default());
            let recorded = self.events().record(&load.lineage.tenant, event).await;
            loaded.warnings.extend(recorded);
            return Ok(loaded);
        }
        Err(failure)
    }

    /// Leaves an empty directory, and what was there beside it.
    pub(super) async fn fresh(
        self,
        load: &ProfileLoad,
        failure: Option<LoadFailure>,
    ) -> Result<ProfileLoaded, Error> {
        let job = load.clone();
        let origin = RestoreOrigin {
            at: self.clock.now(),
            from: format!("{}, fresh", load.lineage),
        };
        let emptied = bridge::blocking(move || {
            let stage = RestoreStage::begin(&job.dir, Placement::Replace, job.cancel)?;
            let writer = stage.writer(WriteSettings::default())?;
            let written = writer.finish(None)?;
            stage.swap(written, &origin)
        });
        let restored = emptied.await?;
        let (reason, detail) = match &failure {
            Some(failure) => (Some(failure.reason), Some(error_chain(&*failure.error))),
            None => (None, None),
        };
        let mut loaded = ProfileLoaded {
            subject: load.lineage.clone(),
            outcome: match failure {
                Some(_) => LoadOutcome::FreshFallback,
                None => LoadOutcome::NoSnapshot,
            },
            reason,
            detail,
            sha256: None,
            base_sha256: None,
            active_sha256: None,
            upgraded_from: None,
            captured_at: None,
            captured_at_ms: None,
            dir: load.dir.display().to_string(),
            kept: kept(&restored),
            empty: false,
            files: 0,
            bytes: 0,
            archive_bytes: 0,
            bytes_fetched: 0,
            databases: 0,
            download_ms: 0,
            extract_ms: 0,
            warnings: self.clock_warnings(),
        };
        self.note_load(load, &loaded).await?;
        if let Some(detail) = &loaded.detail {
            tracing::warn!(%detail, "the profile is a fresh one");
            let event =
                self.events()
                    .event(EventKind::FreshFallback, Severity::Warning, &load.actor);
            let event = event
                .about(load.lineage.clone(), self.lineages.op_id())
                .with("detail", detail.as_str());
            let recorded = self.events().record(&load.lineage.tenant, event).await;
            loaded.warnings.extend(recorded);
        }
        Ok(loaded)
    }

    /// Says beside the directory that a browser is about to work in it: what it leaves is not saved yet.
    pub(super) async fn note_running(
        self,
        load: &ProfileLoad,
        loaded: &ProfileLoaded,
    ) -> Result<(), Error> {
        let record = self.load_record(load, loaded, RUNNING);
        record.write(&load.dir).await?;
        // Times of files come from a clock that lags by a tick: what is written from now on is later than the record.
        tokio::time::sleep(TICK).await;
        Ok(())
    }

    pub(super) async fn note_load(
        self,
        load: &ProfileLoad,
        loaded: &ProfileLoaded,
    ) -> Result<(), Error> {
        let outcome = loaded.outcome.to_string();
        self.load_record(load, loaded, &outcome)
            .write(&load.dir)
            .await
    }

    fn load_record(self, load: &ProfileLoad, loaded: &ProfileLoaded, outcome: &str) -> Record {
        let mut record = Record::new(
            load.lineage.clone(),
            self.location.to_string(),
            loaded.base_sha256,
            outcome,
            self.clock.now(),
        );
        record.upgraded_from = loaded.carried_from();
        record.held_back = loaded.is_held_back();
        record
    }
}

fn kept(restored: &RestoredTree) -> Option<String> {
    match &restored.placed {
        PlacedTree::Replaced { kept } => Some(kept.display().to_string()),
        _ => None,
    }
}
