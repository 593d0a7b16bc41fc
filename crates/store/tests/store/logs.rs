use crate::scripted_bucket::{ScriptedBucket, Turn};
use crate::support::SeededChance;
use bytes::Bytes;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::id::{Lineage, TenantId};
use stasis_model::rng::Rng;
use stasis_model::time::Timestamp;
use stasis_store::bucket::{Bucket, BucketErrorKind};
use stasis_store::documents::events::EventSearch;
use stasis_store::documents::{events, leases};
use stasis_store::layout::{self, EventTag};

const DAY: u64 = 86_400_000;

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn event_at(rng: &SeededChance, at_ms: u64) -> AuditEvent {
    let at = Timestamp::from_millis(at_ms);
    let actor = "operator".parse().unwrap();
    AuditEvent::new(rng.op_id(), EventKind::Rollback, Severity::Info, at, actor)
}

/// Records an event at each of these times.
async fn recorded(bucket: &dyn Bucket, times: impl IntoIterator<Item = u64>) {
    let rng = SeededChance::new(5);
    for at in times {
        let event = event_at(&rng, at);
        events::record(bucket, &tenant(), &event).await.unwrap();
    }
}

/// Puts something that is no event where one would be, and returns where.
async fn spoiled(bucket: &dyn Bucket, at_ms: u64, body: &[u8]) -> layout::Key {
    let id = SeededChance::new(at_ms).op_id();
    let tag = EventTag::of("");
    let key = layout::event(&tenant(), Timestamp::from_millis(at_ms), id, &tag);
    let body = Bytes::copy_from_slice(body);
    bucket.put(&key, body).await.unwrap();
    key
}

fn times(latest: &events::Latest) -> Vec<u64> {
    let times = latest.events.iter().map(|event| event.at_ms.millis());
    times.collect()
}

#[tokio::test]
async fn one_unreadable_event_hides_no_other() {
    let bucket = ScriptedBucket::default();
    recorded(&bucket, [1, DAY + 1, DAY + 2]).await;
    let broken = spoiled(&bucket, DAY + 3, b"{\"version\":1,\"kind\":\"\x1b[2J\"}").await;
    let newer = spoiled(&bucket, 2 * DAY, b"{\"version\":9}").await;

    let latest = events::latest(&bucket, &tenant(), 9).await.unwrap();

    assert_eq!(times(&latest), [1, DAY + 1, DAY + 2]);
    let [(first, why), (second, why_too)] = &latest.unreadable[..] else {
        panic!("two unreadable events, not {:?}", latest.unreadable);
    };
    assert_eq!((first, second), (&broken, &newer));
    assert!(why.starts_with("the event "), "{why}");
    assert!(!why.contains(char::is_control), "{why}");
    assert!(why_too.contains("version 9"), "{why_too}");
}

#[tokio::test]
async fn an_event_that_is_too_large_is_unreadable() {
    let bucket = ScriptedBucket::default();
    recorded(&bucket, [1]).await;
    let key = spoiled(&bucket, 2, &vec![b' '; 1024 * 1024]).await;

    let latest = events::latest(&bucket, &tenant(), 9).await.unwrap();

    assert_eq!(times(&latest), [1]);
    assert_eq!(latest.unreadable[0].0, key);
}

#[tokio::test]
async fn a_store_that_fails_is_not_an_unreadable_event() {
    let bucket = ScriptedBucket::with([Turn::Work, Turn::Fail], []);
    recorded(&bucket, [1, 2, 3]).await;

    let failed = events::latest(&bucket, &tenant(), 9).await.unwrap_err();

    assert_eq!(failed.kind, BucketErrorKind::Unreachable);
}

#[tokio::test]
async fn only_the_newest_are_returned_oldest_first_whatever_their_names() {
    let bucket = ScriptedBucket::default();
    recorded(&bucket, (0..40).map(|hour| hour * DAY / 8)).await;

    let latest = events::latest(&bucket, &tenant(), 10).await.unwrap();
    let none = events::latest(&bucket, &tenant(), 0).await.unwrap();

    let newest: Vec<u64> = (30..40).map(|hour| hour * DAY / 8).collect();
    assert_eq!(times(&latest), newest);
    assert_eq!(none, events::Latest::default());
}

#[tokio::test]
async fn thousands_of_objects_are_listed_once() {
    let bucket = ScriptedBucket::default();
    recorded(&bucket, (0..1200).map(|second| second * 1000)).await;
    let lineage = |number: u32| -> Lineage { format!("acme/p{number:04}@1").parse().unwrap() };
    for number in 0..1200 {
        let key = layout::lock(&lineage(number));
        bucket.put(&key, "{}".into()).await.unwrap();
    }

    let latest = events::latest(&bucket, &tenant(), 9999).await.unwrap();
    assert_eq!((latest.events.len(), bucket.listings()), (1200, 1));
    let tenants = events::tenants(&bucket).await.unwrap();
    // Two pages of a thousand rows, and none of them twice.
    assert_eq!((tenants, bucket.listings()), (vec![tenant()], 3));
    let locked = leases::locked(&bucket).await.unwrap();
    assert_eq!((locked.len(), bucket.listings()), (1200, 5));
    assert_eq!(locked.first(), Some(&lineage(0)));
}

