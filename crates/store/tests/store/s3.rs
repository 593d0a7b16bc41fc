use crate::fake_server::{Behaviour, FakeServer, error, success};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use stasis_model::format::document::Version;
use stasis_model::time::{Clock, Timestamp};
use stasis_store::backend::object_store::{ObjectBucket, TransferSettings};
use stasis_store::backend::s3::{self, S3Access};
use stasis_store::bucket::{Bucket, BucketError, BucketErrorKind, ByteStream, Swap};
use stasis_store::credentials::{Credentials, Secret};
use stasis_store::layout::{self, Key, Prefix};
use stasis_store::location::{AddressStyle, CredentialSource, StoreLocation};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// 1994-11-06T08:49:37Z, the moment of every example.
const THEN: u64 = 784_111_777_000;

#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(THEN)
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }
}

fn keys() -> S3Access {
    S3Access::Keys(Credentials {
        access_key: "key".to_owned(),
        secret: Secret::new("hunter2"),
        session_token: None,
    })
}

fn bucket_on(scheme: &str, port: u16) -> ObjectBucket {
    let url = format!("s3://bucket/own?endpoint={scheme}://127.0.0.1:{port}");
    let StoreLocation::S3(location) = url.parse().unwrap() else {
        panic!("an S3 location");
    };
    let settings = TransferSettings {
        connect_timeout: Duration::from_millis(300),
        request_timeout: Duration::from_millis(800),
        completion_timeout: Duration::from_secs(2),
        ..TransferSettings::default()
    };
    s3::open(&location, keys(), Arc::new(StoppedClock), settings).unwrap()
}

pub(crate) async fn server(
    behaviours: impl IntoIterator<Item = Behaviour>,
) -> (FakeServer, ObjectBucket) {
    let server = FakeServer::start(behaviours).await;
    let bucket = bucket_on("http", server.port);
    (server, bucket)
}

fn key() -> Key {
    layout::probe_result()
}

fn version() -> Version {
    Version::new("\"old\"")
}

/// Every answer comes within a time; ours are short.
async fn soon<T>(answer: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, answer)
        .await
        .expect("an answer in bounded time")
}

async fn swapped(bucket: &ObjectBucket) -> Result<Swap, BucketErrorKind> {
    let swap = soon(bucket.swap(&key(), &version(), "new".into())).await;
    swap.map_err(|error| error.kind)
}

async fn created(bucket: &ObjectBucket) -> Result<Swap, BucketErrorKind> {
    let swap = soon(bucket.create(&key(), "new".into())).await;
    swap.map_err(|error| error.kind)
}

/// The kinds with which a read, a look, a write, a listing and a removal fail.
async fn kinds(bucket: &ObjectBucket) -> [Option<BucketErrorKind>; 6] {
    let (key, all) = (key(), Prefix::everything());
    [
        soon(bucket.get(&key, 99)).await.err(),
        soon(bucket.get_range(&key, 0..9)).await.err(),
        soon(bucket.head(&key)).await.err(),
        soon(bucket.put(&key, "x".into())).await.err(),
        soon(bucket.list(&all, None, 9)).await.err(),
        soon(bucket.delete(&key)).await.err(),
    ]
    .map(|error| error.map(|error| error.kind))
}

