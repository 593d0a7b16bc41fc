//! The main job in miniature, for somebody who has never seen it: two hosts, one browser identity, one directory.

use super::stage::{DemoSettings, DemoStage};
use crate::error::{Error, ErrorKind};
use crate::lease::{Acquire, ForceUnlock};
use crate::open::Engine;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::format::lease::Holder;
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Label, Lineage, OpId};
use stasis_model::rng::Rng;
use stasis_model::time::Clock;
use stasis_store::documents::leases::Lease;
use stasis_store::documents::pointers::{Moved, PublishSnapshot};
use stasis_store::layout;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long host A's lease lasts: short, so that the demo is.
const SHORT: Duration = Duration::from_millis(400);

/// One thing that was done.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeaseScene {
    /// What somebody tried.
    pub act: String,
    /// What came of it.
    pub outcome: String,
    /// How long it took.
    pub took_us: u64,
}

/// What the demo did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeaseDemoReport {
    /// Where everything lies.
    pub store: String,
    /// One after the other.
    pub scenes: Vec<LeaseScene>,
    /// The active snapshot at the end.
    pub active_sha256: Option<ArchiveDigest>,
    /// How often the pointer was written.
    pub pointer_writes: u64,
    /// How many acknowledged flips the pointer does not remember: always 0.
    pub updates_lost: usize,
    /// How many events were recorded.
    pub events: usize,
    /// Whether everything that must be refused was refused.
    pub went_as_promised: bool,
}

struct LeaseStage<'a> {
    engine: &'a Engine,
    lineage: Lineage,
    scenes: Vec<LeaseScene>,
    refusals: usize,
    acknowledged: Vec<OpId>,
}

/// Plays it in a store of its own; returns the directory if it is kept.
pub async fn play(
    settings: DemoSettings,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
) -> Result<(LeaseDemoReport, Option<PathBuf>), Error> {
    let stage = DemoStage::make(settings, clock, rng)?;
    let engine = stage.engine("host").await?;
    let played = stage
        .unless_stopped(Box::pin(engine.demo_lease()))
        .await??;
    stage.clear()?;
    let kept = stage.settings.keep.then(|| stage.home.clone());
    Ok((played, kept))
}

impl Engine {
    /// Takes a lease, loses it, and shows that the loser cannot do harm.
    async fn demo_lease(&self) -> Result<LeaseDemoReport, Error> {
        let lineage: Lineage = "demo/alice@131"
            .parse()
            .expect("a constant that is a lineage");
        let mut stage = LeaseStage {
            engine: self,
            lineage: lineage.clone(),
            scenes: Vec::new(),
            refusals: 0,
            acknowledged: Vec::new(),
        };
        stage.play().await?;
        let pointer = self
            .lineages
            .pointer(&lineage)
            .await?
            .map(|found| found.value);
        let remembered = |op_id: &&OpId| {
            pointer
                .as_ref()
                .is_some_and(|pointer| pointer.remembers(**op_id))
        };
        let updates_lost =
            stage.acknowledged.len() - stage.acknowledged.iter().filter(remembered).count();
        Ok(LeaseDemoReport {
            store: self.location.to_string(),
            scenes: stage.scenes,
            active_sha256: pointer.as_ref().and_then(Pointer::active_archive),
            updates_lost,
            pointer_writes: pointer.as_ref().map_or(0, |pointer| pointer.generation.0),
            events: self
                .events()
                .latest(Some(&lineage.tenant), usize::MAX)
                .await?
                .events
                .len(),
            went_as_promised: stage.refusals == 3 && updates_lost == 0,
        })
    }
}