/// A day in 2023, so that a search has somewhere to go back to.
const NOW: u64 = 19_600 * DAY + DAY / 2;

async fn happens(bucket: &dyn Bucket, rng: &SeededChance, subject: &str, at_ms: u64) {
    let event = event_at(rng, at_ms).with("subject", subject);
    events::record(bucket, &tenant(), &event).await.unwrap();
}

async fn found(bucket: &dyn Bucket, subject: &str, most: usize) -> events::FoundEvents {
    let search = EventSearch {
        subject,
        is_wanted: &|_| true,
        most,
    };
    let found = events::latest_about(bucket, &tenant(), &search).await;
    found.unwrap()
}

fn found_times(found: &events::FoundEvents) -> Vec<u64> {
    let times = found.events.iter().map(|event| event.at_ms.millis());
    times.collect()
}

#[tokio::test]
async fn the_events_of_a_quiet_subject_are_found_among_thousands_of_a_busy_one() {
    let (bucket, rng) = (ScriptedBucket::default(), SeededChance::new(7));
    for second in 0..1200 {
        happens(&bucket, &rng, "dir:busy", NOW - second * 1000).await;
    }
    let quiet = [NOW - 400 * DAY, NOW - 90 * DAY, NOW - 3 * DAY];
    for at in quiet {
        happens(&bucket, &rng, "dir:quiet", at).await;
    }

    let before = bucket.listings();
    let all = found(&bucket, "dir:quiet", 20).await;
    // A store may have to list everything to list anything.
    assert_eq!(bucket.listings(), before + 1);
    let some = found(&bucket, "dir:quiet", 2).await;
    let none = found(&bucket, "dir:other", 20).await;

    assert_eq!((found_times(&all), all.ended_on), (quiet.to_vec(), None));
    assert_eq!(found_times(&some), quiet[1..]);
    let last = Timestamp::from_millis(quiet[1]).day();
    assert_eq!(some.ended_on, Some(last), "older ones are not denied");
    assert_eq!(none, events::FoundEvents::default());
}

#[tokio::test]
async fn a_search_that_cannot_look_at_everything_says_where_it_ended() {
    let (bucket, rng) = (ScriptedBucket::default(), SeededChance::new(7));
    // Of older builds: their names do not say what they are about.
    for minute in 0..600 {
        let event = event_at(&rng, NOW - 5 * DAY - minute * 60_000).with("subject", "dir:busy");
        let tag = EventTag::of("dir:busy");
        let key = layout::event(&tenant(), event.at_ms, event.id, &tag).to_string();
        let (untagged, _) = key.strip_suffix(".json").unwrap().rsplit_once('.').unwrap();
        let key = layout::Key::from_listing(&format!("{untagged}.json")).unwrap();
        let body = stasis_model::format::document::render(&event);
        bucket.put(&key, Bytes::from(body)).await.unwrap();
    }
    happens(&bucket, &rng, "dir:quiet", NOW - DAY).await;
    happens(&bucket, &rng, "dir:quiet", NOW - 5 * DAY).await;
    happens(&bucket, &rng, "dir:quiet", NOW - 9 * DAY).await;

    let quiet = found(&bucket, "dir:quiet", 20).await;

    assert_eq!(found_times(&quiet), [NOW - 5 * DAY, NOW - DAY]);
    let ended_on = quiet.ended_on.unwrap();
    assert!(ended_on <= Timestamp::from_millis(NOW - 5 * DAY).day());
}

#[tokio::test]
async fn a_page_of_the_log_goes_on_where_the_one_after_it_began() {
    let bucket = ScriptedBucket::default();
    recorded(&bucket, (0..10).map(|hour| hour * DAY / 4)).await;
    // Two of one moment are told apart.
    let rng = SeededChance::new(9);
    happens(&bucket, &rng, "dir:other", 0).await;
    happens(&bucket, &rng, "dir:other", 9 * DAY / 4).await;

    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = events::latest_before(&bucket, &tenant(), before, 5).await;
        let page = page.unwrap();
        let Some(first) = page.events.first() else {
            break;
        };
        before = Some(first.into());
        pages.push(times(&page));
    }

    let all: Vec<u64> = pages.iter().rev().flatten().copied().collect();
    let latest = events::latest(&bucket, &tenant(), 99).await.unwrap();
    assert_eq!(all, times(&latest));
    assert_eq!(pages.len(), 3);
}
