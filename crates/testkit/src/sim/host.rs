//! A host: its clock, its way to the store, and what can befall it.

use super::oracle::Means;
use super::world::World;
use crate::faulty_bucket::{FaultyBucket, FaultyStore};
use crate::seeded_rng::{ActorRng, SeededRng};
use crate::sim_clock::{MOST_SKEW, SimClock};
use stasis_model::format::lease::Holder;
use stasis_model::id::{Label, OpId};
use stasis_model::protocol::operation::Unsettled;
use stasis_store::documents::lineages::{LineageError, Lineages};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// One host of a run.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) world: Arc<World>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) random: Arc<ActorRng>,
    pub(crate) bucket: Arc<FaultyBucket>,
    pub(crate) lineages: Lineages,
}

/// Why an operation did not end well.
pub(crate) enum Setback {
    /// It was not applied.
    Denied,
    /// Nobody can tell.
    Unknown(Box<Unsettled>),
}

impl Host {
    /// A host with a clock that is `skew_ms` wrong.
    pub(crate) fn new(
        name: String,
        world: &Arc<World>,
        store: &Arc<FaultyStore>,
        mut rng: SeededRng,
        skew_ms: i64,
    ) -> Self {
        let booted = Duration::from_millis(rng.below(1 << 30));
        let clock = Arc::new(SimClock::new(Instant::now(), skew_ms, booted));
        let random = Arc::new(ActorRng::new(rng));
        let bucket = Arc::new(store.reached_from(Arc::clone(&clock)));
        let lineages = Lineages::new(bucket.clone(), clock.clone(), random.clone());
        Self {
            name,
            world: Arc::clone(world),
            clock,
            random,
            bucket,
            lineages,
        }
    }

    pub(crate) fn happens(&self, permille: u64) -> bool {
        self.random.happens(permille)
    }

    /// Waits a while.
    pub(crate) async fn pause(&self, millis: RangeInclusive<u64>) {
        sleep(Duration::from_millis(self.random.within(millis))).await;
    }

    /// The next run on this host.
    pub(crate) fn holder(&self) -> Holder {
        let run = format!("{}-{}", self.name, self.random.within(0..=99_999));
        Holder {
            run_id: run.parse().expect("a short plain label"),
            host: self.label(),
            host_run_id: Label::nobody(),
        }
    }

    pub(crate) fn label(&self) -> Label {
        self.name.parse().expect("a short plain label")
    }

    /// Does something under an id, and lets the oracle know what was meant and what was told.
    pub(crate) async fn perform<T>(
        &self,
        op_id: OpId,
        means: Means,
        act: impl Future<Output = Result<T, LineageError>>,
    ) -> Result<T, Setback> {
        self.world.oracle().begin(op_id, self.name.clone(), means);
        let ending = act.await;
        self.world.oracle().record_answer(op_id, &ending);
        ending.map_err(|error| match error {
            LineageError::Unknown(record) => Setback::Unknown(record),
            _ => Setback::Denied,
        })
    }

    /// Lives through `life` unless it crashes first.
    pub(crate) fn survive<'a>(
        &'a self,
        life: impl Future<Output = ()> + Send + 'a,
    ) -> impl Future<Output = Ending> + Send + 'a {
        Mortal {
            host: self,
            life: Box::pin(life),
            nap: None,
        }
    }

    /// Something may befall the host, now that it waits; a nap is how long it is suspended.
    fn fate(&self) -> Fate {
        let perils = self.world.perils;
        if self.happens(perils.jump) {
            let most = if self.happens(300) { MOST_SKEW } else { 8_000 };
            let by = self.random.within(0..=2 * most.unsigned_abs());
            self.clock
                .jump(i64::try_from(by).expect("two hours at most") - most);
            self.befell("clock jumped");
        }
        if self.happens(perils.crash) {
            self.befell("crash");
            return Fate::Crash;
        }
        if self.happens(perils.suspend) {
            let ttl = u64::try_from(self.world.ttl.as_millis()).expect("a lease is short");
            let nap = Duration::from_millis(self.random.within(1..=3 * ttl));
            if nap > self.world.ttl {
                self.befell("suspended beyond the lease");
            }
            return Fate::Nap(nap);
        }
        Fate::Nothing
    }

    fn befell(&self, what: &'static str) {
        let mut oracle = self.world.oracle();
        oracle.observations.add(what);
        oracle.note(format_args!("befell {}: {what}", self.name));
    }
}

enum Fate {
    Nothing,
    Nap(Duration),
    Crash,
}

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// By itself.
    Lived,
    /// In the middle of something. What was sent is still on its way.
    Crashed,
}

/// A life that can be interrupted, or end, at every await.
struct Mortal<'a> {
    host: &'a Host,
    life: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    nap: Option<Pin<Box<Sleep>>>,
}

impl Future for Mortal<'_> {
    type Output = Ending;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ending> {
        loop {
            if let Some(nap) = &mut self.nap {
                std::task::ready!(nap.as_mut().poll(context));
                self.nap = None;
            }
            if self.life.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ending::Lived);
            }
            match self.host.fate() {
                Fate::Nothing => return Poll::Pending,
                Fate::Crash => return Poll::Ready(Ending::Crashed),
                Fate::Nap(nap) => self.nap = Some(Box::pin(sleep(nap))),
            }
        }
    }
}
