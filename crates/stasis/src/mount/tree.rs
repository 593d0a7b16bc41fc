//! The mounted tree, without a kernel: directories that say which snapshots there are, and what is in those.
//!
//! An inode is a number that says all: of a directory of ours, which one; of an entry of a snapshot, which snapshot and its place in that.
//! Nothing has to be remembered for the kernel, and a snapshot that was closed meanwhile is opened again.

use super::layout::{
    BY_ID, BY_NAME, BY_TIME, CHECKPOINTS, LATEST, PINNED, SnapshotNames, checkpoint_names,
};
use stasis_engine::browser::{BrowsedSubject, Browser, NodeFacts, NodeId, NodeKind, OpenSnapshot};
use stasis_engine::error::{Error, error_chain};
use stasis_engine::model::id::TenantId;
use stasis_engine::model::time::{Clock, Timestamp};
use stasis_engine::model::tree::{Attribute, FileTime, Metadata};
use stasis_engine::open::Engine;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long it is believed which snapshots there are.
pub(super) const BELIEVED: Duration = Duration::from_secs(3);
/// An inode has so many bits for the place in a snapshot; those above say which snapshot.
const NODE_BITS: u32 = 32;
/// More different warnings are not remembered, so that a store that is gone for good does not fill our memory.
const MOST_WARNINGS: usize = 10_000;

/// Tells the user what went wrong.
pub(crate) type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// What is mounted.
#[derive(Debug)]
pub(crate) enum WhatIsMounted {
    /// The snapshots of one subject.
    One(MountedSubject),
    /// Everything in a store: directories of one tenant, profiles of that one or of all.
    Store {
        engine: Box<Engine>,
        directories_of: TenantId,
        profiles_of: Option<TenantId>,
    },
}

/// One subject, and the checkpoints that this host has of it.
#[derive(Clone, Debug)]
pub(crate) struct MountedSubject {
    pub(crate) label: String,
    pub(crate) snapshots: BrowsedSubject,
    pub(crate) checkpoints: Option<BrowsedSubject>,
}

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// There is nothing of that name or number.
    Absent,
    /// It is there and cannot be read; the user was told.
    Unreadable,
    /// It is something else.
    NotADirectory,
    NotALink,
    IsADirectory,
}

/// What is known of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attributes {
    pub(super) inode: u64,
    pub(super) kind: NodeKind,
    pub(super) size: u64,
    pub(super) metadata: Metadata,
    pub(super) links: u32,
    /// Whether it stays what it is for ever.
    pub(super) is_fixed: bool,
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) attributes: Attributes,
}

/// A directory or a link that is ours, and not of a snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Place {
    Store,
    Directories,
    Tenants,
    Profiles(String),
    Subject(usize),
    ByTime(usize),
    Checkpoints(usize),
    /// `by-id`, `by-name`, `pinned`.
    Links(usize, &'static str),
    /// A link, whose name is in that directory, or in that of the subject itself.
    Link(usize, Option<&'static str>, String),
}

/// A snapshot that somebody has looked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SnapshotKey {
    subject: usize,
    is_checkpoint: bool,
    id: String,
}

/// What has a number for as long as it is mounted.
#[derive(Debug)]
struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn new() -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn number(&mut self, one: &T) -> usize {
        if let Some(known) = self.numbers.get(one) {
            return *known;
        }
        self.all.push(one.clone());
        self.numbers.insert(one.clone(), self.all.len() - 1);
        self.all.len() - 1
    }
}

/// What was looked up, and when.
#[derive(Clone, Debug)]
struct Seen<T> {
    at: Duration,
    what: Arc<T>,
}

/// The names of what a subject has.
#[derive(Clone, Debug, Default)]
struct SubjectNames {
    snapshots: SnapshotNames,
    checkpoints: BTreeMap<String, String>,
}

/// The subjects of a store, by what they are called in their directories.
#[derive(Clone, Debug, Default)]
struct StoreNames {
    directories: BTreeMap<String, usize>,
    profiles: BTreeMap<String, BTreeMap<String, usize>>,
}

#[derive(Debug)]
struct MountState {
    subjects: Vec<MountedSubject>,
    by_label: HashMap<String, usize>,
    places: Numbered<Place>,
    snapshots: Numbered<SnapshotKey>,
    names: HashMap<usize, Seen<SubjectNames>>,
    store: Option<Seen<StoreNames>>,
    warned: HashSet<String>,
}

