//! Snapshots that a server makes of a container without being asked for each.
//!
//! 1. is it time?   2. look at the container, and refuse one that is another   3. look from outside, where that can be seen, whether anything
//!    changed since the last look   4. save it as by hand, and compare before it is published   5. remove automatic ones that are too many
//!
//! *Always true:* only snapshots of the very container, by its id, say that it has not changed. What cannot be seen counts as a change. No
//! snapshot goes that somebody asked for, pinned or labelled, and none that is the last one of its container.

use super::capture::Capture;
use super::create::{ContainerSaved, CreateSnapshot};
use super::diff::asked_networks;
use super::fill::part_of;
use super::image::image_name;
use super::limits::Going;
use super::volumes::{PlannedVolumes, VolumePlace, planned};
use super::{ContainerHost, SeenEngine};
use crate::bridge;
use crate::catalog::references::is_damage;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::open::Engine;
use crate::save::GatheredTree;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::container::capture::CaptureWishes;
use stasis_model::container::trigger::SnapshotTrigger;
use stasis_model::digest::{FileDigest, TreeDigest};
use stasis_model::format::manifest::{ContainerManifest, SaveReason, SnapshotIndex};
use stasis_model::id::{ContainerSubject, Label, SnapshotId, TenantId};
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::tree::canonical::TreeHasher;
use stasis_quiesce::docker::{ContainerFacts, Docker};
use stasis_quiesce::freeze::MAX_FREEZE;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a container is saved where nobody says it.
const USUALLY: Duration = Duration::from_hours(1);
/// Whoever writes an id, or the beginning of one, writes so many digits of it.
const SHORT_ID: usize = 12;

/// A container that a server saves without being asked.
#[derive(Clone, Debug)]
pub struct AutosavedContainer {
    /// What the configuration calls it.
    pub name: Label,
    /// Its name, or its id.
    pub container: String,
    /// Whose snapshots they are.
    pub tenant: TenantId,
    /// How often.
    pub every: Duration,
    /// For how long it may stand still.
    pub max_freeze: Duration,
    /// What was found out since the server started.
    known: Arc<Mutex<KnownContainer>>,
}

#[derive(Debug, Default)]
struct KnownContainer {
    /// When it was last tried.
    tried: Option<Timestamp>,
    /// When it had its turn: the next one comes when it is due again.
    turn: Option<Timestamp>,
    /// What went wrong the last time, until it goes well.
    problem: Option<String>,
    /// The last snapshot that was made here.
    made: Option<SnapshotId>,
    /// What it looked like from outside, and the snapshot that has it all.
    seen: Option<(FileDigest, SnapshotId)>,
}

/// What came of a snapshot that nobody asked for.
#[derive(Debug)]
pub(crate) enum UnaskedSnapshot {
    /// There is a new one.
    Saved(Box<ContainerSaved>),
    /// Nothing changed.
    Unchanged,
    /// Its time has not come.
    NotDue,
    /// It was left alone, for this reason.
    Skipped(String),
}

impl AutosavedContainer {
    /// A container that is saved every hour.
    pub fn new(name: Label, container: String, tenant: TenantId) -> Self {
        Self {
            name,
            container,
            tenant,
            every: USUALLY,
            max_freeze: MAX_FREEZE,
            known: Arc::default(),
        }
    }

    /// When it was last tried; who never was comes first.
    pub(crate) fn tried(&self) -> Option<Timestamp> {
        self.known().tried
    }

    /// Saves it if it is time and it changed.
    pub(crate) async fn save(
        &self,
        engine: &Engine,
        docker: &Docker,
        cancel: Arc<AtomicBool>,
    ) -> Result<UnaskedSnapshot, Error> {
        let now = engine.clock.now();
        let before = {
            let mut known = self.known();
            if known.turn.is_some_and(|at| self.is_young(at, now)) {
                return Ok(UnaskedSnapshot::NotDue);
            }
            known.tried = Some(now);
            // Of one that hangs nobody hears any more: it has had its turn.
            known.turn.replace(now)
        };
        let saved = Box::pin(self.save_due(engine, docker, cancel)).await;
        let mut known = self.known();
        match &saved {
            Ok(UnaskedSnapshot::Skipped(_)) => {}
            Ok(_) => known.problem = None,
            Err(error) => {
                known.problem = Some(error_chain(error));
                if is_passing(error) {
                    known.turn = before;
                }
            }
        }
        drop(known);
        saved
    }

    /// Notes that it was given up.
    pub(crate) fn given_up(&self, why: String) {
        self.known().problem = Some(why);
    }

    /// What went wrong the last time, if it has not gone well since.
    pub(crate) fn problem(&self) -> Option<String> {
        self.known().problem.clone()
    }