impl LeaseStage<'_> {
    async fn play(&mut self) -> Result<(), Error> {
        let a = self
            .acquire("host A acquires demo/alice@131", "run-a", SHORT)
            .await?;
        let started = self.engine.clock.uptime();
        let refused = self
            .engine
            .leases()
            .acquire(self.claim("run-b", Duration::from_mins(5)))
            .await;
        self.expect_refusal(
            "host B asks for it too",
            started,
            refused.map(drop),
            ErrorKind::Conflict,
        )?;
        self.flip(
            "host A publishes its first snapshot",
            &a,
            None,
            "cookies of Monday",
        )
        .await?;
        tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
        let b = self
            .acquire(
                "host A falls silent; host B takes over",
                "run-b",
                Duration::from_mins(5),
            )
            .await?;
        let base = b.base.as_ref().map(|base| base.archive);
        self.flip(
            "host B publishes what it made of A's snapshot",
            &b,
            base,
            "cookies of Tuesday",
        )
        .await?;
        self.late_flip("host A wakes up and publishes over it", &a, base)
            .await?;
        self.force_unlock().await?;
        let started = self.engine.clock.uptime();
        let renewed = self
            .engine
            .leases()
            .renew(&self.lineage, b.fence, None)
            .await;
        self.expect_refusal(
            "host B renews",
            started,
            renewed.map(drop),
            ErrorKind::Fenced,
        )
    }

    fn claim(&self, run: &str, ttl: Duration) -> Acquire {
        let label = |text: &str| text.parse().expect("a constant that is a label");
        let holder = Holder {
            run_id: label(run),
            host: label("demo"),
            host_run_id: Label::nobody(),
        };
        Acquire {
            lineage: self.lineage.clone(),
            holder,
            ttl: Some(ttl),
        }
    }

    fn scene(&mut self, act: &'static str, started: Duration, outcome: String) {
        let took = self.engine.clock.uptime().saturating_sub(started);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.scenes.push(LeaseScene {
            act: act.to_owned(),
            outcome,
            took_us,
        });
    }

    fn expect_refusal(
        &mut self,
        act: &'static str,
        started: Duration,
        result: Result<(), Error>,
        kind: ErrorKind,
    ) -> Result<(), Error> {
        match result {
            Err(error) if error.kind() == kind => {
                let why = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                self.refusals += 1;
                self.scene(act, started, format!("refused: {why}"));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.scene(act, started, "NOT refused, which it must be".to_owned());
                Ok(())
            }
        }
    }

    async fn acquire(
        &mut self,
        act: &'static str,
        run: &str,
        ttl: Duration,
    ) -> Result<Lease, Error> {
        let started = self.engine.clock.uptime();
        let acquired = self.engine.leases().acquire(self.claim(run, ttl)).await?;
        let from = acquired
            .base_sha256
            .map_or_else(|| "nothing".to_owned(), |base| base.prefix());
        self.scene(
            act,
            started,
            format!("owned under epoch {}, starting from {from}", acquired.epoch),
        );
        Ok(acquired.lease)
    }

    async fn flip(
        &mut self,
        act: &'static str,
        lease: &Lease,
        base: Option<ArchiveDigest>,
        state: &'static str,
    ) -> Result<(), Error> {
        let started = self.engine.clock.uptime();
        let moved = self.publish(lease, base, state).await?;
        self.acknowledged.push(moved.op_id);
        let active = moved.pointer.active_archive();
        let named = active.map(|archive| archive.prefix()).unwrap_or_default();
        let generation = moved.pointer.generation;
        self.scene(
            act,
            started,
            format!("pointer at {named}, generation {generation}"),
        );
        Ok(())
    }

    async fn late_flip(
        &mut self,
        act: &'static str,
        lease: &Lease,
        base: Option<ArchiveDigest>,
    ) -> Result<(), Error> {
        let started = self.engine.clock.uptime();
        let late = self.publish(lease, base, "cookies of Monday, late").await;
        self.expect_refusal(act, started, late.map(drop), ErrorKind::Fenced)
    }

    /// Stores a snapshot and flips the pointer to it.
    async fn publish(
        &self,
        lease: &Lease,
        base: Option<ArchiveDigest>,
        state: &'static str,
    ) -> Result<Moved, Error> {
        let to = self.store(state).await?;
        let (op_id, fence) = (self.engine.lineages.op_id(), lease.fence);
        let flip = PublishSnapshot {
            op_id,
            fence,
            base,
            to,
        };
        let moved = self.engine.lineages.publish(&self.lineage, flip).await;
        self.engine.operations().settled(moved).await
    }

    /// Stores the bytes of a snapshot, archive first; real archives come with the tree engine.
    async fn store(&self, state: &'static str) -> Result<Active, Error> {
        let archive = ArchiveDigest::of(state.as_bytes());
        let description = format!("{{\"archive_sha256\": \"{archive}\"}}\n");
        let manifest = ManifestDigest::of(description.as_bytes());
        let archive_key = layout::archive(&self.lineage, archive);
        let manifest_key = layout::manifest(&self.lineage, archive);
        self.engine
            .bucket
            .put(&archive_key, Bytes::from_static(state.as_bytes()))
            .await?;
        self.engine
            .bucket
            .put(&manifest_key, Bytes::from(description))
            .await?;
        let (archive_key, manifest_key) = (archive_key.to_string(), manifest_key.to_string());
        Ok(Active {
            archive,
            manifest,
            archive_key,
            manifest_key,
        })
    }

    async fn force_unlock(&mut self) -> Result<(), Error> {
        let started = self.engine.clock.uptime();
        let label = |text: &str| text.parse().expect("a constant that is a label");
        let cmd = ForceUnlock {
            lineage: self.lineage.clone(),
            seen: None,
            reason: label("demo: host B looks stuck"),
            actor: label("operator"),
        };
        let unlocked = self.engine.leases().force_unlock(cmd).await?;
        let outcome = format!(
            "run `{}` evicted, epoch {}",
            unlocked.evicted.run_id, unlocked.epoch
        );
        self.scene("an operator force-unlocks", started, outcome);
        Ok(())
    }
}