/// Everything that is mounted.
pub(crate) struct MountedTree {
    browser: Browser,
    what: WhatIsMounted,
    clock: Arc<dyn Clock>,
    since: Timestamp,
    /// Who owns everything; without, owners are as they were saved.
    owner: Option<(u32, u32)>,
    ours: (u32, u32),
    state: Mutex<MountState>,
    warn: Warn,
}

impl fmt::Debug for MountedTree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MountedTree({:?})", self.what)
    }
}

impl MountedTree {
    /// What is mounted, seen by whoever this process runs as.
    pub(crate) fn new(
        browser: Browser,
        what: WhatIsMounted,
        clock: Arc<dyn Clock>,
        warn: Warn,
    ) -> Self {
        let ours = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let mut state = MountState {
            subjects: Vec::new(),
            by_label: HashMap::new(),
            places: Numbered::new(),
            snapshots: Numbered::new(),
            names: HashMap::new(),
            store: None,
            warned: HashSet::new(),
        };
        let top = match &what {
            WhatIsMounted::One(subject) => {
                state.subjects.push(subject.clone());
                Place::Subject(0)
            }
            WhatIsMounted::Store { .. } => Place::Store,
        };
        state.places.number(&top);
        Self {
            browser,
            what,
            since: clock.now(),
            clock,
            owner: (ours.0 != 0).then_some(ours),
            ours,
            state: Mutex::new(state),
            warn,
        }
    }

    fn state(&self) -> MutexGuard<'_, MountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the user something, once.
    fn warn_once(&self, text: &str) {
        let mut state = self.state();
        if state.warned.len() >= MOST_WARNINGS {
            state.warned.clear();
        }
        if state.warned.insert(text.to_owned()) {
            drop(state);
            (self.warn)(text);
        }
    }

    /// Looks which snapshots there are; where that cannot be done now, what was known before stays.
    fn names(&self, subject: usize) -> Result<Arc<SubjectNames>, Refusal> {
        let now = self.clock.uptime();
        let (known, of) = {
            let state = self.state();
            let known = state.names.get(&subject).cloned();
            (known, state.subjects[subject].clone())
        };
        if let Some(known) = &known
            && now.saturating_sub(known.at) < BELIEVED
        {
            return Ok(known.what.clone());
        }
        let what = match self.look_up(&of) {
            Ok(names) => Arc::new(names),
            Err(error) => {
                let why = error_chain(&error);
                let label = &of.label;
                self.warn_once(&format!("could not list the snapshots of {label}: {why}"));
                known.ok_or(Refusal::Unreadable)?.what
            }
        };
        let at = now;
        let seen = Seen { at, what };
        self.state().names.insert(subject, seen.clone());
        Ok(seen.what)
    }

    fn look_up(&self, of: &MountedSubject) -> Result<SubjectNames, Error> {
        let snapshots = SnapshotNames::new(&self.browser.snapshots(&of.snapshots)?);
        let checkpoints = match &of.checkpoints {
            Some(checkpoints) => checkpoint_names(&self.browser.snapshots(checkpoints)?),
            None => BTreeMap::new(),
        };
        Ok(SubjectNames {
            snapshots,
            checkpoints,
        })
    }

    /// Looks which subjects a store has.
    fn store_names(&self) -> Result<Arc<StoreNames>, Refusal> {
        let now = self.clock.uptime();
        let known = self.state().store.clone();
        if let Some(known) = &known
            && now.saturating_sub(known.at) < BELIEVED
        {
            return Ok(known.what.clone());
        }
        let what = match self.look_up_store() {
            Ok(names) => Arc::new(names),
            Err(error) => {
                self.warn_once(&format!(
                    "could not list the store: {}",
                    error_chain(&error)
                ));
                known.ok_or(Refusal::Unreadable)?.what
            }
        };
        let seen = Seen { at: now, what };
        self.state().store = Some(seen.clone());
        Ok(seen.what)
    }

    fn look_up_store(&self) -> Result<StoreNames, Error> {
        let WhatIsMounted::Store {
            engine,
            directories_of,
            profiles_of,
        } = &self.what
        else {
            return Ok(StoreNames::default());
        };
        let directories = self.browser.directories(engine, directories_of)?;
        let profiles = self.browser.profiles(engine, profiles_of.as_ref())?;
        let mut state = self.state();
        let mut names = StoreNames::default();
        for (id, subject) in directories {
            let number = state.subject(format!("dir:{id}"), subject);
            names.directories.insert(id.to_string(), number);
        }
        for (lineage, subject) in profiles {
            let number = state.subject(format!("profile:{lineage}"), subject);
            let name = format!("{}@{}", lineage.profile, lineage.major);
            let of_tenant = names.profiles.entry(lineage.tenant.to_string());
            of_tenant.or_default().insert(name, number);
        }
        Ok(names)
    }

