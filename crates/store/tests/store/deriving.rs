//! Objects that are made of parts of others, on a real S3 server, with faults in between.

use crate::fake_server::{Behaviour, FakeServer, error, success};
use crate::proxy::{CopyFault, Proxy};
use crate::s3::{found, part, server, started};
use crate::support::{bucket_at, bucket_with, location_under_test};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::OpId;
use stasis_model::rng::Rng as _;
use stasis_model::shared_range::{SharedRange, SharedRanges};
use stasis_store::backend::object_store::{ObjectBucket, TransferSettings};
use stasis_store::bucket::{
    Bucket, BucketError, BucketErrorKind, ByteStream, CopySource, DerivedObject, ReadRange,
};
use stasis_store::contract::{self, TwoVersions};
use stasis_store::documents::profiles::{LineageSnapshots, NewArchive};
use stasis_store::layout::{self, Key, StoredForm};
use std::ops::Range;
use std::time::Duration;

/// Longer than any request is waited for.
const NEVER: Duration = Duration::from_secs(20);

/// A store behind a proxy, with the older version in it.
struct StoreBehindProxy {
    proxy: Proxy,
    bucket: ObjectBucket,
    direct: ObjectBucket,
    versions: TwoVersions,
    older: Key,
    newer: Key,
}

impl StoreBehindProxy {
    async fn new(fault: CopyFault) -> Option<Self> {
        let location = location_under_test("STASIS_TEST_S3", "an S3 server")?;
        let (proxy, through) = Proxy::before(&location, fault).await;
        // Only what never comes is not waited for: a busy machine is slow, and that is no fault of a copy.
        let is_never = matches!(fault, CopyFault::Late(late) if late == NEVER);
        let settings = TransferSettings {
            request_timeout: Duration::from_secs(if is_never { 5 } else { 60 }),
            ..TransferSettings::default()
        };
        let rng = crate::support::SeededChance::fresh();
        let key = |id: OpId| layout::operation(id);
        let behind = Self {
            proxy,
            bucket: bucket_with(&through, settings),
            direct: bucket_at(&location),
            versions: TwoVersions::new(24),
            older: key(rng.op_id()),
            newer: key(rng.op_id()),
        };
        let older = behind.versions.older_stream();
        behind
            .direct
            .put_stream(&behind.older, older)
            .await
            .unwrap();
        Some(behind)
    }

    /// How many bytes were sent; `None` when nothing was made.
    async fn derive(&self) -> Option<u64> {
        self.put_derived().await.unwrap()
    }

    async fn put_derived(&self) -> Result<Option<u64>, BucketError> {
        let read = self.versions.read();
        let object = DerivedObject {
            size: self.versions.newer.len() as u64,
            read: &read,
            source: CopySource {
                key: &self.older,
                size: self.versions.older.len() as u64,
                ranges: &self.versions.ranges,
            },
        };
        self.bucket.put_derived(&self.newer, &object).await
    }

    async fn stored(&self) -> Option<Bytes> {
        let found = self.direct.get(&self.newer, u64::MAX).await.unwrap();
        found.map(|found| found.body)
    }

