//! The checks of a probe. Each returns what it found, or the error with which the store answered.

use super::{CheckName, CheckVerdict};
use crate::bucket::{Bucket, BucketError, BucketErrorKind, Swap};
use crate::layout::{self, Key, Prefix};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
use stasis_model::rng::Rng;
use std::time::Duration;

const SMALL: u64 = 64 * 1024;
const RACERS: usize = 8;
const WRITERS: usize = 8;
const INCREMENTS: u64 = 25;
const CLOCK_TOLERANCE_MS: u64 = 30_000;

type CheckFinding = (CheckVerdict, String);

fn honoured(detail: impl Into<String>) -> CheckFinding {
    (CheckVerdict::Honoured, detail.into())
}

fn ignored(detail: impl Into<String>) -> CheckFinding {
    (CheckVerdict::Ignored, detail.into())
}

fn failed(detail: impl Into<String>) -> CheckFinding {
    (CheckVerdict::Failed, detail.into())
}

/// How often a write whose answer was lost is sent again.
const ASKED_AGAIN: u32 = 4;

/// No answer: nothing is known of the store.
fn no_answer(key: &Key) -> BucketError {
    BucketError::new(BucketErrorKind::Unreachable, "probe", key)
        .because("the store gave no answer to a conditional write")
}

/// Where a probe works.
pub(super) struct ProbeScratch<'a> {
    pub(super) bucket: &'a dyn Bucket,
    pub(super) rng: &'a dyn Rng,
    pub(super) id: OpId,
}