    /// What is in a directory of ours.
    fn inside(&self, place: &Place) -> Result<Vec<(String, Target)>, Refusal> {
        let of = |place: Place| Target::Ours(place);
        let listed = match place {
            Place::Store => vec![
                ("dir".to_owned(), of(Place::Directories)),
                ("profile".to_owned(), of(Place::Tenants)),
            ],
            Place::Directories => subjects(&self.store_names()?.directories),
            Place::Tenants => {
                let names = self.store_names()?;
                let tenants = names.profiles.keys();
                let one = |name: &String| (name.clone(), of(Place::Profiles(name.clone())));
                tenants.map(one).collect()
            }
            Place::Profiles(tenant) => {
                let names = self.store_names()?;
                subjects(names.profiles.get(tenant).ok_or(Refusal::Absent)?)
            }
            Place::Subject(subject) => self.sections(*subject)?,
            Place::ByTime(subject) => {
                let names = self.names(*subject)?;
                opened(*subject, false, &names.snapshots.by_time)
            }
            Place::Checkpoints(subject) => {
                let names = self.names(*subject)?;
                opened(*subject, true, &names.checkpoints)
            }
            Place::Links(subject, section) => {
                let names = self.names(*subject)?;
                let link = |name: &String| {
                    let link = Place::Link(*subject, Some(section), name.clone());
                    (name.clone(), of(link))
                };
                links(&names.snapshots, section).keys().map(link).collect()
            }
            Place::Link(..) => return Err(Refusal::NotADirectory),
        };
        Ok(listed)
    }

    fn sections(&self, subject: usize) -> Result<Vec<(String, Target)>, Refusal> {
        let names = self.names(subject)?;
        let mut listed = vec![(BY_TIME.to_owned(), Place::ByTime(subject))];
        for section in [BY_ID, BY_NAME, PINNED] {
            listed.push((section.to_owned(), Place::Links(subject, section)));
        }
        if names.snapshots.latest.is_some() {
            let latest = Place::Link(subject, None, LATEST.to_owned());
            listed.push((LATEST.to_owned(), latest));
        }
        if self.state().subjects[subject].checkpoints.is_some() {
            listed.push((CHECKPOINTS.to_owned(), Place::Checkpoints(subject)));
        }
        let ours = |(name, place)| (name, Target::Ours(place));
        Ok(listed.into_iter().map(ours).collect())
    }

    /// Where a link of ours leads.
    fn leads_to(&self, place: &Place) -> Result<String, Refusal> {
        let Place::Link(subject, section, name) = place else {
            return Err(Refusal::NotALink);
        };
        let names = self.names(*subject)?;
        let time = match section {
            None => names.snapshots.latest.as_ref(),
            Some(section) => links(&names.snapshots, section).get(name),
        };
        let time = time.ok_or(Refusal::Absent)?;
        Ok(match section {
            None => format!("{BY_TIME}/{time}"),
            Some(_) => format!("../{BY_TIME}/{time}"),
        })
    }

    /// The snapshot of an inode, opened.
    fn open(&self, number: usize) -> Result<Opened, Refusal> {
        let (key, of) = {
            let state = self.state();
            let key = state.snapshots.all.get(number).ok_or(Refusal::Absent)?;
            (key.clone(), state.subjects[key.subject].clone())
        };
        let subject = match (key.is_checkpoint, &of.checkpoints) {
            (true, Some(checkpoints)) => checkpoints,
            _ => &of.snapshots,
        };
        let label = format!("{} of {}", key.id, of.label);
        match self.browser.open(subject, &key.id) {
            Ok(snapshot) => Ok(Opened {
                number,
                label,
                snapshot,
            }),
            Err(error) => {
                let why = error_chain(&error);
                self.warn_once(&format!("could not read snapshot {label}: {why}"));
                Err(Refusal::Unreadable)
            }
        }
    }

    fn whose(&self, inode: u64) -> Result<Whose, Refusal> {
        let snapshot = usize::try_from(inode >> NODE_BITS).unwrap_or(usize::MAX);
        let rest = u32::try_from(inode & u64::from(u32::MAX)).expect("so many bits");
        let Some(number) = snapshot.checked_sub(1) else {
            let at = (rest as usize).checked_sub(1).ok_or(Refusal::Absent)?;
            let place = self.state().places.all.get(at).cloned();
            return Ok(Whose::Ours(place.ok_or(Refusal::Absent)?));
        };
        Ok(Whose::Snapshot(self.open(number)?, NodeId::new(rest)))
    }

