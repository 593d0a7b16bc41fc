use crate::support::{SeededChance, bucket_at, location_under_test, now, store_under_test};
use async_trait::async_trait;
use bytes::Bytes;
use stasis_model::format::document::{self, Version};
use stasis_model::time::Timestamp;
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, Head, Listed, ListedPage, Object, Swap,
};
use stasis_store::layout::{Key, Prefix};
use stasis_store::probe::{CheckName, CheckVerdict, ProbeReport, ProbeVerdict, probe, summary};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// In which way a store is not what it seems.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    /// Accepts conditions and writes anyway.
    IgnoresConditions,
    /// Ignores only the condition that nothing is there.
    IgnoresIfMissing,
    /// Answers reads from a copy that is never brought up to date.
    ForgetsWhatWasListed,
    /// Lists from the beginning, wherever it is asked to go on.
    BeginsAnew,
    /// Answers with an error where it is asked to go on.
    RefusesToGoOn,
    /// Never answers there.
    HangsGoingOn,
    /// Never answers.
    Silent,
    /// Refuses our keys.
    Denies,
    /// Applies conditional writes and loses every answer to them.
    LosesAnswers,
    /// Applies no conditional write and answers none.
    Drops,
    /// Answers so many requests, and then that it cannot now.
    FailsAfter(usize),
    /// Ignores the condition that nothing is there, and fails after some requests.
    IgnoresThenFails,
}

#[derive(Debug)]
struct Flawed(MemoryBucket, Flaw, AtomicUsize);

impl Flawed {
    fn with(flaw: Flaw) -> Self {
        Self(MemoryBucket::new(), flaw, AtomicUsize::new(0))
    }

    fn answered(&self, swap: Swap) -> Swap {
        match self.1 {
            Flaw::LosesAnswers | Flaw::Drops => Swap::Unknown,
            _ => swap,
        }
    }

    async fn pass(&self, key: &Key) -> Result<(), BucketError> {
        match self.1 {
            Flaw::Silent => std::future::pending().await,
            Flaw::Denies => Err(BucketError::new(BucketErrorKind::Denied, "ask for", key)),
            Flaw::FailsAfter(_) | Flaw::IgnoresThenFails => {
                let limit = match self.1 {
                    Flaw::FailsAfter(limit) => limit,
                    _ => 12,
                };
                if self.2.fetch_add(1, Ordering::Relaxed) < limit {
                    return Ok(());
                }
                let kind = BucketErrorKind::Unreachable;
                Err(BucketError::new(kind, "ask for", key))
            }
            _ => Ok(()),
        }
    }

    async fn overwrite(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.0.put(key, body).await?;
        let head = self.0.head(key).await?.expect("it was just written");
        Ok(Swap::Won(head.version))
    }
}

