use super::*;
use crate::seeded_rng::SeededRng;
use stasis_store::contract;
use std::time::Duration;
use tokio::time::Instant;

fn a_bucket(faults: FaultPlan) -> FaultyBucket {
    let store = FaultyStore::new(faults, SeededRng::new(7), Arc::new(Nobody));
    let clock = SimClock::new(Instant::now(), 90_000, Duration::ZERO);
    store.reached_from(Arc::new(clock))
}

fn always(fault: impl FnOnce(&mut FaultPlan)) -> FaultyBucket {
    let mut faults = FaultPlan {
        calm_from: 1_000,
        ..FaultPlan::fine()
    };
    fault(&mut faults);
    a_bucket(faults)
}

fn key() -> Key {
    Key::from_listing("snapshots/a").unwrap()
}

async fn is_there(bucket: &FaultyBucket) -> bool {
    bucket.head(&key()).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_faulty_bucket_in_fine_weather_is_a_bucket() {
    contract::all(&a_bucket(FaultPlan::fine())).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_unknown_and_never_applied() {
    let bucket = always(|faults| faults.lost = 1000);

    let swap = bucket.create(&key(), "a".into()).await.unwrap();

    assert_eq!(swap, Swap::Unknown);
    sleep(Duration::from_hours(1)).await;
    assert!(!is_there(&bucket).await);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_request_is_unknown_and_applied() {
    let bucket = always(|faults| faults.unanswered = 1000);

    let swap = bucket.create(&key(), "a".into()).await.unwrap();

    assert_eq!(swap, Swap::Unknown);
    assert!(is_there(&bucket).await);
}

#[tokio::test(start_paused = true)]
async fn a_late_request_is_unknown_and_lands_after_its_sender_gave_up() {
    let bucket = always(|faults| (faults.late, faults.lateness) = (1000, 5_000));

    let swap = bucket.create(&key(), "a".into()).await.unwrap();

    assert_eq!(swap, Swap::Unknown);
    assert!(!is_there(&bucket).await);
    sleep(Duration::from_secs(6)).await;
    assert!(is_there(&bucket).await);
}

#[tokio::test(start_paused = true)]
async fn a_request_lands_although_its_sender_died() {
    let bucket = always(|faults| faults.slowness = 100);
    let (key, body) = (key(), "a".into());
    let request = bucket.create(&key, body);

    let died = tokio::time::timeout(Duration::from_millis(1), request).await;

    assert!(died.is_err());
    sleep(Duration::from_secs(1)).await;
    assert!(is_there(&bucket).await);
}

#[tokio::test(start_paused = true)]
async fn a_doubled_request_is_refused_by_its_own_success() {
    let bucket = always(|faults| faults.twice = 1000);

    let swap = bucket.create(&key(), "a".into()).await.unwrap();

    assert_eq!(swap, Swap::Lost);
    assert!(is_there(&bucket).await);
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_nothing_is_applied_and_nothing_is_read_as_absent() {
    let bucket = always(|faults| faults.outages.push(0..500));

    for _ in 0..4 {
        let write = bucket.create(&key(), "a".into()).await;
        assert!(!matches!(write, Ok(Swap::Won(_) | Swap::Lost)));
    }
    let read = bucket.get(&key(), 9).await.unwrap_err();

    assert_eq!(read.kind, BucketErrorKind::Unreachable);
    sleep(Duration::from_secs(1)).await;
    assert!(!is_there(&bucket).await);
}

#[tokio::test(start_paused = true)]
async fn a_stale_listing_shows_the_past_and_a_read_does_not() {
    let bucket = always(|faults| (faults.stale, faults.calm_from) = (1000, 100_000));
    sleep(Duration::from_secs(30)).await;
    let created = bucket.create(&key(), "a".into()).await.unwrap();
    assert!(matches!(created, Swap::Won(_)));

    let rows = bucket.list(&Prefix::everything(), None, 9).await.unwrap();

    assert_eq!(rows, []);
    assert!(is_there(&bucket).await);
    sleep(Duration::from_secs(30)).await;
    let rows = bucket.list(&Prefix::everything(), None, 9).await.unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_learns_the_stores_clock_from_an_answer() {
    let bucket = always(|faults| faults.tells_date = true);
    assert_eq!(bucket.clock_offset_ms(), None);

    assert!(!is_there(&bucket).await);

    assert_eq!(bucket.clock_offset_ms(), Some(-90_000));
}