    /// What is known of an entry of ours, or of the root of a snapshot that is an entry of ours.
    fn target_attributes(&self, target: &Target) -> Result<Attributes, Refusal> {
        match target {
            Target::Ours(place) => self.place_attributes(place),
            Target::Snapshot(key) => {
                let number = self.state().snapshots.number(key);
                let opened = self.open(number)?;
                opened
                    .attributes(NodeId::ROOT, self.owner)
                    .ok_or(Refusal::Absent)
            }
        }
    }

    fn place_attributes(&self, place: &Place) -> Result<Attributes, Refusal> {
        let number = self.state().places.number(place) as u64;
        let (kind, size, mode) = match place {
            Place::Link(..) => {
                let size = self.leads_to(place)?.len() as u64;
                (NodeKind::Symlink, size, 0o777)
            }
            _ => (NodeKind::Directory, 0, 0o555),
        };
        let seconds = i64::try_from(self.since.millis() / 1000).unwrap_or_default();
        Ok(Attributes {
            inode: number + 1,
            kind,
            size,
            metadata: Metadata {
                mode,
                uid: self.ours.0,
                gid: self.ours.1,
                modified: FileTime { seconds, nanos: 0 },
            },
            links: if kind == NodeKind::Directory { 2 } else { 1 },
            is_fixed: false,
        })
    }

    /// The entry of a directory that is called so.
    pub(super) fn lookup(&self, directory: u64, name: &OsStr) -> Result<Attributes, Refusal> {
        match self.whose(directory)? {
            Whose::Ours(place) => {
                let name = name.to_str().ok_or(Refusal::Absent)?;
                let mut listed = self.inside(&place)?.into_iter();
                let found = listed.find(|(listed, _)| listed == name);
                self.target_attributes(&found.ok_or(Refusal::Absent)?.1)
            }
            Whose::Snapshot(opened, node) => {
                let found = opened.snapshot.tree().find(node, name.as_bytes());
                let found = found.ok_or(Refusal::Absent)?;
                opened.attributes(found, self.owner).ok_or(Refusal::Absent)
            }
        }
    }

    /// What is known of an inode.
    pub(super) fn attributes(&self, inode: u64) -> Result<Attributes, Refusal> {
        match self.whose(inode)? {
            Whose::Ours(place) => self.place_attributes(&place),
            Whose::Snapshot(opened, node) => {
                opened.attributes(node, self.owner).ok_or(Refusal::Absent)
            }
        }
    }

    /// Begins to list a directory; one of ours is listed as it is now, to the end.
    pub(super) fn list(&self, directory: u64) -> Result<Listing, Refusal> {
        match self.whose(directory)? {
            Whose::Ours(place) => {
                let mut all = Vec::new();
                for (name, target) in self.inside(&place)? {
                    // A snapshot that cannot be read is there all the same.
                    let attributes = match &target {
                        Target::Snapshot(key) => Ok(self.unopened(key)),
                        Target::Ours(place) => self.place_attributes(place),
                    };
                    let name = name.into_bytes();
                    all.extend(
                        attributes
                            .ok()
                            .map(|attributes| Listed { name, attributes }),
                    );
                }
                Ok(Listing::Ours(all))
            }
            Whose::Snapshot(opened, node) => match opened.snapshot.tree().facts(node) {
                Some(facts) if facts.kind == NodeKind::Directory => {
                    Ok(Listing::Snapshot(opened, node, self.owner))
                }
                Some(_) => Err(Refusal::NotADirectory),
                None => Err(Refusal::Absent),
            },
        }
    }

    /// What a listing says of a snapshot that nobody has looked into.
    fn unopened(&self, key: &SnapshotKey) -> Attributes {
        let number = self.state().snapshots.number(key);
        Attributes {
            inode: inode(number, NodeId::ROOT),
            kind: NodeKind::Directory,
            size: 0,
            metadata: Metadata::default(),
            links: 2,
            is_fixed: false,
        }
    }

    /// Where a link leads.
    pub(super) fn target(&self, link: u64) -> Result<Vec<u8>, Refusal> {
        match self.whose(link)? {
            Whose::Ours(place) => Ok(self.leads_to(&place)?.into_bytes()),
            Whose::Snapshot(opened, node) => {
                let target = opened.snapshot.tree().target(node);
                Ok(target.ok_or(Refusal::NotALink)?.to_vec())
            }
        }
    }