    /// Saves it, whose time has come, if it changed.
    async fn save_due(
        &self,
        engine: &Engine,
        docker: &Docker,
        cancel: Arc<AtomicBool>,
    ) -> Result<UnaskedSnapshot, Error> {
        let now = engine.clock.now();
        engine.store().ensure_trusted().await?;
        let host = ContainerHost {
            docker: docker.clone(),
            tenant: self.tenant.clone(),
        };
        let seen = host.look().await?;
        let found = docker.container(&self.container).await?;
        let Some(facts) = found.filter(|facts| self.is_meant(facts)) else {
            // Of what is gone there is nothing more to say.
            self.known().problem = None;
            return Ok(skipped("there is no such container"));
        };
        if let Some(state) = facts.status.refusal() {
            return Ok(skipped(&format!("it is {state}")));
        }
        let of = engine.containers();
        let index = of.index_of(&self.tenant, &seen, &facts).await?;
        if let Some(at) = self.made_elsewhere(&index, now) {
            self.known().turn = Some(at);
            return Ok(UnaskedSnapshot::NotDue);
        }
        let looks = seen.looks_of(&facts).await;
        if let Some(snapshot) = looks.and_then(|looks| self.seen_in(looks, &index))
            && docker.image(&image_name(&snapshot)).await?.is_some()
        {
            return Ok(UnaskedSnapshot::Unchanged);
        }
        self.save_changed(of, (&host, &seen), (&facts, looks), cancel)
            .await
    }

    async fn save_changed(
        &self,
        of: Containers<'_>,
        on: (&ContainerHost, &SeenEngine),
        (facts, looks): (&ContainerFacts, Option<FileDigest>),
        cancel: Arc<AtomicBool>,
    ) -> Result<UnaskedSnapshot, Error> {
        let policy = of.tenants().policy(&self.tenant).await?;
        let how = CreateSnapshot {
            trigger: SnapshotTrigger::Periodic,
            max_freeze: self.max_freeze,
            cancel,
            // By its id: another one that takes its name meanwhile is another one.
            ..CreateSnapshot::new(facts.id.clone())
        };
        let saved = match Box::pin(of.save_named(on, &how, SaveReason::Autosave)).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                return Ok(skipped(&error_chain(&error)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let is_there = on.1.docker.container(&facts.id).await?.is_some();
                if is_there {
                    return Err(error);
                }
                return Ok(skipped("it was removed meanwhile"));
            }
            saved => saved?,
        };
        // What was written while it was saved is seen the next time.
        let Some(mut saved) = saved else {
            let index = of.index_of(&self.tenant, on.1, facts).await?;
            let newest = index.finished().next_back().map(|one| one.id.clone());
            self.known().seen = looks.zip(newest);
            return Ok(UnaskedSnapshot::Unchanged);
        };
        self.made(&saved.snapshot_id, looks);
        let limits = policy.containers.limits();
        let room = of.make_room(on, (&limits, Going::Automatic), &mut saved);
        Box::pin(room).await;
        Ok(UnaskedSnapshot::Saved(Box::new(saved)))
    }

    /// Notes a new snapshot, and what its container looked like before.
    fn made(&self, snapshot: &SnapshotId, looks: Option<FileDigest>) {
        let mut known = self.known();
        known.made = Some(snapshot.clone());
        known.seen = looks.map(|looks| (looks, snapshot.clone()));
    }

    /// Whether it is the one that was named. An engine also finds a container by the beginning of an id, which may be that of any.
    fn is_meant(&self, facts: &ContainerFacts) -> bool {
        let named = &self.container;
        let is_id = named.len() >= SHORT_ID && facts.id.starts_with(named.as_str());
        facts.name == *named || is_id
    }

    /// Whether its time has not come. A moment that is yet to come was said by a clock that was wrong.
    fn is_young(&self, at: Timestamp, now: Timestamp) -> bool {
        // A run of the job that begins as often must not come a moment too early for every second one.
        at <= now && now.since(at) < self.every.saturating_sub(self.every / 20)
    }

    /// When another server, or this one before it was started again, saved it, if that was not long ago.
    fn made_elsewhere(&self, index: &SnapshotIndex, now: Timestamp) -> Option<Timestamp> {
        let mut automatic = index.finished();
        let last = automatic.rfind(|one| one.reason == SaveReason::Autosave)?;
        let is_own = self.known().made.as_ref() == Some(&last.id);
        (!is_own && self.is_young(last.at_ms, now)).then_some(last.at_ms)
    }

    /// The snapshot that has all of it, where nothing changed that one sees, and that is still there.
    fn seen_in(&self, looks: FileDigest, index: &SnapshotIndex) -> Option<SnapshotId> {
        let known = self.known();
        let (seen, snapshot) = known.seen.as_ref()?;
        (*seen == looks && index.find(snapshot).is_some()).then(|| snapshot.clone())
    }

    fn known(&self) -> MutexGuard<'_, KnownContainer> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it may be gone at the next run: the store or the engine was away, or somebody else was there first. What the container itself is
/// the cause of would only make it stand still again.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Retry
            | ErrorKind::Unknown
            | ErrorKind::Conflict
            | ErrorKind::Fenced
            | ErrorKind::Unreachable
            | ErrorKind::Denied
            | ErrorKind::Cancelled
    )
}