#[async_trait]
impl Bucket for Flawed {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>, BucketError> {
        self.pass(key).await?;
        self.0.get(key, limit).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        self.pass(key).await?;
        self.0.get_range(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Option<Head>, BucketError> {
        self.pass(key).await?;
        self.0.head(key).await
    }

    async fn create(&self, key: &Key, body: Bytes) -> Result<Swap, BucketError> {
        self.pass(key).await?;
        match self.1 {
            Flaw::IgnoresConditions | Flaw::IgnoresIfMissing | Flaw::IgnoresThenFails => {
                self.overwrite(key, body).await
            }
            Flaw::Drops => Ok(Swap::Unknown),
            _ => Ok(self.answered(self.0.create(key, body).await?)),
        }
    }

    async fn swap(&self, key: &Key, expected: &Version, body: Bytes) -> Result<Swap, BucketError> {
        self.pass(key).await?;
        match self.1 {
            Flaw::IgnoresConditions => self.overwrite(key, body).await,
            Flaw::Drops => Ok(Swap::Unknown),
            _ => Ok(self.answered(self.0.swap(key, expected, body).await?)),
        }
    }

    async fn put(&self, key: &Key, body: Bytes) -> Result<(), BucketError> {
        self.pass(key).await?;
        self.0.put(key, body).await
    }

    async fn put_stream(&self, key: &Key, body: ByteStream) -> Result<u64, BucketError> {
        self.0.put_stream(key, body).await
    }

    async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, BucketError> {
        match self.1 {
            Flaw::Silent => std::future::pending().await,
            Flaw::ForgetsWhatWasListed => Ok(Vec::new()),
            _ => self.0.list(prefix, after, limit).await,
        }
    }

    async fn list_after(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<ListedPage, BucketError> {
        match self.1 {
            Flaw::RefusesToGoOn => {
                let kind = BucketErrorKind::Unreachable;
                return Err(BucketError::new(kind, "list", prefix));
            }
            Flaw::HangsGoingOn => std::future::pending().await,
            _ => {}
        }
        let after = after.filter(|_| self.1 != Flaw::BeginsAnew);
        self.0.list_after(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), BucketError> {
        self.0.delete(key).await
    }

    fn clock_offset_ms(&self) -> Option<i64> {
        Some(3_600_000)
    }
}

async fn probed(bucket: &dyn Bucket) -> ProbeReport {
    probe(
        bucket,
        "memory:",
        &SeededChance::fresh(),
        Timestamp::from_millis(5),
    )
    .await
    .unwrap()
}

/// Why a store could not be asked.
async fn not_probed(flaw: Flaw) -> BucketError {
    let bucket = Flawed::with(flaw);
    let rng = SeededChance::fresh();
    let now = Timestamp::from_millis(5);
    probe(&bucket, "memory:", &rng, now).await.unwrap_err()
}

fn verdict_of(report: &ProbeReport, name: CheckName) -> CheckVerdict {
    let mut checks = report.checks.iter();
    let check = checks.find(|check| check.name == name);
    check.expect("every check is in the report").verdict
}

#[tokio::test]
async fn memory_and_a_directory_pass_and_are_left_clean() {
    let directory = tempfile::tempdir().unwrap();
    let file = FileBucket::open(directory.path()).await.unwrap();
    let memory = MemoryBucket::new();

    for bucket in [&file as &dyn Bucket, &memory] {
        let report = probed(bucket).await;

        assert_eq!(report.verdict, ProbeVerdict::MultiWriter, "{report:#?}");
        assert_eq!(report.checks.len(), 10);
        assert_eq!(report.says(CheckName::ListGoesOn), Some(true));
        let left = bucket.list(&Prefix::everything(), None, 9).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_refused() {
    let report = probed(&Flawed::with(Flaw::IgnoresConditions)).await;

    assert_eq!(report.verdict, ProbeVerdict::Refused);
    for name in [
        CheckName::CreateTwice,
        CheckName::RacingCreates,
        CheckName::StaleSwap,
        CheckName::SwapOfMissing,
        CheckName::ConcurrentIncrements,
    ] {
        assert_eq!(verdict_of(&report, name), CheckVerdict::Ignored, "{name:?}");
    }
    assert_eq!(
        verdict_of(&report, CheckName::Ranges),
        CheckVerdict::Honoured
    );
    assert!(summary(&report).contains("a stale swap is refused (ignored)"));
}

#[tokio::test]
async fn a_store_that_ignores_one_condition_is_refused() {
    let report = probed(&Flawed::with(Flaw::IgnoresIfMissing)).await;

    assert_eq!(report.verdict, ProbeVerdict::Refused);
    assert_eq!(
        verdict_of(&report, CheckName::CreateTwice),
        CheckVerdict::Ignored
    );
    assert_eq!(
        verdict_of(&report, CheckName::StaleSwap),
        CheckVerdict::Honoured
    );
}

#[tokio::test]
async fn a_store_whose_listings_lag_is_refused() {
    let report = probed(&Flawed::with(Flaw::ForgetsWhatWasListed)).await;

    assert_eq!(report.verdict, ProbeVerdict::Refused);
    assert_eq!(
        verdict_of(&report, CheckName::ListAfterWrite),
        CheckVerdict::Ignored
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_unreachable_in_bounded_time() {
    let start = tokio::time::Instant::now();

    let error = not_probed(Flaw::Silent).await;

    assert!(start.elapsed().as_secs() <= 90);
    assert_eq!(error.kind, BucketErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn an_outage_at_any_moment_is_not_taken_for_a_broken_promise() {
    for flaw in [Flaw::LosesAnswers, Flaw::Drops] {
        let error = not_probed(flaw).await;

        assert_eq!(error.kind, BucketErrorKind::Unreachable, "{flaw:?}");
    }
    let asked = (0..).map(Flaw::FailsAfter);
    let mut whole = 0;
    for flaw in asked.step_by(7).take(60) {
        let bucket = Flawed::with(flaw);
        let (rng, now) = (SeededChance::fresh(), Timestamp::from_millis(5));
        match probe(&bucket, "memory:", &rng, now).await {
            Ok(report) => {
                assert_eq!(report.verdict, ProbeVerdict::MultiWriter, "{flaw:?}");
                whole += 1;
            }
            Err(error) => assert_eq!(error.kind, BucketErrorKind::Unreachable, "{flaw:?}"),
        }
    }
    assert!(whole < 60);
}

#[tokio::test]
async fn what_a_store_did_before_an_outage_still_counts() {
    let bucket = Flawed::with(Flaw::IgnoresThenFails);
    let (rng, now) = (SeededChance::fresh(), Timestamp::from_millis(5));

    let report = probe(&bucket, "memory:", &rng, now).await.unwrap();

    assert_eq!(report.verdict, ProbeVerdict::Refused);
    assert_eq!(
        verdict_of(&report, CheckName::CreateTwice),
        CheckVerdict::Ignored
    );
    assert_eq!(
        verdict_of(&report, CheckName::Ranges),
        CheckVerdict::Unknown
    );
}

#[tokio::test]
async fn a_store_that_denies_says_so() {
    let error = not_probed(Flaw::Denies).await;

    assert_eq!(error.kind, BucketErrorKind::Denied);
}

#[tokio::test]
async fn a_clock_that_is_an_hour_off_is_said_but_refuses_nothing() {
    let report = probed(&Flawed::with(Flaw::IgnoresConditions)).await;

    let clock = report.checks.last().unwrap();
    assert_eq!((clock.name, clock.required), (CheckName::Clock, false));
    assert_eq!(clock.verdict, CheckVerdict::Failed);
    assert!(clock.detail.contains("3600000 ms"));
}

#[tokio::test]
async fn a_listing_that_begins_anew_is_said_but_refuses_nothing() {
    let report = probed(&Flawed::with(Flaw::BeginsAnew)).await;

    assert_eq!(report.verdict, ProbeVerdict::MultiWriter, "{report:#?}");
    assert_eq!(report.says(CheckName::ListGoesOn), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_asked_to_go_on_is_trusted_all_the_same() {
    for (flaw, verdict) in [
        (Flaw::RefusesToGoOn, CheckVerdict::Failed),
        (Flaw::HangsGoingOn, CheckVerdict::Unknown),
    ] {
        let report = probed(&Flawed::with(flaw)).await;

        assert_eq!(report.verdict, ProbeVerdict::MultiWriter, "{report:#?}");
        assert_eq!(verdict_of(&report, CheckName::ListGoesOn), verdict);
    }
}

#[tokio::test]
async fn a_report_is_a_document() {
    let report = probed(&MemoryBucket::new()).await;

    let text = document::render(&report);

    assert_eq!(document::parse::<ProbeReport>(&text).unwrap(), report);
    let text = String::from_utf8(text).unwrap();
    for field in [
        r#""version": 1"#,
        r#""checked_at_ms": 5"#,
        r#""verdict": "multi_writer""#,
    ] {
        assert!(text.contains(field), "{field} in {text}");
    }
}

#[tokio::test]
async fn an_s3_store_passes_the_probe() {
    let Some(bucket) = store_under_test("probe") else {
        return;
    };
    let start = tokio::time::Instant::now();

    let report = probe(&bucket, "s3://store", &SeededChance::fresh(), now()).await;
    let report = report.unwrap();

    println!("the probe took {:?}", start.elapsed());
    assert_eq!(report.verdict, ProbeVerdict::MultiWriter, "{report:#?}");
    for name in [CheckName::ListGoesOn, CheckName::Clock] {
        let verdict = verdict_of(&report, name);
        assert_eq!(verdict, CheckVerdict::Honoured, "{name:?}");
    }
}

#[tokio::test]
async fn a_real_store_that_ignores_conditions_is_refused() {
    let variable = "STASIS_TEST_S3_CARELESS";
    let Some(location) = location_under_test(variable, "an S3 server that ignores conditions")
    else {
        return;
    };

    let report = probe(
        &bucket_at(&location),
        "s3://careless",
        &SeededChance::fresh(),
        now(),
    )
    .await
    .unwrap();

    println!("{}", summary(&report));
    assert_eq!(report.verdict, ProbeVerdict::Refused, "{report:#?}");
    assert_eq!(
        verdict_of(&report, CheckName::StaleSwap),
        CheckVerdict::Ignored
    );
}