impl ProbeScratch<'_> {
    pub(super) async fn ask(&self, name: CheckName) -> Result<CheckFinding, BucketError> {
        match name {
            CheckName::CreateTwice => self.create_twice().await,
            CheckName::RacingCreates => self.racing_creates().await,
            CheckName::StaleSwap => self.stale_swap().await,
            CheckName::SwapOfMissing => self.swap_of_missing().await,
            CheckName::ReadAfterWrite => self.read_after_write().await,
            CheckName::ListAfterWrite => self.list_after_write().await,
            CheckName::Ranges => self.ranges().await,
            CheckName::ConcurrentIncrements => self.concurrent_increments().await,
            CheckName::ListGoesOn => self.list_goes_on().await,
            CheckName::Clock => Ok(self.clock()),
        }
    }

    fn key(&self, name: &'static str) -> Key {
        layout::probe_scratch(self.id, name)
    }

    /// Bytes that no other write ever had.
    fn fresh(&self) -> Bytes {
        self.rng.op_id().to_string().into()
    }

    async fn body(&self, key: &Key) -> Result<Option<Bytes>, BucketError> {
        let found = self.bucket.get(key, SMALL).await?;
        Ok(found.map(|object| object.body))
    }

    /// Creates an object whose name is ours alone and returns its version, even when the answer was lost.
    async fn made(&self, key: &Key, body: &Bytes) -> Result<Option<Version>, BucketError> {
        for attempt in 0..=ASKED_AGAIN {
            let swap = self.bucket.create(key, body.clone()).await?;
            if let Swap::Won(version) = swap {
                return Ok(Some(version));
            }
            let found = self.bucket.get(key, SMALL).await?;
            let ours = found.filter(|object| object.body == *body);
            if ours.is_some() || swap == Swap::Lost {
                return Ok(ours.map(|object| object.version));
            }
            pause(attempt).await;
        }
        Err(no_answer(key))
    }

    /// A create that must be refused, sent until it is answered.
    async fn create_again(&self, key: &Key, body: &Bytes) -> Result<Swap, BucketError> {
        for attempt in 0..=ASKED_AGAIN {
            match self.bucket.create(key, body.clone()).await? {
                Swap::Unknown => pause(attempt).await,
                swap => return Ok(swap),
            }
        }
        Err(no_answer(key))
    }

    /// A swap that must be refused, sent until it is answered.
    async fn swap_again(
        &self,
        key: &Key,
        expected: &Version,
        body: &Bytes,
    ) -> Result<Swap, BucketError> {
        for attempt in 0..=ASKED_AGAIN {
            match self.bucket.swap(key, expected, body.clone()).await? {
                Swap::Unknown => pause(attempt).await,
                swap => return Ok(swap),
            }
        }
        Err(no_answer(key))
    }

    async fn create_twice(&self) -> Result<CheckFinding, BucketError> {
        let key = self.key("create");
        let (first, second) = (self.fresh(), self.fresh());
        if self.made(&key, &first).await?.is_none() {
            return Ok(failed("an object that did not exist could not be created"));
        }
        let again = self.create_again(&key, &second).await?;
        let kept = self.body(&key).await? == Some(first);
        Ok(match (again, kept) {
            (Swap::Lost, true) => {
                honoured("the second create was refused and the first one's bytes stayed")
            }
            (Swap::Won(_), _) => ignored("the second create of one object was accepted"),
            _ => ignored("the second create replaced the bytes of the first"),
        })
    }

    async fn racing_creates(&self) -> Result<CheckFinding, BucketError> {
        let key = self.key("race");
        let bodies: Vec<Bytes> = (0..RACERS).map(|_| self.fresh()).collect();
        let racers = bodies.iter().map(|body| async {
            // So that no racer is done before the last one starts.
            tokio::task::yield_now().await;
            self.bucket.create(&key, body.clone()).await
        });
        let (mut winners, mut silence) = (Vec::new(), false);
        for (racer, swap) in join_all(racers).await.into_iter().enumerate() {
            match swap? {
                Swap::Won(_) => winners.push(racer),
                Swap::Unknown => silence = true,
                Swap::Lost => {}
            }
        }
        let stored = self.body(&key).await?;
        let kept = bodies.iter().position(|body| stored.as_ref() == Some(body));
        Ok(match (winners.as_slice(), kept) {
            ([], Some(_)) => honoured(format!(
                "one of {RACERS} was stored, though its answer was lost"
            )),
            ([winner], Some(kept)) if *winner == kept => honoured(format!(
                "one of {RACERS} creates at once won, and its bytes stayed"
            )),
            ([_], Some(_)) => ignored("one create won, and another one's bytes were stored"),
            ([], None) if silence => return Err(no_answer(&key)),
            (_, None) => failed("what was created is not there"),
            (winners, _) => ignored(format!("{} of {RACERS} creates at once won", winners.len())),
        })
    }

    async fn stale_swap(&self) -> Result<CheckFinding, BucketError> {
        let key = self.key("stale");
        let (first, second) = (self.fresh(), self.fresh());
        let Some(old) = self.made(&key, &first).await? else {
            return Ok(failed("an object that did not exist could not be created"));
        };
        let swap = self.bucket.swap(&key, &old, second.clone()).await?;
        if self.body(&key).await?.as_ref() != Some(&second) {
            if swap == Swap::Unknown {
                return Err(no_answer(&key));
            }
            return Ok(failed(format!(
                "a swap of the current version was answered {swap:?} and not applied"
            )));
        }
        let stale = self.swap_again(&key, &old, &self.fresh()).await?;
        let kept = self.body(&key).await? == Some(second);
        Ok(match (stale, kept) {
            (Swap::Lost, true) => honoured("a swap that named an older version was refused"),
            _ => ignored("a swap that named an older version replaced a newer one"),
        })
    }

    async fn swap_of_missing(&self) -> Result<CheckFinding, BucketError> {
        let (there, missing) = (self.key("there"), self.key("missing"));
        let Some(version) = self.made(&there, &self.fresh()).await? else {
            return Ok(failed("an object that did not exist could not be created"));
        };
        let swap = self.swap_again(&missing, &version, &self.fresh()).await?;
        let created = self.body(&missing).await?.is_some();
        Ok(match (swap, created) {
            (Swap::Lost, false) => {
                honoured("a swap of a missing object was refused and created nothing")
            }
            _ => ignored("a swap of a missing object created it"),
        })
    }

    async fn read_after_write(&self) -> Result<CheckFinding, BucketError> {
        let key = self.key("read");
        let mut body = self.fresh();
        let Some(mut version) = self.made(&key, &body).await? else {
            return Ok(failed("an object that did not exist could not be created"));
        };
        for _ in 0..5 {
            if self.body(&key).await? != Some(body) {
                return Ok(ignored("a read did not see the write before it"));
            }
            body = self.fresh();
            match self.bucket.swap(&key, &version, body.clone()).await? {
                Swap::Won(new) => version = new,
                Swap::Unknown => return Err(no_answer(&key)),
                Swap::Lost => {
                    return Ok(failed("a swap without rivals was lost".to_owned()));
                }
            }
            let head = self.bucket.head(&key).await?;
            if head.map(|head| head.version) != Some(version.clone()) {
                return Ok(ignored(
                    "the version of an object is not the one its write returned",
                ));
            }
        }
        self.bucket.delete(&key).await?;
        Ok(match self.body(&key).await? {
            None => honoured("reads saw five writes and a delete at once"),
            Some(_) => ignored("a read saw an object that was deleted"),
        })
    }

    async fn list_after_write(&self) -> Result<CheckFinding, BucketError> {
        let keys = ["list/1", "list/2", "list/3", "list/4"].map(|name| self.key(name));
        for key in &keys {
            self.bucket.put(key, self.fresh()).await?;
            if !self.lists(key).await? {
                return Ok(ignored(
                    "a listing did not have the object written before it",
                ));
            }
        }
        self.bucket.delete(&keys[0]).await?;
        Ok(if self.lists(&keys[0]).await? {
            ignored("a listing still had an object that was deleted")
        } else {
            honoured("listings saw four writes and a delete at once")
        })
    }

    async fn lists(&self, key: &Key) -> Result<bool, BucketError> {
        let scratch = Prefix::probe_scratch(self.id);
        let rows = self.bucket.list(&scratch, None, usize::MAX).await?;
        Ok(rows.iter().any(|row| row.key == *key))
    }

    async fn list_goes_on(&self) -> Result<CheckFinding, BucketError> {
        let names = [
            "order/a-b/x",
            "order/a/x",
            "order/a/y/z",
            "order/a0/x",
            "order/b/x",
        ];
        let keys = names.map(|name| self.key(name));
        let puts = keys.iter().map(|key| self.bucket.put(key, self.fresh()));
        try_join_all(puts).await?;
        let order = Prefix::probe_scratch(self.id).starting("order/");
        let whole = self.listed_after(&order, None).await?;
        let directory = |key: &Key| {
            let inner = &key.as_str()[order.as_str().len()..];
            inner.split('/').next().map(str::to_owned)
        };
        let mut directories: Vec<_> = whole.iter().filter_map(directory).collect();
        directories.dedup();
        if whole.len() != keys.len() || directories.len() != 4 {
            return Ok(ignored("what lies in one directory is not listed together"));
        }
        for name in directories {
            let end = order.end_of(&name);
            let passed = whole
                .iter()
                .rposition(|key| directory(key).as_ref() == Some(&name));
            let expected = &whole[passed.map_or(0, |last| last + 1)..];
            if self.listed_after(&order, Some(&end)).await? != expected {
                return Ok(ignored(
                    "a listing after a directory was not the rest of it",
                ));
            }
        }
        Ok(honoured("a listing went on after each of four directories"))
    }

    /// Names as the store lists them, two at a time.
    async fn listed_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
    ) -> Result<Vec<Key>, BucketError> {
        let mut keys: Vec<Key> = Vec::new();
        loop {
            let after = keys.last().or(after);
            let page = self.bucket.list_after(prefix, after, 2).await?;
            let is_over = page.next.is_none() || page.rows.is_empty();
            keys.extend(page.rows.into_iter().map(|row| row.key));
            // A store that begins anew each time would never end.
            if is_over || keys.len() > 16 {
                return Ok(keys);
            }
        }
    }

    async fn ranges(&self) -> Result<CheckFinding, BucketError> {
        let key = self.key("range");
        self.bucket.put(&key, "0123456789".into()).await?;
        for (range, part) in [(2..5, "234"), (8..20, "89"), (10..12, "")] {
            let read = self.bucket.get_range(&key, range.clone()).await?;
            if read.as_deref() != Some(part.as_bytes()) {
                return Ok(ignored(format!(
                    "bytes {range:?} of an object were read as something else"
                )));
            }
        }
        Ok(honoured("parts of an object were read exactly"))
    }

    fn clock(&self) -> CheckFinding {
        match self.bucket.clock_offset_ms() {
            None => (
                CheckVerdict::Unknown,
                "the store has no clock of its own".to_owned(),
            ),
            Some(offset) if offset.unsigned_abs() <= CLOCK_TOLERANCE_MS => {
                honoured(format!("the store's clock minus ours is {offset} ms"))
            }
            Some(offset) => failed(format!(
                "the store's clock minus ours is {offset} ms; one of the two is wrong"
            )),
        }
    }

    async fn concurrent_increments(&self) -> Result<CheckFinding, BucketError> {
        let key = self.key("counter");
        let start = ProbeTally([0; WRITERS]);
        if self.made(&key, &start.body()).await?.is_none() {
            return Ok(failed("an object that did not exist could not be created"));
        }
        let writers = join_all((0..WRITERS).map(|writer| self.increment(&key, writer))).await;
        for outcome in writers {
            if let Some(finding) = outcome? {
                return Ok(finding);
            }
        }
        let total = self
            .body(&key)
            .await?
            .and_then(|body| ProbeTally::read(&body));
        let total = total.map(|tally| tally.0.iter().sum::<u64>());
        let wanted = WRITERS as u64 * INCREMENTS;
        Ok(match total {
            Some(total) if total == wanted => {
                honoured(format!("{WRITERS} writers added exactly {wanted}"))
            }
            Some(total) => ignored(format!(
                "{WRITERS} writers added {wanted}, and {total} remained"
            )),
            None => failed("the counter could not be read back"),
        })
    }

    /// Adds to one writer's place. Nobody else does, so the place itself tells whether a lost answer was a lost write.
    async fn increment(
        &self,
        key: &Key,
        writer: usize,
    ) -> Result<Option<CheckFinding>, BucketError> {
        let mut reached = 0;
        while reached < INCREMENTS {
            let found = self.bucket.get(key, SMALL).await?;
            let Some((object, mut tally)) = found.and_then(|object| {
                let tally = ProbeTally::read(&object.body)?;
                Some((object, tally))
            }) else {
                return Ok(Some(failed("the counter could not be read back")));
            };
            if tally.0[writer] < reached {
                return Ok(Some(ignored(
                    "an acknowledged increment was overwritten by a stale one",
                )));
            }
            reached = tally.0[writer];
            if reached == INCREMENTS {
                break;
            }
            tally.0[writer] += 1;
            tokio::task::yield_now().await;
            let swap = self.bucket.swap(key, &object.version, tally.body()).await?;
            match swap {
                Swap::Won(_) => reached += 1,
                Swap::Lost | Swap::Unknown => {
                    let pause = Duration::from_micros(self.rng.below(5_000));
                    tokio::time::sleep(pause).await;
                }
            }
        }
        Ok(None)
    }
}

/// Waits a little longer each time.
async fn pause(attempt: u32) {
    tokio::time::sleep(Duration::from_millis(50 << attempt.min(6))).await;
}

/// How far each writer came. It only grows, so its bytes never repeat.
struct ProbeTally([u64; WRITERS]);

impl ProbeTally {
    fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok().map(Self)
    }

    fn body(&self) -> Bytes {
        serde_json::to_vec(&self.0)
            .expect("numbers are JSON")
            .into()
    }
}