fn skipped(why: &str) -> UnaskedSnapshot {
    UnaskedSnapshot::Skipped(why.to_owned())
}

impl Containers<'_> {
    /// The index of a container's snapshots; an empty one before the first.
    async fn index_of(
        self,
        tenant: &TenantId,
        seen: &SeenEngine,
        facts: &ContainerFacts,
    ) -> Result<SnapshotIndex, Error> {
        let subject = ContainerSubject::new(&facts.name, &seen.digits);
        self.of(tenant, &subject).dirs().index_to_look().await
    }
}

impl SeenEngine {
    /// What a container looks like from outside: what it is set to, and all that would be saved of it. None where some of that does not
    /// lie on this host, or may not be read.
    async fn looks_of(&self, facts: &ContainerFacts) -> Option<FileDigest> {
        let own_files = facts.own_files.clone().filter(|_| self.engine.local)?;
        let planned = planned(self, facts, &CaptureWishes::default()).await.ok()?;
        let places = [own_files].into_iter().chain(places_of(&planned)?);
        let mut said = vec![
            facts.id.clone(),
            facts.status.to_string(),
            facts.started.clone(),
            facts.config.to_string(),
            facts.host_config.to_string(),
            facts.networks.to_string(),
        ];
        for place in places {
            let digest = bridge::blocking(move || walked(&place)).await?;
            said.push(digest.to_string());
        }
        Some(FileDigest::of(said.join("\n").as_bytes()))
    }
}

/// Where the files of all volumes lie, if all are here.
fn places_of(planned: &PlannedVolumes) -> Option<Vec<PathBuf>> {
    let places = planned.volumes.iter().map(|one| match &one.place {
        VolumePlace::Directory(place) => Some(place.clone()),
        VolumePlace::Engine(_) => None,
    });
    places.collect()
}

/// What is in a directory, by names, sizes and times; what is in the files is not read. None where something of it cannot be looked at.
fn walked(place: &std::path::Path) -> Option<TreeDigest> {
    let root = RootDir::open(place, Mounts::Stay).ok()?;
    let settings = WalkSettings {
        strict: true,
        ..WalkSettings::default()
    };
    let (entries, _) = walk::list(&root, &settings).ok()?;
    let (mut hasher, nothing) = (TreeHasher::new(), FileDigest::of(b""));
    for entry in &entries {
        hasher.entry(entry, Some(&nothing));
    }
    Some(hasher.finish())
}

impl Capture<'_> {
    /// Whether nobody asked for this snapshot, and the last one has all of it: of this very container, with the same files and settings, and
    /// with an image that is still there.
    pub(super) async fn adds_nothing(
        &self,
        tree: &GatheredTree,
        now: &ContainerManifest,
    ) -> Result<bool, Error> {
        if self.reason != SaveReason::Autosave {
            return Ok(false);
        }
        let dirs = self.engine.dirs();
        let index = dirs.index_to_look().await?;
        let Some(last) = index.finished().next_back() else {
            return Ok(false);
        };
        let opened = match dirs.open_snapshot(&dirs.root(), &index, &last.id).await {
            Ok(opened) => opened,
            // One that cannot be read has nothing.
            Err(error) if is_damage(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let before = opened.manifest.container.as_ref();
        let Some(before) = before.filter(|before| is_same(before, now)) else {
            return Ok(false);
        };
        let docker = &self.seen.docker;
        let is_whole =
            before.image.is_portable || docker.image(&before.image.name).await?.is_some();
        if !is_whole {
            return Ok(false);
        }
        let places = now.volumes.iter().map(part_of);
        let places = places.collect::<Result<Vec<EntryPath>, Error>>()?;
        match dirs.save_equals_at(tree, &opened.list, places).await {
            Err(error) if is_damage(&error) => Ok(false),
            equal => equal,
        }
    }
}

/// Whether both are of one container whose own files and settings are the same. Its environment cannot change.
fn is_same(before: &ContainerManifest, now: &ContainerManifest) -> bool {
    let networks = |of: &ContainerManifest| asked_networks(&of.networks, &of.container_id);
    before.container_id == now.container_id
        && before.image.layers == now.image.layers
        && before.config == now.config
        && before.host_config == now.host_config
        && before.volumes == now.volumes
        && networks(before) == networks(now)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write what is walked")]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_tree_of_which_something_cannot_be_looked_at_is_never_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let shut = place.path().join("shut");
        fs::create_dir(&shut).unwrap();
        fs::write(shut.join("orders"), "1").unwrap();
        assert!(walked(place.path()).is_some());

        fs::set_permissions(&shut, Permissions::from_mode(0o000)).unwrap();
        let is_root = fs::read_dir(&shut).is_ok();
        let seen = walked(place.path());
        fs::set_permissions(&shut, Permissions::from_mode(0o700)).unwrap();

        assert_eq!(seen.is_some(), is_root);
    }
}
