//! The seeded simulator: the real code, on a bad network, with wrong clocks, on hosts that die.
//!
//! ```text
//!  writers (2 to 4) ┐                       ┌ FaultyStore: lost, late, doubled, unanswered; outages; stale listings
//!  a reaper         ├─ Lineages ─ FaultyBucket                     │ every change, at the moment it is made
//!  an operator      ┘  (production code)    └──────────────────────▼
//!      └──────── what they mean, and what they were told ──────▶ oracle ──▶ the promises
//! ```
//!
//! One seed is one run: one thread, paused time, and one generator of chance. First the storm; then everything that is
//! still on its way lands; then every unknown outcome is settled; then somebody new must be able to own the lineage and
//! publish. *Always true:* the same seed gives the same events, to the letter.

mod careless;
mod diary;
mod final_check;
mod host;
mod keepers;
pub mod mutant;
pub mod observations;
pub mod oracle;
mod world;
mod writer;

use crate::faulty_bucket::{FaultPlan, FaultyStore};
use crate::seeded_rng::SeededRng;
use diary::Diary;
use host::{Ending, Host};
use mutant::Mutant;
use observations::Observations;
use oracle::{Breach, Oracle};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use world::{Perils, World};

/// What to simulate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// A bug to be found.
    pub mutant: Option<Mutant>,
    /// Whether the events are kept as text.
    pub keeps_diary: bool,
}

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A digest of every event.
    pub hash: u64,
    /// How many writes arrived at the store.
    pub landings: u64,
    /// What was seen.
    pub observations: Observations,
    /// The first broken promise.
    pub breach: Option<Breach>,
    /// Every event, if they were to be kept.
    pub diary: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, hash, landings) = (self.seed, self.hash, self.landings);
        match &self.breach {
            Some(breach) => write!(
                out,
                "seed {seed}: {breach}\n  replay it with: scripts/sim 1 {seed}"
            ),
            None => write!(
                out,
                "seed {seed}: sound, {landings} writes, log {hash:016x}"
            ),
        }
    }
}

/// Runs one seed to its end.
pub fn run(seed: u64, settings: Settings) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(ride(seed, settings))
}

async fn ride(seed: u64, settings: Settings) -> Report {
    let mut rng = SeededRng::new(seed);
    let length = Duration::from_millis(rng.within(10_000..=40_000));
    let world = Arc::new(a_world(&mut rng, length, settings));
    let calm_from = u64::try_from(length.as_millis()).expect("a storm is short");
    let mut faults = FaultPlan::drawn(&mut rng, calm_from);
    faults.ignores_conditions = settings.mutant == Some(Mutant::IgnoresConditions);
    let store = FaultyStore::new(faults, rng.fork(), world.clone());
    let writers = rng.within(2..=4);
    let mut lives = Vec::new();
    for number in 0..writers {
        let host = a_host(format!("host-{number}"), &world, &store, &mut rng);
        lives.push(tokio::spawn(live(host, Role::Writer)));
    }
    let reaper = a_host("reaper".to_owned(), &world, &store, &mut rng);
    lives.push(tokio::spawn(live(reaper, Role::Reaper)));
    let operator = a_host("operator".to_owned(), &world, &store, &mut rng);
    lives.push(tokio::spawn(live(operator, Role::Operator)));
    for life in lives {
        life.await.expect("no actor panics");
    }
    let heir = Host::new("heir".to_owned(), &world, &store, rng.fork(), 0);
    final_check::settle_down(&heir).await;
    let mut oracle = world.oracle();
    Report {
        seed,
        hash: oracle.diary.hash(),
        landings: oracle.landings,
        observations: std::mem::take(&mut oracle.observations),
        breach: oracle.breach.take(),
        diary: oracle.diary.take_lines(),
    }
}

fn a_world(rng: &mut SeededRng, length: Duration, settings: Settings) -> World {
    let lineage = "acme/alice@131".parse().expect("a constant lineage");
    let oracle = Oracle::new(&lineage, Diary::new(settings.keeps_diary));
    World {
        ttl: Duration::from_millis(rng.within(500..=6_000)),
        grace: Duration::from_millis(rng.within(0..=1_000)),
        perils: Perils::drawn(rng),
        mutant: settings.mutant,
        ends_at: Instant::now() + length,
        oracle: Mutex::new(oracle),
        lineage,
    }
}

/// A host whose clock is a little wrong, or very.
fn a_host(name: String, world: &Arc<World>, store: &Arc<FaultyStore>, rng: &mut SeededRng) -> Host {
    let most = rng.one_of([500, 500, 60_000, 3_600_000]);
    let skew = i64::try_from(rng.within(0..=2 * most)).expect("two hours at most");
    let skew = skew - i64::try_from(most).expect("an hour at most");
    world.note(format_args!("{name} is {skew} ms ahead"));
    Host::new(name, world, store, rng.fork(), skew)
}

#[derive(Clone, Copy)]
enum Role {
    Writer,
    Reaper,
    Operator,
}

/// Does its work again and again until the storm is over; a crash is followed by a restart.
async fn live(host: Host, role: Role) {
    while !host.world.is_over() {
        let ending = match role {
            Role::Writer => host.survive(writer::session(&host)).await,
            Role::Reaper => host.survive(keepers::reap(&host)).await,
            Role::Operator => host.survive(keepers::meddle(&host)).await,
        };
        if ending == Ending::Crashed {
            host.pause(1..=4_000).await;
        }
    }
}