    async fn remove(self) {
        self.direct.delete(&self.older).await.unwrap();
        self.direct.delete(&self.newer).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_said_to_be_sent_is_what_goes_over_the_wire() {
    let Some(behind) = StoreBehindProxy::new(CopyFault::None).await else {
        return;
    };

    let sent = behind.derive().await.expect("a server that copies");

    assert!(behind.stored().await.unwrap() == behind.versions.newer);
    assert_eq!(behind.proxy.traffic().sent, sent);
    assert!(sent < 6 << 20, "{sent}");
    let requests = behind.proxy.traffic().requests.len();
    // A look, a start, two copies, two parts, and the end.
    assert_eq!((behind.proxy.traffic().copies, requests), (2, 7));
    behind.remove().await;
}

#[tokio::test]
async fn an_object_that_is_not_copied_asks_five_times_more_than_one_that_is_sent() {
    let fault = CopyFault::Refused(501, "NotImplemented");
    let Some(behind) = StoreBehindProxy::new(fault).await else {
        return;
    };
    let requests = || behind.proxy.traffic().requests.len();

    assert_eq!(behind.derive().await, None);
    let in_vain = requests();
    let newer = stream::iter([Ok(behind.versions.newer.clone())]).boxed();
    let stored = behind.bucket.put_stream(&behind.newer, newer).await;
    stored.unwrap();

    // A look, a start, two copies and an abort; then a start, four parts and the end.
    assert_eq!((in_vain, requests() - in_vain), (5, 6));
    behind.remove().await;
}

#[tokio::test]
async fn a_copy_that_fails_once_or_comes_twice_is_a_copy() {
    for fault in [
        CopyFault::RefusedOnce(503, "SlowDown"),
        CopyFault::ErrorInSuccess,
        CopyFault::Doubled,
        CopyFault::Late(Duration::from_secs(1)),
    ] {
        let Some(behind) = StoreBehindProxy::new(fault).await else {
            return;
        };

        let sent = behind.derive().await;

        assert!(
            sent.is_some_and(|sent| sent < 6 << 20),
            "{fault:?}: {sent:?}"
        );
        assert!(behind.stored().await.unwrap() == behind.versions.newer);
        behind.remove().await;
    }
}

#[tokio::test]
async fn a_copy_that_does_not_come_through_stores_nothing_and_sends_nothing() {
    for (fault, is_remembered) in [
        (CopyFault::Refused(501, "NotImplemented"), true),
        (CopyFault::Refused(405, "MethodNotAllowed"), true),
        (CopyFault::Refused(400, "InvalidArgument"), true),
        (CopyFault::Refused(403, "AccessDenied"), true),
        (CopyFault::Ignored, true),
        (CopyFault::OtherETag, true),
        (CopyFault::Refused(404, "NoSuchKey"), false),
        // The source has the ETag that the copy named.
        (CopyFault::Refused(412, "PreconditionFailed"), true),
        (CopyFault::Refused(503, "SlowDown"), false),
        (CopyFault::Cut, false),
        (CopyFault::CutAfter, false),
        (CopyFault::Late(NEVER), false),
    ] {
        let Some(behind) = StoreBehindProxy::new(fault).await else {
            return;
        };

        assert_eq!(behind.derive().await, None, "{fault:?}");

        assert_eq!(behind.stored().await, None, "{fault:?}");
        assert_eq!(behind.proxy.traffic().sent, 0, "{fault:?}");
        assert_eq!(
            behind.proxy.count(&["DELETE ", "uploadId="]),
            1,
            "{fault:?}"
        );
        let asked = behind.proxy.traffic().copies;
        if is_remembered {
            assert_eq!(behind.derive().await, None);
            assert_eq!(behind.proxy.traffic().copies, asked, "{fault:?}");
            assert_eq!(behind.proxy.count(&["POST "]), 1, "{fault:?}");
        }
        behind.remove().await;
    }
}

#[tokio::test]
async fn a_source_that_is_replaced_before_the_copy_gives_nothing() {
    let Some(behind) = StoreBehindProxy::new(CopyFault::None).await else {
        return;
    };
    let mut rotten = behind.versions.older.to_vec();
    rotten[3 << 20] ^= 1;
    let rotten = stream::iter([Ok(Bytes::from(rotten))]).boxed();
    behind
        .direct
        .put_stream(&behind.older, rotten)
        .await
        .unwrap();

    assert_eq!(behind.derive().await, None);
    assert_eq!(behind.stored().await, None);
    // It says nothing about the store: a source that is what it should be is copied.
    let older = behind.versions.older_stream();
    behind
        .direct
        .put_stream(&behind.older, older)
        .await
        .unwrap();
    assert!(behind.derive().await.is_some());
    behind.remove().await;
}

#[tokio::test]
async fn a_refusal_that_everything_would_meet_is_an_error_and_not_remembered() {
    for (status, code, kind) in [
        (400, "ExpiredToken", BucketErrorKind::Denied),
        (403, "RequestTimeTooSkewed", BucketErrorKind::Denied),
        (403, "QuotaExceeded", BucketErrorKind::Full),
    ] {
        let Some(behind) = StoreBehindProxy::new(CopyFault::Refused(status, code)).await else {
            return;
        };

        for asked in 1..=2 {
            let refused = behind.put_derived().await.unwrap_err();
            assert_eq!(refused.kind, kind, "{code}");
            assert_eq!(behind.proxy.count(&["POST "]), asked, "{code}");
            assert_eq!(behind.proxy.count(&["DELETE ", "uploadId="]), asked);
        }
        behind.remove().await;
    }
}

#[tokio::test]
async fn a_store_that_wants_parts_of_one_length_gets_them() {
    let fault = CopyFault::NotCompleted(1, 400, "InvalidPart");
    let Some(behind) = StoreBehindProxy::new(fault).await else {
        return;
    };

    let sent = behind.derive().await.expect("parts of one length");

    assert!(behind.stored().await.unwrap() == behind.versions.newer);
    assert_eq!(behind.proxy.traffic().sent, sent);
    assert_eq!(behind.proxy.count(&["DELETE ", "uploadId="]), 1);
    assert_eq!(behind.proxy.traffic().completions, 2);
    // The next one has them at once.
    behind.derive().await.expect("parts of one length");
    assert_eq!(behind.proxy.traffic().completions, 3);
    behind.remove().await;
}

#[tokio::test]
async fn a_store_that_joins_no_copied_parts_is_left_without_an_upload_and_not_asked_again() {
    let fault = CopyFault::NotCompleted(usize::MAX, 400, "InvalidPart");
    let Some(behind) = StoreBehindProxy::new(fault).await else {
        return;
    };

    assert_eq!(behind.derive().await, None);
    assert_eq!(behind.derive().await, None);

    assert_eq!(behind.stored().await, None);
    // A start and an end each, and both are aborted.
    assert_eq!(behind.proxy.count(&["POST "]), 4);
    assert_eq!(behind.proxy.count(&["DELETE ", "uploadId="]), 2);
    behind.remove().await;
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_aborted() {
    let wait = Duration::from_secs(3);
    for (fault, part) in [
        (CopyFault::HeldBack(wait), "partNumber=1"),
        (CopyFault::PartHeldBack(wait), "partNumber=2"),
    ] {
        let Some(behind) = StoreBehindProxy::new(fault).await else {
            return;
        };
        let is_on_its_way = async {
            while behind.proxy.count(&["PUT ", part]) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };

        tokio::select! {
            derived = behind.derive() => panic!("{fault:?}: {derived:?}"),
            () = is_on_its_way => {}
        }

        let is_aborted = async {
            while behind.proxy.count(&["DELETE ", "uploadId="]) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let aborted = tokio::time::timeout(wait, is_aborted).await;
        aborted.unwrap_or_else(|_| panic!("{fault:?}: the upload is left"));
        behind.remove().await;
    }
}

#[tokio::test]
async fn an_upload_is_aborted_after_all_its_copies_have_ended() {
    let fault = CopyFault::FirstRefusedOthersLate(Duration::from_secs(1));
    let Some(behind) = StoreBehindProxy::new(fault).await else {
        return;
    };

    assert_eq!(behind.derive().await, None);

    let answered = behind.proxy.traffic().answered_before_abort;
    assert_eq!(answered, Some(2));
    behind.remove().await;
}

#[tokio::test]
async fn a_source_that_is_replaced_while_it_is_copied_gives_nothing() {
    // Long enough for a busy server to take another object meanwhile.
    let wait = Duration::from_secs(8);
    let Some(behind) = StoreBehindProxy::new(CopyFault::HeldBack(wait)).await else {
        return;
    };
    let replace = async {
        while behind.proxy.traffic().copies == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let same_size = vec![7; behind.versions.older.len()];
        let other = stream::iter([Ok(Bytes::from(same_size))]).boxed();
        behind
            .direct
            .put_stream(&behind.older, other)
            .await
            .unwrap();
    };

    let (derived, ()) = tokio::join!(behind.derive(), replace);

    assert_eq!(derived, None);
    assert_eq!(behind.stored().await, None);
    assert_eq!(behind.proxy.traffic().sent, 0);
    behind.remove().await;
}

const MIB: u64 = 1 << 20;

fn zeros(range: Range<u64>) -> ByteStream {
    let length = usize::try_from(range.end - range.start).unwrap();
    stream::iter([Ok(Bytes::from(vec![0; length]))]).boxed()
}

fn shared(length: u64) -> SharedRanges {
    let range = SharedRange {
        at: 0,
        from: 0,
        length,
    };
    SharedRanges::from_iter([range])
}

fn verbs(server: &FakeServer) -> Vec<String> {
    let verb = |head: &String| head.split(' ').next().unwrap_or_default().to_owned();
    server.asked().iter().map(verb).collect()
}

/// Ten mebibytes that the store has, and one that is new, on a server that says this of the copy.
async fn derived_where_a_copy_is(etag: &str) -> (Option<u64>, Vec<String>) {
    let copied = format!("<CopyPartResult><ETag>&quot;{etag}&quot;</ETag></CopyPartResult>");
    let done = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
    let answers = [success("", &copied), part(), success("", done)];
    let script = [found(12 * MIB), started()].into_iter().chain(answers);
    let (server, bucket) = server(script).await;
    let ranges = shared(10 * MIB);
    let source = layout::probe_result();
    let object = derived(&source, &ranges, &zeros);
    let key = layout::operation(OpId::from_random([7; 16]));
    let derived = bucket.put_derived(&key, &object).await.unwrap();
    (derived, verbs(&server))
}

fn derived<'a>(
    source: &'a Key,
    ranges: &'a SharedRanges,
    read: ReadRange<'a>,
) -> DerivedObject<'a> {
    DerivedObject {
        size: 11 * MIB,
        read,
        source: CopySource {
            key: source,
            size: 12 * MIB,
            ranges,
        },
    }
}

/// Stores the same as an archive on a server that looks at the source and then answers so.
async fn archive_where(answer: Behaviour) -> (Result<u64, BucketErrorKind>, Vec<String>) {
    let (server, bucket) = server([found(12 * MIB), answer]).await;
    let (source, ranges) = (layout::probe_result(), shared(10 * MIB));
    let archive = NewArchive {
        digest: ArchiveDigest::of(b"eleven mebibytes of zeros"),
        size: 11 * MIB,
        form: StoredForm::Plain,
        body: &|| zeros(0..11 * MIB),
        derived: Some(derived(&source, &ranges, &zeros)),
    };
    let lineage = "acme/alice@131".parse().unwrap();
    let snapshots = LineageSnapshots::of(&bucket, &lineage);
    let stored = snapshots.put_archive(&archive).await;
    let stored = stored.map(|stored| stored.sent);
    (stored.map_err(|error| error.kind), verbs(&server))
}

#[tokio::test]
async fn an_archive_that_is_refused_is_not_sent_again_and_one_that_failed_is_tried_three_times() {
    let denied = archive_where(error(403, "AccessDenied")).await;
    let full = archive_where(error(403, "QuotaExceeded")).await;
    let down = archive_where(error(503, "SlowDown")).await;

    let verbs = |verbs: &[&str]| verbs.iter().map(|&verb| verb.to_owned()).collect();
    assert_eq!(
        denied,
        (Err(BucketErrorKind::Denied), verbs(&["HEAD", "POST"]))
    );
    assert_eq!(full, (Err(BucketErrorKind::Full), verbs(&["HEAD", "POST"])));
    let thrice = verbs(&["HEAD", "POST", "POST", "POST"]);
    assert_eq!(down, (Err(BucketErrorKind::Unreachable), thrice));
}

#[tokio::test]
async fn a_file_that_became_shorter_says_so_and_nothing_about_the_store() {
    let copied = "<CopyPartResult><ETag>&quot;x&quot;</ETag></CopyPartResult>";
    let script = [
        found(12 * MIB),
        started(),
        success("", copied),
        success("", ""),
    ];
    let (server, bucket) = server(script).await;
    let (source, ranges) = (layout::probe_result(), shared(10 * MIB));
    let short = |range: Range<u64>| zeros(range.start..range.end - 1);
    let key = layout::operation(OpId::from_random([7; 16]));

    let object = derived(&source, &ranges, &short);
    let failed = bucket.put_derived(&key, &object).await.unwrap_err();

    let mut why: Option<&dyn std::error::Error> = Some(&failed);
    let mut words = String::new();
    while let Some(error) = why {
        words.push_str(&error.to_string());
        why = error.source();
    }
    assert!(words.contains("end of file"), "{words}");
    assert_eq!(verbs(&server), ["HEAD", "POST", "PUT", "DELETE"]);
}

#[tokio::test]
async fn a_store_that_names_no_sha256_proves_a_copy_by_its_md5() {
    // Of ten mebibytes of zeros.
    let etag = "f1c9645dbc14efddc7d8a322685f26eb";

    let proven = derived_where_a_copy_is(etag).await;
    let unproven = derived_where_a_copy_is(&etag.replace(['0', '1'], "2")).await;
    let of_parts = derived_where_a_copy_is(&format!("{etag}-2")).await;

    let all = ["HEAD", "POST", "PUT", "PUT", "POST"];
    assert_eq!(proven, (Some(1 << 20), all.map(str::to_owned).to_vec()));
    let aborted = ["HEAD", "POST", "PUT", "DELETE"].map(str::to_owned);
    assert_eq!(unproven, (None, aborted.to_vec()));
    assert_eq!(of_parts, (None, aborted.to_vec()));
}

#[tokio::test]
async fn a_server_that_is_careless_with_conditions_keeps_the_promises_of_derived_objects() {
    let Some(location) = location_under_test("STASIS_TEST_S3_CARELESS", "a careless server") else {
        return;
    };
    let made = bucket_at(&location);
    contract::an_object_made_of_parts_of_another_is_what_was_meant(&made).await;
    contract::nothing_is_made_of_a_source_that_is_another(&bucket_at(&location)).await;
}
