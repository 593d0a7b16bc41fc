//! Making checkpoints.
//!
//! 1. lock the session   2. an automatic one: list the live tree; the same as in the last one means that none is needed, and what an
//!    agent is about to do is noted with that one   3. choose the slot   4. make the checkpoint, which is listed along the way unless it
//!    is a snapshot of a subvolume   5. list that one   6. write it down in the session database   7. forget what is thinned out by now
//!
//! A crash after 4 leaves a checkpoint without a row in the session database, and a snapshot without a hash; it is as good as any other, and its
//! hash is computed when it is asked for.

use super::Workspace;
use super::answers::{Checkpointed, DatabaseRow};
use super::commands::{CreateCheckpoint, Maker, RunMode};
use super::room_for::RoomFor;
use crate::clone::LeftOut;
use crate::error::{Error, WorkspaceError};
use stasis_disk::form::slots::{
    CheckpointSource, Created, databases_in_snapshot, manifest_of_clone,
};
use stasis_disk::fs::free_space;
use stasis_disk::session_db::USUAL_MOST_EVENTS;
use stasis_disk::tree::clone::Method;
use stasis_disk::tree::walk::WalkReport;
use stasis_model::digest::WorkspaceDigest;
use stasis_model::time::Timestamp;
use stasis_model::workspace::thinning::{self, ThinningVerdict};
use stasis_model::workspace::{
    self, AgentCall, AgentEvent, CheckpointName, CheckpointOrigin, Occupant, Slot, SlotDatabase,
    SlotMetadata,
};
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

/// No more than so many are forgotten at once: whoever asked for a checkpoint waits for it.
const MOST_FORGOTTEN: usize = 32;

impl Workspace {
    pub(super) fn create_now(&self, command: &CreateCheckpoint) -> Result<Checkpointed, Error> {
        let _lock = self.lock("making a checkpoint")?;
        self.create_locked(command)
    }

    /// The same, for somebody who has locked the session.
    pub(super) fn create_locked(&self, command: &CreateCheckpoint) -> Result<Checkpointed, Error> {
        let started = self.clock().uptime();
        if command.pool != CheckpointOrigin::Manual && command.name.is_some() {
            return Err(WorkspaceError::NamedAuto.into());
        }
        let occupants = self.pool().list()?;
        let now = self.clock().now();
        let event = self.event_of(command, &occupants, now);
        // A list is compared when it is made, by one look at the tree.
        let is_compared = command.run == RunMode::Real
            && self.session().system.is_none()
            && self.pool().makes_lists(self.directory()).unwrap_or(false);
        let known = if command.pool.is_automatic() {
            self.known_states(&occupants, command.pool)?
        } else {
            Vec::new()
        };
        let skipped = |last: &SlotMetadata, event: Option<AgentEvent>| {
            self.note_unchanged(last, event, command)?;
            Ok(Checkpointed {
                created: false,
                skipped: Some(unchanged_since(last)),
                dry_run: command.run == RunMode::Dry,
                ..self.checkpointed(&occupants, last, started)
            })
        };
        if !is_compared && let Some(last) = self.unchanged_since(&known)? {
            return skipped(&last, event);
        }
        let mut metadata = self.next_slot(command, &occupants, now)?;
        metadata.agent_events.extend(event.clone());
        if command.run == RunMode::Dry {
            return self.would_make(&occupants, &metadata, started);
        }
        let made = self.make(metadata, if is_compared { &known } else { &[] });
        let made = made.map_err(|error| self.no_room(error, &RoomFor::Checkpoint))?;
        let created = match made {
            Made::New(created) => created,
            Made::Known(last) => return skipped(&last, event),
        };
        let occupants = self.pool().list()?;
        let thinned = self.thin_out(&occupants, now);
        let made = self.checkpointed(&occupants, &created.metadata, started);
        self.keep_reserve();
        tracing::info!(checkpoint = %created.metadata.slot, origin = %created.metadata.origin, "made a checkpoint");
        Ok(Checkpointed {
            thinned,
            ..with_report(made, &created)
        })
    }

    /// What an agent is about to do, as it is kept with a checkpoint.
    fn event_of(
        &self,
        command: &CreateCheckpoint,
        occupants: &[Occupant],
        now: Timestamp,
    ) -> Option<AgentEvent> {
        let call = command.call.as_ref()?;
        let is_kept = self.session().config.keep_event_text != Some(false);
        let text = call.text.clone().filter(|_| is_kept);
        let call = AgentCall {
            text,
            ..call.clone()
        };
        Some(workspace::numbered(call, occupants, now.millis()))
    }

