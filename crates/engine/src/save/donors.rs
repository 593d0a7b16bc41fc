//! Snapshots of other subjects whose chunks a save may use: its donors.
//!
//! That a chunk lies in the pool proves nothing; that a snapshot has it which is live in the index of its subject, read
//! after `gc.json`, proves as much as the parent does. This host remembers what it saved last in each pool, in a cache that
//! may be lost. As long as nothing was ever swept, chunks are found by their names and no donor is asked.

use crate::bridge::{self, Crossing};
use crate::catalog::references::{self, References, is_damage};
use crate::error::Error;
use crate::handle::DirRepo;
use crate::open::Engine;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{read_bounded, replace_unsynced};
use stasis_model::digest::{ChunkDigest, ManifestDigest};
use stasis_model::format::manifest::RepoDocument;
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_store::documents::roots::Root;
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many snapshots of a pool are remembered.
const REMEMBERED: usize = 16;
/// How many of other subjects are asked.
const ASKED: usize = 4;
/// How many chunks a changed tree may have before donors are read for it.
const ASK_AFTER: u64 = 8;
/// No such record is longer.
const LONGEST: u64 = 64 << 10;

/// A snapshot that this host saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Donor {
    /// Of which subject: where its documents lie.
    root: String,
    snapshot: SnapshotId,
}

/// What donors have, by content.
#[derive(Debug, Default)]
struct DonatedChunks {
    donors: Vec<Donor>,
    by_digest: HashMap<ChunkDigest, (ChunkName, usize)>,
}

/// The donors of one save. They are asked when it first meets bytes that its own subject does not have.
#[derive(Debug)]
pub(crate) struct Donors {
    engine: Engine,
    root: Root,
    repo: RepoDocument,
    crossing: Crossing,
    /// How many chunks this save stores itself before anybody is asked: reading donors costs requests too.
    left_unasked: AtomicU64,
    donated: OnceLock<DonatedChunks>,
}

impl Donors {
    /// From within the async world, after `gc.json` was read. A subject that has no snapshot yet asks at once.
    pub(crate) fn new(engine: Engine, root: Root, repo: RepoDocument, is_first: bool) -> Self {
        Self {
            engine,
            root,
            repo,
            crossing: Crossing::here(),
            left_unasked: AtomicU64::new(if is_first { 0 } else { ASK_AFTER }),
            donated: OnceLock::new(),
        }
    }

    /// The name under which a donor has these bytes. Only for threads that may block.
    pub(super) fn find(&self, digest: &ChunkDigest) -> Option<ChunkName> {
        let less = |left: u64| left.checked_sub(1);
        let waits = self
            .left_unasked
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if waits.is_ok() {
            return None;
        }
        let donated = self.donated.get_or_init(|| {
            let asked = self.engine.dirs().donated(&self.root, &self.repo);
            self.crossing.wait(asked)
        });
        donated.by_digest.get(digest).map(|(name, _)| *name)
    }

    /// Which of `asked` a donor has that is still live in its subject's index, read now: one request for each donor.
    pub(super) async fn still_live(&self, asked: &Names) -> Result<Names, Error> {
        let Some(donated) = self.donated.get() else {
            return Ok(Names::new());
        };
        let donor_of = |name: &ChunkName| {
            let found = donated.by_digest.get(&name.digest());
            found.filter(|(lent, _)| lent == name).map(|(_, at)| *at)
        };
        let used: BTreeSet<usize> = asked.iter().filter_map(donor_of).collect();
        let mut live = BTreeSet::new();
        for number in used {
            let found = live_root(&self.root, &donated.donors[number]).await?;
            live.extend(found.map(|_| number));
        }
        let is_live = |name: &&ChunkName| donor_of(name).is_some_and(|at| live.contains(&at));
        Ok(asked.iter().filter(is_live).copied().collect())
    }
}

/// The root of a donor and what its manifest is, if the index of its subject leads to it. What cannot be understood gives nothing.
async fn live_root(pool: &Root, donor: &Donor) -> Result<Option<(Root, ManifestDigest)>, Error> {
    let layout = ChunkRoot::named(&donor.root);
    // A name of another pool means nothing here.
    let Some(layout) = layout.filter(|layout| layout.chunks() == pool.layout().chunks()) else {
        return Ok(None);
    };
    let root = pool.beside(layout);
    let index = match root.index().await.map_err(Error::from) {
        Err(error) if !is_damage(&error) => return Err(error),
        index => index.ok().flatten(),
    };
    let row = index.and_then(|index| Some(index.value.find(&donor.snapshot)?.manifest_sha256));
    Ok(row.map(|digest| (root, digest)))
}

impl DirRepo<'_> {
    /// What other subjects of the pool have that this host saved lately. `gc.json` must have been read before.
    ///
    /// A donor that cannot be read gives nothing: the save stores what it needs itself.
    async fn donated(self, root: &Root, repo: &RepoDocument) -> DonatedChunks {
        let mut donated = DonatedChunks::default();
        if root.layout().is_alone() {
            return donated;
        }
        let Some(path) = self.ledger(repo) else {
            return donated;
        };
        let known = bridge::blocking(move || read(&path)).await;
        let others = known
            .into_iter()
            .filter(|one| one.root != root.layout().name());
        for donor in others.take(ASKED) {
            match names_of(root, &donor).await {
                Ok(Some(names)) => {
                    let number = donated.donors.len();
                    donated.donors.push(donor);
                    for name in names.names() {
                        let slot = donated.by_digest.entry(name.digest());
                        slot.or_insert((*name, number));
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::info!(snapshot = %donor.snapshot, %error, "no donor"),
            }
        }
        donated
    }

    /// Remembers a snapshot that others may borrow from. Not being able to costs bytes at most.
    pub(crate) async fn remember_donor(
        self,
        root: &Root,
        repo: &RepoDocument,
        snapshot: &SnapshotId,
    ) {
        let path = self.ledger(repo).filter(|_| !root.layout().is_alone());
        let Some(path) = path else {
            return;
        };
        let newest = Donor {
            root: root.layout().name().to_owned(),
            snapshot: snapshot.clone(),
        };
        let written = bridge::blocking(move || {
            let mut known = read(&path);
            known.retain(|one| one.root != newest.root);
            known.insert(0, newest);
            known.truncate(REMEMBERED);
            let body = serde_json::to_vec(&known).expect("names are text");
            replace_unsynced(&path, &body)
        });
        if let Err(error) = written.await {
            tracing::info!(%error, "this host could not remember what it saved");
        }
    }

    /// Where this host remembers what it saved in a pool.
    fn ledger(self, repo: &RepoDocument) -> Option<PathBuf> {
        let directory = self.local_dirs.cache.as_ref()?.join("donors");
        Some(directory.join(format!("{}.json", repo.spelled())))
    }
}

fn read(path: &std::path::Path) -> Vec<Donor> {
    let bytes = read_bounded(path, LONGEST).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// The chunks of a donor that is live.
async fn names_of(pool: &Root, donor: &Donor) -> Result<Option<References>, Error> {
    let Some((root, expected)) = live_root(pool, donor).await? else {
        return Ok(None);
    };
    let found = root.manifest(&donor.snapshot).await?;
    let Some((manifest, _)) = found.filter(|(_, digest)| *digest == expected) else {
        return Ok(None);
    };
    let names = references::add_manifest(&root, manifest, References::default());
    Ok(Some(names.await?))
}