#[tokio::test]
async fn a_refused_connection_is_unreachable_and_nothing_was_applied() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bucket = bucket_on("http", free.local_addr().unwrap().port());
    drop(free);

    assert_eq!(swapped(&bucket).await, Err(BucketErrorKind::Unreachable));
    assert_eq!(created(&bucket).await, Err(BucketErrorKind::Unreachable));
    assert_eq!(
        kinds(&bucket).await,
        [Some(BucketErrorKind::Unreachable); 6]
    );
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_unreachable_and_nothing_was_applied() {
    // The server does not speak TLS: it waits for the end of a request that never comes.
    let server = FakeServer::start([Behaviour::Hang]).await;
    let bucket = bucket_on("https", server.port);

    assert_eq!(swapped(&bucket).await, Err(BucketErrorKind::Unreachable));
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_server_that_hangs_leaves_a_swap_unknown_and_a_read_unreachable() {
    let (_server, bucket) = server([Behaviour::Hang]).await;

    assert_eq!(swapped(&bucket).await, Ok(Swap::Unknown));
    assert_eq!(created(&bucket).await, Ok(Swap::Unknown));
    assert_eq!(
        kinds(&bucket).await,
        [Some(BucketErrorKind::Unreachable); 6]
    );
}

#[tokio::test]
async fn a_connection_that_is_cut_leaves_a_swap_unknown_and_a_read_unreachable() {
    let (_server, bucket) = server([Behaviour::HangUp]).await;
    assert_eq!(swapped(&bucket).await, Ok(Swap::Unknown));
    assert_eq!(
        kinds(&bucket).await,
        [Some(BucketErrorKind::Unreachable); 6]
    );

    let (_server, bucket) = server([Behaviour::Cut]).await;
    let whole = soon(bucket.get(&key(), 10_000)).await.unwrap_err();
    assert_eq!(whole.kind, BucketErrorKind::Unreachable);
    let listed = soon(bucket.list(&Prefix::everything(), None, 9)).await;
    assert_eq!(listed.unwrap_err().kind, BucketErrorKind::Unreachable);
}

#[tokio::test]
async fn an_error_of_the_server_leaves_a_swap_unknown_and_is_asked_only_once() {
    for (status, code) in [
        (500, "InternalError"),
        (502, ""),
        (503, "SlowDown"),
        (504, ""),
        (429, "TooManyRequests"),
        (408, ""),
        (400, "RequestTimeout"),
    ] {
        let (server, bucket) = server([error(status, code)]).await;

        assert_eq!(swapped(&bucket).await, Ok(Swap::Unknown), "{status}");
        assert_eq!(created(&bucket).await, Ok(Swap::Unknown), "{status}");
        assert_eq!(server.asked().len(), 2, "{status}");
        assert_eq!(
            kinds(&bucket).await[..2],
            [Some(BucketErrorKind::Unreachable); 2]
        );
    }
}

#[tokio::test]
async fn a_conflict_settles_nothing_and_a_failed_condition_does() {
    let (_server, bucket) = server([error(409, "ConditionalRequestConflict")]).await;
    assert_eq!(swapped(&bucket).await, Ok(Swap::Unknown));
    assert_eq!(created(&bucket).await, Ok(Swap::Unknown));

    let (_server, bucket) = server([error(412, "PreconditionFailed")]).await;
    assert_eq!(swapped(&bucket).await, Ok(Swap::Lost));
    assert_eq!(created(&bucket).await, Ok(Swap::Lost));
}

#[tokio::test]
async fn the_conditions_are_sent() {
    let (server, bucket) = server([error(412, "PreconditionFailed")]).await;

    assert_eq!(swapped(&bucket).await, Ok(Swap::Lost));
    assert_eq!(created(&bucket).await, Ok(Swap::Lost));

    let asked = server.asked();
    assert!(asked[0].starts_with("PUT /bucket/own/meta/probe.json HTTP/1.1"));
    assert!(asked[0].to_lowercase().contains("if-match: \"old\""));
    assert!(asked[1].to_lowercase().contains("if-none-match: *"));
    assert!(!asked[0].contains("hunter2"));
}

#[tokio::test]
async fn a_missing_object_is_lost_to_a_swap_but_a_missing_bucket_is_absent() {
    let (_server, bucket) = server([error(404, "NoSuchKey")]).await;
    assert_eq!(swapped(&bucket).await, Ok(Swap::Lost));
    assert_eq!(soon(bucket.get(&key(), 9)).await.unwrap(), None);
    soon(bucket.delete(&key())).await.unwrap();

    let (_server, bucket) = server([error(404, "NoSuchBucket")]).await;
    assert_eq!(swapped(&bucket).await, Err(BucketErrorKind::Absent));
    assert_eq!(created(&bucket).await, Err(BucketErrorKind::Absent));
    assert_eq!(kinds(&bucket).await, [Some(BucketErrorKind::Absent); 6]);
}

#[tokio::test]
async fn a_404_without_a_word_is_settled_by_a_listing() {
    let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    let silent = || Behaviour::Reply(404, String::new(), String::new());

    let (_server, bucket) = server([silent(), success("", empty)]).await;
    assert_eq!(soon(bucket.head(&key())).await.unwrap(), None);

    let (_server, bucket) = server([silent(), error(404, "NoSuchBucket")]).await;
    let absent = soon(bucket.head(&key())).await.unwrap_err();
    assert_eq!(absent.kind, BucketErrorKind::Absent);

    let (_server, bucket) = server([silent(), error(503, "SlowDown")]).await;
    let unreachable = soon(bucket.head(&key())).await.unwrap_err();
    assert_eq!(unreachable.kind, BucketErrorKind::Unreachable);
}

#[tokio::test]
async fn refused_keys_are_denied() {
    for (status, code) in [
        (403, "AccessDenied"),
        (403, "SignatureDoesNotMatch"),
        (401, ""),
        (400, "ExpiredToken"),
    ] {
        let (_server, bucket) = server([error(status, code)]).await;

        assert_eq!(
            swapped(&bucket).await,
            Err(BucketErrorKind::Denied),
            "{code}"
        );
        assert_eq!(
            kinds(&bucket).await,
            [Some(BucketErrorKind::Denied); 6],
            "{code}"
        );
    }
}

#[tokio::test]
async fn what_a_store_does_not_know_is_unsupported() {
    for (status, code) in [(501, "NotImplemented"), (400, "InvalidRequest"), (405, "")] {
        let (_server, bucket) = server([error(status, code)]).await;

        assert_eq!(
            swapped(&bucket).await,
            Err(BucketErrorKind::Unsupported),
            "{status}"
        );
        assert_eq!(
            created(&bucket).await,
            Err(BucketErrorKind::Unsupported),
            "{status}"
        );
    }
}

/// An error with all its causes, as a person would see it.
fn whole(error: &BucketError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Every way to fail, as a person would see it.
async fn complaints(bucket: &ObjectBucket) -> Vec<String> {
    let (key, all) = (key(), Prefix::everything());
    let errors = [
        soon(bucket.get(&key, 99)).await.err(),
        soon(bucket.head(&key)).await.err(),
        soon(bucket.put(&key, "x".into())).await.err(),
        soon(bucket.swap(&key, &version(), "x".into())).await.err(),
        soon(bucket.list(&all, None, 9)).await.err(),
        soon(bucket.delete(&key)).await.err(),
    ];
    errors.iter().flatten().map(whole).collect()
}

#[tokio::test]
async fn a_bucket_in_another_region_says_which_setting_to_change() {
    let header = "x-amz-bucket-region: eu-north-1\r\n".to_owned();
    let body = "<Error><Code>PermanentRedirect</Code></Error>".to_owned();
    for (answer, region) in [
        (Behaviour::Reply(301, header, body), "eu-north-1"),
        (error(301, "PermanentRedirect"), "…"),
        (error(400, "AuthorizationHeaderMalformed"), "…"),
        (error(400, "IllegalLocationConstraintException"), "…"),
    ] {
        let (_server, bucket) = server([answer]).await;
        let wanted =
            format!("the bucket is in another region: set region={region} in the store URL");

        let complaints = complaints(&bucket).await;

        assert_eq!(complaints.len(), 6);
        for complaint in complaints {
            assert!(complaint.contains(&wanted), "{complaint}");
        }
    }
}

#[tokio::test]
async fn a_wrong_clock_is_called_so() {
    let (_server, bucket) = server([error(403, "RequestTimeTooSkewed")]).await;

    let failed = soon(bucket.get(&key(), 9)).await.unwrap_err();

    assert_eq!(failed.kind, BucketErrorKind::Denied);
    let text = whole(&failed);
    assert!(text.contains("this host's clock is wrong"), "{text}");
}

#[tokio::test]
async fn what_a_server_says_is_shown_short_and_in_one_line() {
    let long = "\n<b>very</b> \u{1b}[31m long".repeat(500);
    let body = format!(
        "<?xml version=\"1.0\"?>\n<Error>\n<Code>NoSuchBucket</Code>\n<Message>No such {long}</Message>\n</Error>"
    );
    for status in [200, 404, 403, 400, 301] {
        let answer = Behaviour::Reply(status, String::new(), body.clone());
        let (_server, bucket) = server([answer]).await;

        for complaint in complaints(&bucket).await {
            assert!(!complaint.contains(char::is_control), "{complaint}");
            assert!(complaint.chars().count() < 900, "{complaint}");
            assert!(!complaint.contains("<?xml"), "{complaint}");
        }
    }

    let (_server, bucket) = server([Behaviour::Reply(404, String::new(), body)]).await;
    let absent = soon(bucket.get(&key(), 9)).await.unwrap_err();
    let text = whole(&absent);
    assert!(
        text.contains("404 Not Found (NoSuchBucket: No such"),
        "{text}"
    );
    assert!(text.chars().count() < 400, "{text}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = "Location: http://127.0.0.1:1/elsewhere\r\nETag: \"x\"\r\n".to_owned();
        let reply = Behaviour::Reply(status, elsewhere, String::new());
        let (server, bucket) = server([reply]).await;

        assert_eq!(
            swapped(&bucket).await,
            Err(BucketErrorKind::Unsupported),
            "{status}"
        );
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_success_without_a_version_leaves_a_swap_unknown_and_a_put_done() {
    let (_server, bucket) = server([success("", "")]).await;

    assert_eq!(swapped(&bucket).await, Ok(Swap::Unknown));
    assert_eq!(created(&bucket).await, Ok(Swap::Unknown));
    soon(bucket.put(&key(), "x".into())).await.unwrap();
}

#[tokio::test]
async fn a_success_with_a_version_is_won() {
    let (_server, bucket) = server([success("ETag: \"new\"\r\n", "")]).await;

    let won = Swap::Won(Version::new("\"new\""));

    assert_eq!(swapped(&bucket).await, Ok(won.clone()));
    assert_eq!(created(&bucket).await, Ok(won));
}

#[tokio::test]
async fn a_huge_object_is_too_large_before_its_body_is_read() {
    let promised = "ETag: \"x\"\r\nContent-Length: 999999999999\r\n";
    let (_server, bucket) = server([success(promised, "the first few bytes")]).await;

    let refused = soon(bucket.get(&key(), 1_000_000)).await.unwrap_err();

    assert_eq!(refused.kind, BucketErrorKind::TooLarge);
}

#[tokio::test]
async fn the_stores_clock_is_compared_with_ours() {
    let dated = |date| success(&format!("ETag: \"x\"\r\nDate: {date}\r\n"), "");
    let script = [
        dated("Sun, 06 Nov 1994 08:49:37 GMT"),
        dated("Sun, 06 Nov 1994 09:49:37 GMT"),
        dated("yesterday"),
    ];
    let (_server, bucket) = server(script).await;
    assert_eq!(bucket.clock_offset_ms(), None);

    let mut offsets = Vec::new();
    for _ in 0..3 {
        soon(bucket.put(&key(), "x".into())).await.unwrap();
        offsets.push(bucket.clock_offset_ms().unwrap());
    }

    assert_eq!(offsets, [500, 3_600_500, 3_600_500]);
}

#[tokio::test]
async fn a_listing_that_goes_in_circles_is_an_error_and_no_end() {
    let page = |next: &str| {
        let token = format!("<NextContinuationToken>{next}</NextContinuationToken>");
        success("", &format!("<ListBucketResult>{token}</ListBucketResult>"))
    };
    for script in [
        vec![page("a"), page("a")],
        vec![page("a"), page("b"), page("a"), page("b")],
    ] {
        let (_server, bucket) = server(script).await;

        let listed = soon(bucket.list(&Prefix::everything(), None, 9)).await;

        assert_eq!(listed.unwrap_err().kind, BucketErrorKind::Unreachable);
    }
}

#[tokio::test]
async fn a_listing_is_put_in_order_and_cut_to_our_own_keys() {
    let row = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><Size>3</Size><ETag>x</ETag>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        )
    };
    let page = |rows: &[&str], next: &str| {
        let rows: String = rows.iter().map(|key| row(key)).collect();
        success(
            "",
            &format!("<ListBucketResult>{rows}{next}</ListBucketResult>"),
        )
    };
    let next = "<NextContinuationToken>more</NextContinuationToken>";
    let script = || {
        [
            page(&["own/a/b", "own/a-b", "owner/x"], next),
            page(&["own/a!", "own/z"], ""),
        ]
    };
    let listed = async |after: Option<&str>, limit| {
        let (_server, bucket) = server(script()).await;
        let after = after.and_then(Key::from_listing);
        let all = Prefix::everything();
        let rows = soon(bucket.list(&all, after.as_ref(), limit))
            .await
            .unwrap();
        let names = rows.iter().map(|row| row.key.to_string());
        names.collect::<Vec<_>>()
    };

    assert_eq!(listed(None, 99).await, ["a!", "a-b", "a/b", "z"]);
    assert_eq!(listed(Some("a-b"), 1).await, ["a/b"]);
    assert_eq!(listed(Some("z"), 1).await, [""; 0]);
}

fn large_body() -> ByteStream {
    let piece = || Ok(Bytes::from(vec![1; 5 * 1024 * 1024]));
    stream::iter([piece(), piece(), piece()]).boxed()
}

pub(crate) fn started() -> Behaviour {
    let id = "<UploadId>42</UploadId>";
    success(
        "",
        &format!("<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>"),
    )
}

pub(crate) fn part() -> Behaviour {
    success("ETag: \"part\"\r\n", "")
}

/// What a look at an object of this size is answered.
pub(crate) fn found(size: u64) -> Behaviour {
    success(
        &format!(
            "ETag: \"whole\"\r\nContent-Length: {size}\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        ),
        "",
    )
}

/// Uploads an object of two parts whose completion is answered so, and returns the requests after it.
async fn uploaded(
    answers: impl IntoIterator<Item = Behaviour>,
) -> (Result<u64, BucketErrorKind>, Vec<String>) {
    let script = [started(), part(), part()].into_iter().chain(answers);
    let (server, bucket) = server(script).await;
    let stored = soon(bucket.put_stream(&key(), large_body())).await;
    let later = server.asked().split_off(4);
    let verb = |head: &String| head.split(' ').next().unwrap_or_default().to_owned();
    let later = later.iter().map(verb).collect();
    (stored.map_err(|error| error.kind), later)
}

#[tokio::test]
async fn a_completion_without_a_clear_answer_is_settled_by_looking() {
    let size = 15 * 1024 * 1024;
    let internal = "<Error><Code>InternalError</Code></Error>";
    for unclear in [
        Behaviour::Hang,
        Behaviour::HangUp,
        Behaviour::Cut,
        error(500, "InternalError"),
        error(404, "NoSuchUpload"),
        success("", internal),
    ] {
        let there = uploaded([unclear.clone(), found(size)]).await;
        assert_eq!(there, (Ok(size), vec!["HEAD".to_owned()]), "{unclear:?}");

        let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        let absent = [error(404, ""), success("", empty)];
        let (outcome, later) = uploaded([unclear.clone()].into_iter().chain(absent)).await;
        assert_eq!(outcome, Err(BucketErrorKind::Unreachable), "{unclear:?}");
        assert_eq!(later, ["HEAD", "GET"], "{unclear:?}");
    }
}

#[tokio::test]
async fn a_completion_is_not_settled_by_an_object_of_another_size() {
    let (outcome, later) = uploaded([Behaviour::HangUp, found(7)]).await;

    assert_eq!(outcome, Err(BucketErrorKind::Unreachable));
    assert_eq!(later, ["HEAD"]);
}

#[tokio::test]
async fn a_look_after_a_completion_is_repeated_when_it_fails() {
    let size = 15 * 1024 * 1024;

    let script = [Behaviour::HangUp, error(503, "SlowDown"), found(size)];
    let (outcome, later) = uploaded(script).await;

    assert_eq!(outcome, Ok(size));
    assert_eq!(later, ["HEAD", "HEAD"]);
}

#[tokio::test]
async fn a_completion_may_take_longer_than_a_small_request() {
    let server = FakeServer::start([started(), part(), part(), Behaviour::Hang]).await;
    let bucket = bucket_on("http", server.port);

    let begun = tokio::time::Instant::now();
    let outcome = soon(bucket.put_stream(&key(), large_body())).await;

    assert_eq!(outcome.unwrap_err().kind, BucketErrorKind::Unreachable);
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_completion_that_is_refused_is_an_error_and_leaves_no_upload_behind() {
    for (status, code, kind) in [
        (403, "AccessDenied", BucketErrorKind::Denied),
        (400, "InvalidPart", BucketErrorKind::Unsupported),
    ] {
        let (outcome, later) = uploaded([error(status, code), success("", "")]).await;

        assert_eq!(outcome, Err(kind));
        assert_eq!(later, ["DELETE"], "{code}");
    }
}

#[tokio::test]
async fn an_upload_that_fails_is_aborted() {
    let (server, bucket) = server([started(), error(403, "AccessDenied")]).await;

    let failed = soon(bucket.put_stream(&key(), large_body()))
        .await
        .unwrap_err();

    assert_eq!(failed.kind, BucketErrorKind::Denied);
    // The other part is on its way meanwhile, and may be heard of last.
    let asked = server.asked();
    let is_abort = |one: &&String| one.starts_with("DELETE ") && one.contains("uploadId=42");
    let is_end = |one: &&String| one.starts_with("POST ") && one.contains("uploadId=");
    assert_eq!(asked.iter().filter(is_abort).count(), 1, "{asked:?}");
    assert_eq!(asked.iter().filter(is_end).count(), 0, "{asked:?}");
}

#[tokio::test]
async fn a_part_that_did_not_arrive_is_sent_again() {
    let done = success(
        "",
        "<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>",
    );
    let script = [started(), error(503, "SlowDown"), part(), part(), done];
    let (server, bucket) = server(script).await;

    let stored = soon(bucket.put_stream(&key(), large_body())).await;

    assert_eq!(stored.unwrap(), 15 * 1024 * 1024);
    assert_eq!(server.asked().len(), 5);
}

#[tokio::test]
async fn the_metadata_service_is_asked_only_when_the_location_says_so() {
    let StoreLocation::S3(location) = "s3://bucket".parse().unwrap() else {
        panic!("an S3 location");
    };
    let settings = TransferSettings::default;
    let open =
        |location: &_, access| s3::open(location, access, Arc::new(StoppedClock), settings());

    let refused = open(&location, S3Access::Instance).unwrap_err();
    let asked = stasis_store::location::S3Location {
        credentials: CredentialSource::Instance,
        ..location
    };

    assert_eq!(refused.kind, BucketErrorKind::Unsupported);
    assert!(open(&asked, S3Access::Instance).is_ok());
}

#[tokio::test]
async fn a_bucket_that_cannot_go_in_front_of_its_host_is_refused() {
    let StoreLocation::S3(location) = "s3://bucket?endpoint=http://127.0.0.1:9".parse().unwrap()
    else {
        panic!("an S3 location");
    };
    let virtual_style = stasis_store::location::S3Location {
        style: Some(AddressStyle::Virtual),
        ..location
    };

    let settings = TransferSettings::default();
    let refused = s3::open(&virtual_style, keys(), Arc::new(StoppedClock), settings);

    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, BucketErrorKind::Unsupported);
    assert!(whole(&refused).contains("style=path"));
}

#[tokio::test]
async fn a_bucket_shows_where_it_is_but_no_secret() {
    let shown = format!("{:?}", bucket_on("http", 9));

    assert_eq!(
        shown,
        "S3Bucket(s3://bucket/own?endpoint=http://127.0.0.1:9)"
    );
}