    /// So many bytes of a file, fewer where it ends.
    pub(super) fn read(&self, file: u64, offset: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let Whose::Snapshot(opened, node) = self.whose(file)? else {
            return Err(Refusal::IsADirectory);
        };
        match opened.snapshot.read(node, offset, length) {
            Ok(bytes) => Ok(bytes),
            Err(error) => {
                let path = opened.snapshot.tree().path(node);
                let (label, why) = (&opened.label, error_chain(&error));
                self.warn_once(&format!("could not read {path} in snapshot {label}: {why}"));
                Err(Refusal::Unreadable)
            }
        }
    }

    /// The extended attributes of an inode.
    pub(super) fn extended(&self, inode: u64) -> Result<Vec<Attribute>, Refusal> {
        let Whose::Snapshot(opened, node) = self.whose(inode)? else {
            return Ok(Vec::new());
        };
        Ok(opened.snapshot.tree().attributes(node).to_vec())
    }

    /// The directory that one lies in.
    pub(super) fn parent(&self, directory: u64) -> u64 {
        match self.whose(directory) {
            Ok(Whose::Snapshot(opened, node)) if node != NodeId::ROOT => {
                inode(opened.number, opened.snapshot.tree().parent(node))
            }
            // The kernel knows where it came from.
            _ => directory,
        }
    }
}

impl MountState {
    /// The number of a subject, which it keeps for as long as it is mounted.
    fn subject(&mut self, label: String, snapshots: BrowsedSubject) -> usize {
        if let Some(known) = self.by_label.get(&label) {
            return *known;
        }
        let number = self.subjects.len();
        self.by_label.insert(label.clone(), number);
        self.subjects.push(MountedSubject {
            label,
            snapshots,
            checkpoints: None,
        });
        number
    }
}

/// What a name in a directory of ours leads to.
#[derive(Clone, Debug)]
enum Target {
    Ours(Place),
    Snapshot(SnapshotKey),
}

/// What an inode is of.
enum Whose {
    Ours(Place),
    Snapshot(Opened, NodeId),
}

/// A snapshot that is open.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    number: usize,
    label: String,
    snapshot: Arc<OpenSnapshot>,
}

impl Opened {
    fn attributes(&self, node: NodeId, owner: Option<(u32, u32)>) -> Option<Attributes> {
        let NodeFacts {
            node,
            kind,
            size,
            mut metadata,
            links,
        } = self.snapshot.tree().facts(node)?;
        if let Some((uid, gid)) = owner {
            (metadata.uid, metadata.gid) = (uid, gid);
        }
        Some(Attributes {
            inode: inode(self.number, node),
            kind,
            size,
            metadata,
            links,
            is_fixed: true,
        })
    }
}

/// A directory that is being listed.
#[derive(Debug)]
pub(super) enum Listing {
    Ours(Vec<Listed>),
    Snapshot(Opened, NodeId, Option<(u32, u32)>),
}

impl Listing {
    /// The entry at a place.
    pub(super) fn get(&self, place: usize) -> Option<Listed> {
        match self {
            Self::Ours(all) => all.get(place).cloned(),
            Self::Snapshot(opened, node, owner) => {
                let (name, child) = opened.snapshot.tree().child(*node, place)?;
                let attributes = opened.attributes(child, *owner)?;
                let name = name.to_vec();
                Some(Listed { name, attributes })
            }
        }
    }
}

fn inode(snapshot: usize, node: NodeId) -> u64 {
    ((snapshot as u64 + 1) << NODE_BITS) | u64::from(node.number())
}

fn links<'n>(names: &'n SnapshotNames, section: &str) -> &'n BTreeMap<String, String> {
    match section {
        BY_ID => &names.by_id,
        PINNED => &names.pinned,
        _ => &names.by_name,
    }
}

fn subjects(named: &BTreeMap<String, usize>) -> Vec<(String, Target)> {
    let named = named.iter();
    let target = |subject: usize| Target::Ours(Place::Subject(subject));
    named
        .map(|(name, subject)| (name.clone(), target(*subject)))
        .collect()
}

fn opened(
    subject: usize,
    is_checkpoint: bool,
    named: &BTreeMap<String, String>,
) -> Vec<(String, Target)> {
    let key = |id: &String| SnapshotKey {
        subject,
        is_checkpoint,
        id: id.clone(),
    };
    let named = named.iter();
    named
        .map(|(name, id)| (name.clone(), Target::Snapshot(key(id))))
        .collect()
}
