//! Making checkpoints.
//!
//! 1. lock the session   2. an automatic one: list the live tree; the same as in the last one means that none is needed
//! 3. choose the slot   4. make the checkpoint, which is listed along the way unless it is a snapshot of a subvolume
//! 5. list that one   6. write it down in the ledger
//!
//! A crash after 4 leaves a checkpoint without a row in the ledger, and a snapshot without a hash; it is as good as any other, and its
//! hash is computed when it is asked for.

use super::Workspace;
use super::answers::Checkpointed;
use super::commands::{Create, Maker, Run};
use super::error::WorkspaceError;
use crate::clone::LeftOut;
use crate::error::Error;
use stasis_disk::ledger::USUAL_MOST_EVENTS;
use stasis_disk::slots::{Created, Source, manifest_of_clone};
use stasis_disk::walk::WalkReport;
use stasis_model::time::Timestamp;
use stasis_model::workspace::{self, CheckpointName, Occupant, Origin, Slot, SlotMetadata};
use std::time::Duration;

impl Workspace {
    pub(super) fn create_now(&self, command: &Create) -> Result<Checkpointed, Error> {
        let started = self.clock().uptime();
        let _lock = self.lock("making a checkpoint")?;
        if command.pool == Origin::Auto && command.name.is_some() {
            return Err(WorkspaceError::NamedAuto.into());
        }
        let occupants = self.pool().list().map_err(WorkspaceError::from)?;
        if command.pool == Origin::Auto
            && let Some(last) = self.unchanged_since(&occupants)?
        {
            return self.skip(&occupants, &last, (command, started));
        }
        let now = self.clock().now();
        let name = match (&command.name, command.pool) {
            (Some(name), _) => Some(name.clone()),
            (None, Origin::Manual) => Some(default_name(&occupants, now)),
            (None, _) => None,
        };
        let slot = match command.pool {
            Origin::Auto => workspace::next_auto(self.settings(), &occupants),
            _ => workspace::next_manual(self.settings(), &occupants, name.as_ref()),
        };
        let slot = slot.map_err(WorkspaceError::from)?;
        let mut metadata = SlotMetadata::new(slot, command.pool, now, self.next_sequence()?);
        metadata.name = name;
        metadata.made_by = Some(command.maker.word().to_owned());
        if command.run == Run::Dry {
            return self.would_make((&occupants, &metadata), started);
        }
        let created = self.make(metadata)?;
        let occupants = self.pool().list().map_err(WorkspaceError::from)?;
        let told = self.told(&occupants, &created.metadata, started);
        tracing::info!(checkpoint = %created.metadata.slot, origin = created.metadata.origin.word(), "made a checkpoint");
        Ok(with_report(told, &created))
    }

    /// What would be in a checkpoint.
    fn would_make(
        &self,
        (occupants, metadata): (&[Occupant], &SlotMetadata),
        started: Duration,
    ) -> Result<Checkpointed, Error> {
        let (live, report) = self.live()?;
        Ok(Checkpointed {
            created: false,
            hash: Some(live.hash().to_string()),
            files_count: report.files + report.hard_links,
            bytes: report.bytes,
            form: self.session().form().0,
            left_out: LeftOut::of(&report),
            left_out_count: report.vanished_count + report.skipped_count,
            dry_run: true,
            ..self.told(occupants, metadata, started)
        })
    }

    /// Makes a checkpoint, lists what is in it, and writes it down.
    fn make(&self, metadata: SlotMetadata) -> Result<Created, Error> {
        let began = self.clock().now();
        let stats = self.stats();
        let source = Source {
            workspace: self.directory(),
            system: self.session().system.as_deref(),
            stats: Some(&stats),
        };
        let created = self.pool().create(&source, metadata);
        let mut created = created.map_err(WorkspaceError::from)?;
        if created.metadata.hash.is_none() {
            match self.list_clone(&created, began) {
                Ok(metadata) => created.metadata = metadata,
                Err(error) => {
                    tracing::warn!(%error, checkpoint = %created.metadata.slot, "could not list a checkpoint");
                }
            }
        }
        self.session()
            .ledger
            .checkpoint(&created.metadata)
            .map_err(WorkspaceError::from)?;
        Ok(created)
    }

    fn list_clone(&self, created: &Created, began: Timestamp) -> Result<SlotMetadata, Error> {
        let mut cache = self.stat_cache(began);
        let view = self
            .pool()
            .view(&created.metadata, &[])
            .map_err(WorkspaceError::from)?;
        let root = self.root()?;
        let walk = stasis_disk::walk::WalkSettings::default();
        let (manifest, _) = manifest_of_clone(view.tree(), &root, &mut cache, began, &walk)
            .map_err(WorkspaceError::from)?;
        // What is not remembered is read again.
        let _ = cache.save();
        Ok(self
            .pool()
            .record(&created.metadata, &manifest)
            .map_err(WorkspaceError::from)?)
    }