    /// What a checkpoint of another tree would be, before it is made: its slot, and what it is made for.
    pub(super) fn prospective(&self, command: &CreateCheckpoint) -> Result<SlotMetadata, Error> {
        let (occupants, now) = (self.pool().list()?, self.clock().now());
        let mut metadata = self.next_slot(command, &occupants, now)?;
        let event = self.event_of(command, &occupants, now);
        metadata.agent_events.extend(event);
        Ok(metadata)
    }

    /// Makes a checkpoint of a tree that is not the workspace, such as a fork of it; for somebody who has locked the session.
    pub(super) fn create_of(
        &self,
        tree: &Path,
        command: &CreateCheckpoint,
    ) -> Result<SlotMetadata, Error> {
        let metadata = self.prospective(command)?;
        let source = CheckpointSource::of_another(tree);
        let made = self.pool_now()?.create(&source, metadata);
        let made = made.map_err(|error| self.no_room(error.into(), &RoomFor::Checkpoint))?;
        self.with_hash(&made.metadata)
    }

    /// What is known of a checkpoint before it is made: its slot, and what it is called.
    fn next_slot(
        &self,
        command: &CreateCheckpoint,
        occupants: &[Occupant],
        now: Timestamp,
    ) -> Result<SlotMetadata, Error> {
        let name = match (&command.name, command.pool) {
            (Some(name), _) => Some(name.clone()),
            (None, CheckpointOrigin::Manual) => Some(default_name(occupants, now)),
            (None, _) => None,
        };
        let slot = match command.pool {
            CheckpointOrigin::Auto => workspace::next_auto(self.settings(), occupants),
            CheckpointOrigin::Prompt | CheckpointOrigin::Command => Ok(self.next_agent(occupants)?),
            _ => workspace::next_manual(self.settings(), occupants, name.as_ref()),
        };
        let slot = slot?;
        let mut metadata = SlotMetadata::new(slot, command.pool, now, self.next_sequence()?);
        metadata.name = name;
        metadata.made_by = Some(command.maker.word().to_owned());
        Ok(metadata)
    }

    /// The slot of the next checkpoint of an agent.
    fn next_agent(&self, occupants: &[Occupant]) -> Result<Slot, Error> {
        let used = self.session().db.last_agent_slot()?;
        Ok(workspace::next_agent(self.settings(), occupants, used))
    }

    /// Forgets checkpoints of agents that are thinned out by now, the oldest first; says which. That none could be forgotten
    /// is no reason to refuse a new one.
    fn thin_out(&self, occupants: &[Occupant], now: Timestamp) -> Vec<String> {
        let judged = thinning::judge(occupants, now).into_iter();
        let going = judged.filter_map(|(slot, verdict)| match verdict {
            ThinningVerdict::Forget(why) => Some((slot, why)),
            ThinningVerdict::Keep(_) => None,
        });
        let going: Vec<_> = going.take(MOST_FORGOTTEN).collect();
        if going.is_empty() {
            return Vec::new();
        }
        let slots: Vec<Slot> = going.iter().map(|(slot, _)| *slot).collect();
        if let Err(error) = self.pool().forget(&slots) {
            let error = crate::error::error_chain(&error);
            tracing::warn!(error, "could not forget what is thinned out");
            return Vec::new();
        }
        for (slot, why) in &going {
            tracing::debug!(checkpoint = %slot, ?why, "thinned out");
        }
        slots.iter().map(Slot::to_string).collect()
    }