    /// The last automatic checkpoint, if nothing changed since.
    fn unchanged_since(&self, occupants: &[Occupant]) -> Result<Option<SlotMetadata>, Error> {
        if self.session().system.is_some() {
            // Whether that changed nobody knows.
            return Ok(None);
        }
        let known = occupants.iter().filter_map(Occupant::known);
        let autos = known.filter(|one| one.origin == Origin::Auto && one.complete);
        let Some(last) = autos.max_by_key(|one| one.age_key()) else {
            return Ok(None);
        };
        let last = self.with_hash(last)?;
        let (live, report) = self.live()?;
        let is_whole = report.gaps() == 0;
        Ok((is_whole && last.hash == Some(live.hash())).then_some(last))
    }

    /// A checkpoint with its hash, which is computed if it never was.
    fn with_hash(&self, of: &SlotMetadata) -> Result<SlotMetadata, Error> {
        if of.hash.is_some() {
            return Ok(of.clone());
        }
        let contents = self.pool().contents(of).map_err(WorkspaceError::from)?;
        Ok(self
            .pool()
            .record(of, &contents)
            .map_err(WorkspaceError::from)?)
    }

    fn skip(
        &self,
        occupants: &[Occupant],
        last: &SlotMetadata,
        (command, started): (&Create, Duration),
    ) -> Result<Checkpointed, Error> {
        let why = format!("nothing changed since {}", last.slot);
        if command.run == Run::Real {
            let skipped = self.session().ledger.skipped(self.clock().now(), &why);
            skipped.map_err(WorkspaceError::from)?;
        }
        Ok(Checkpointed {
            created: false,
            skipped: Some(why),
            dry_run: command.run == Run::Dry,
            ..self.told(occupants, last, started)
        })
    }

    fn told(&self, occupants: &[Occupant], made: &SlotMetadata, started: Duration) -> Checkpointed {
        Checkpointed {
            created: true,
            checkpoint: made.slot.to_string(),
            slot: made.slot.index(),
            origin: made.origin.word(),
            name: made.name.as_ref().map(ToString::to_string),
            hash: made.hash.map(|hash| hash.to_string()),
            available: self.available(occupants),
            files_count: made.files_count,
            bytes: made.bytes,
            form: made.form.word(),
            skipped: None,
            evicted: Vec::new(),
            left_out: Vec::new(),
            left_out_count: 0,
            dry_run: false,
            elapsed_ms: self.elapsed(started),
        }
    }

    /// How many more manual checkpoints there can be.
    pub(super) fn available(&self, occupants: &[Occupant]) -> u32 {
        let slots = self.settings().slots(Origin::Manual);
        let free = slots.filter(|slot| occupants.iter().all(|one| one.slot() != *slot));
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    /// A number that no checkpoint has, in any pool.
    pub(super) fn next_sequence(&self) -> Result<u64, Error> {
        let mut all = self.pool().list().map_err(WorkspaceError::from)?;
        all.extend(self.pool().undos().map_err(WorkspaceError::from)?);
        Ok(workspace::next_sequence(&all))
    }

    /// Makes an automatic checkpoint for a watch, and forgets the oldest events when there are too many.
    pub(super) fn automatic(&self, maker: Maker) -> Result<Checkpointed, Error> {
        let ledger = &self.session().ledger;
        let last = ledger.last_event_id().map_err(WorkspaceError::from)?;
        ledger
            .prune(USUAL_MOST_EVENTS, last)
            .map_err(WorkspaceError::from)?;
        self.create_now(&Create {
            name: None,
            pool: Origin::Auto,
            maker,
            run: Run::Real,
        })
    }
}

fn with_report(told: Checkpointed, created: &Created) -> Checkpointed {
    let gaps = |walk: &WalkReport| walk.vanished_count + walk.skipped_count;
    let reports = std::iter::once(&created.workspace).chain(&created.system);
    Checkpointed {
        evicted: created.evicted.iter().map(Slot::to_string).collect(),
        left_out_count: reports.clone().map(|report| gaps(&report.walk)).sum(),
        left_out: reports
            .flat_map(|report| LeftOut::of(&report.walk))
            .collect(),
        ..told
    }
}

/// What a checkpoint is called that nobody gave a name: its time, and a number if that is taken.
fn default_name(occupants: &[Occupant], now: Timestamp) -> CheckpointName {
    let stamp = now.stamp();
    let stamp = stamp.trim_end_matches('Z').replace('T', "_");
    let parse = |text: String| text.parse::<CheckpointName>().expect("digits are a name");
    let names = (1..).map(|count| match count {
        1 => parse(stamp.clone()),
        count => parse(format!("{stamp}-{count}")),
    });
    let mut free = names.filter(|name| workspace::named(occupants, name).is_none());
    free.next()
        .expect("there are more numbers than checkpoints")
}