    /// What would be in a checkpoint.
    fn would_make(
        &self,
        occupants: &[Occupant],
        metadata: &SlotMetadata,
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
            databases: Vec::new(),
            dry_run: true,
            ..self.checkpointed(occupants, metadata, started)
        })
    }

    /// Makes a checkpoint, lists what is in it, and writes it down; none if the tree is what one of those holds that are known.
    fn make(&self, metadata: SlotMetadata, known: &[SlotMetadata]) -> Result<Made, Error> {
        let began = self.clock().now();
        let stats = self.stats();
        let source = CheckpointSource {
            workspace: self.directory(),
            system: self.session().system.as_deref(),
            stats: Some(&stats),
            is_own: true,
        };
        let pool = self.pool_now()?;
        let same = Cell::new(None);
        let is_known = |hash: &WorkspaceDigest| {
            let last = known.iter().find(|one| {
                // One that is damaged is no reason to do without another.
                one.hash.as_ref() == Some(hash) && pool.has_all(one).unwrap_or(false)
            });
            same.set(last);
            last.is_some()
        };
        let created = if known.is_empty() {
            pool.create(&source, metadata).map(Some)
        } else {
            pool.create_if_new(&source, metadata, &is_known)
        };
        let created = match created {
            // Whether anything changed can be said without room.
            Err(error) if free_space::is_want_of_room(&error) => {
                match self.unchanged_since(known)? {
                    Some(last) => return Ok(Made::Known(Box::new(last))),
                    None => return Err(error.into()),
                }
            }
            created => created?,
        };
        let mut created = match (created, same.get()) {
            (None, Some(last)) => return Ok(Made::Known(Box::new(last.clone()))),
            (created, _) => created.expect("it is made, or one of those is it"),
        };
        if created.metadata.hash.is_none() {
            match self.list_clone(&created, began) {
                Ok((metadata, walk)) => {
                    created.metadata = metadata;
                    if created.workspace.method == Method::Subvolume {
                        // What is in a snapshot and may not be read is as good as left out.
                        created.workspace.walk = walk;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, checkpoint = %created.metadata.slot, "could not list a checkpoint");
                }
            }
        }
        let written = || self.session().db.checkpoint(&created.metadata);
        match self.pool().reserve().lend(written) {
            // It is there, and as good as any other without a row.
            Err(error) if free_space::is_want_of_room(&error) => {
                tracing::warn!(%error, checkpoint = %created.metadata.slot, "could not write down that a checkpoint was made");
            }
            written => {
                written?;
            }
        }
        Ok(Made::New(Box::new(created)))
    }

    fn list_clone(
        &self,
        created: &Created,
        began: Timestamp,
    ) -> Result<(SlotMetadata, WalkReport), Error> {
        let mut cache = self.stat_cache(began);
        let view = self.pool().view(&created.metadata, &[])?;
        let root = self.root()?;
        let walk = stasis_disk::tree::walk::WalkSettings::default();
        let (manifest, report) = manifest_of_clone(view.tree(), &root, &mut cache, began, &walk)
            .map_err(WorkspaceError::from)?;
        // What is not remembered is read again.
        let _ = cache.save();
        let recorded = self.pool().record(&created.metadata, &manifest);
        let recorded = recorded?;
        if created.workspace.method != Method::Subvolume {
            return Ok((recorded, report));
        }
        let databases = databases_in_snapshot(view.tree(), &manifest);
        let amended = self.pool().amend(&recorded, |slot| {
            slot.databases = SlotDatabase::listed(databases);
            slot.complete &= report.gaps() == 0;
            let count = report.missing().count() as u64 + report.unlisted();
            let missing = report.missing().map(ToString::to_string);
            *slot = slot.clone().without(missing, count);
        });
        Ok((amended?, report))
    }

    /// The checkpoints of which no other one is needed in a pool while the tree is what one of them holds, the newest first.
    ///
    /// For the timer that is the last automatic one. For an agent any of its own will do as well; for a prompt nothing else does,
    /// since what is in the ring of the timer or has a name may go before the prompt may.
    fn known_states(
        &self,
        occupants: &[Occupant],
        pool: CheckpointOrigin,
    ) -> Result<Vec<SlotMetadata>, Error> {
        if self.session().system.is_some() {
            // Whether that changed nobody knows.
            return Ok(Vec::new());
        }
        let known = occupants.iter().filter_map(Occupant::known);
        let automatic = known.filter(|one| one.origin.is_automatic() && one.complete);
        let mut automatic: Vec<&SlotMetadata> = automatic.collect();
        automatic.sort_by_key(|one| std::cmp::Reverse(one.age_key()));
        let Some(newest) = automatic.first() else {
            return Ok(Vec::new());
        };
        let newest = match self.with_hash(newest) {
            // What cannot be written down is found out again the next time.
            Err(error) if free_space::is_want_of_room(&error) => return Ok(Vec::new()),
            newest => newest?,
        };
        let is_enough = pool != CheckpointOrigin::Prompt || newest.origin.is_agents();
        let others = automatic
            .into_iter()
            .filter(|one| pool.is_agents() && one.origin.is_agents() && one.name.is_none());
        let newest = Some(newest).filter(|_| is_enough);
        Ok(newest.into_iter().chain(others.cloned()).collect())
    }

    /// The first of these checkpoints that has the tree as it is now.
    fn unchanged_since(&self, known: &[SlotMetadata]) -> Result<Option<SlotMetadata>, Error> {
        if known.is_empty() {
            return Ok(None);
        }
        let (live, report) = self.live()?;
        if report.gaps() > 0 {
            return Ok(None);
        }
        let hash = Some(live.hash());
        let has_all = |one: &SlotMetadata| self.pool().has_all(one).unwrap_or(false);
        let is_it = |one: &&SlotMetadata| one.hash == hash && has_all(one);
        Ok(known.iter().find(is_it).cloned())
    }

    /// A checkpoint with its hash, which is computed if it never was.
    fn with_hash(&self, of: &SlotMetadata) -> Result<SlotMetadata, Error> {
        if of.hash.is_some() {
            return Ok(of.clone());
        }
        let contents = self.pool().contents(of)?;
        Ok(self.pool().record(of, &contents)?)
    }

    /// Writes down that no checkpoint was made because the last one holds the same.
    fn note_unchanged(
        &self,
        last: &SlotMetadata,
        event: Option<AgentEvent>,
        command: &CreateCheckpoint,
    ) -> Result<(), Error> {
        let why = unchanged_since(last);
        if command.run == RunMode::Real {
            // The tree is what the checkpoint holds, whether that is written down or not.
            let is_forgiven = |error: &(dyn std::error::Error + 'static)| {
                let is_forgiven = free_space::is_want_of_room(error);
                if is_forgiven {
                    tracing::debug!(%error, "could not write down that nothing changed");
                }
                is_forgiven
            };
            if let Some(event) = event {
                match self.pool().note(last, event) {
                    Err(error) if is_forgiven(&error) => {}
                    noted => {
                        noted?;
                    }
                }
            }
            match self.session().db.skipped(self.clock().now(), &why) {
                Err(error) if is_forgiven(&error) => {}
                skipped => skipped?,
            }
        }
        Ok(())
    }

    fn checkpointed(
        &self,
        occupants: &[Occupant],
        made: &SlotMetadata,
        started: Duration,
    ) -> Checkpointed {
        Checkpointed {
            created: true,
            checkpoint: made.slot.to_string(),
            slot: made.slot.index(),
            origin: made.origin,
            name: made.name.as_ref().map(ToString::to_string),
            hash: made.hash.map(|hash| hash.to_string()),
            available: self.available(occupants),
            files_count: made.files_count,
            bytes: made.bytes,
            form: made.form.into(),
            skipped: None,
            evicted: Vec::new(),
            thinned: Vec::new(),
            left_out: Vec::new(),
            left_out_count: 0,
            databases: DatabaseRow::of(made),
            dry_run: false,
            elapsed_ms: self.elapsed(started),
        }
    }

    /// How many more manual checkpoints there can be.
    pub(super) fn available(&self, occupants: &[Occupant]) -> u32 {
        let slots = self.settings().slots(CheckpointOrigin::Manual);
        let free = slots.filter(|slot| occupants.iter().all(|one| one.slot() != *slot));
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    /// Makes an automatic checkpoint for a watch, and forgets the oldest events when there are too many.
    pub(super) fn automatic(&self, maker: Maker) -> Result<Checkpointed, Error> {
        let session_db = &self.session().db;
        let last = session_db.last_event_id()?;
        match session_db.prune(USUAL_MOST_EVENTS, last) {
            Err(error) if free_space::is_want_of_room(&error) => {
                tracing::warn!(%error, "could not forget the oldest events");
            }
            pruned => {
                pruned?;
            }
        }
        self.create_now(&CreateCheckpoint::automatic(maker))
    }
}

/// What came of a checkpoint that was asked for.
enum Made {
    New(Box<Created>),
    /// This one has it all.
    Known(Box<SlotMetadata>),
}

/// Why no checkpoint was made.
fn unchanged_since(last: &SlotMetadata) -> String {
    format!("nothing changed since {}", last.slot)
}

fn with_report(made: Checkpointed, created: &Created) -> Checkpointed {
    let gaps = |walk: &WalkReport| walk.vanished_count + walk.skipped_count;
    let reports = std::iter::once(&created.workspace).chain(&created.system);
    Checkpointed {
        evicted: created.evicted.iter().map(Slot::to_string).collect(),
        left_out_count: reports.clone().map(|report| gaps(&report.walk)).sum(),
        left_out: reports
            .flat_map(|report| LeftOut::of(&report.walk))
            .collect(),
        ..made
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
