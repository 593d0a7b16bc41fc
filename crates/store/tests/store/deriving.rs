//! Objects that are made of parts of others, on a real S3 server, with faults in between.

use crate::fake_server::success;
use crate::proxy::{CopyFault, Proxy};
use crate::s3::{found, part, server, started};
use crate::support::{bucket_at, bucket_with, location_under_test};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use stasis_model::id::OpId;
use stasis_model::rng::Rng as _;
use stasis_model::shared_range::{SharedRange, SharedRanges};
use stasis_store::backend::object_store::{ObjectBucket, TransferSettings};
use stasis_store::bucket::{Bucket, ByteStream, CopySource, DerivedObject};
use stasis_store::contract::{self, TwoVersions};
use stasis_store::layout::{self, Key};
use std::ops::Range;
use std::time::Duration;

/// A store behind a proxy, with the older version in it.
struct Behind {
    proxy: Proxy,
    bucket: ObjectBucket,
    direct: ObjectBucket,
    versions: TwoVersions,
    older: Key,
    newer: Key,
}

impl Behind {
    async fn new(fault: CopyFault) -> Option<Self> {
        let location = location_under_test("STASIS_TEST_S3", "an S3 server")?;
        let (proxy, through) = Proxy::before(&location, fault).await;
        let settings = TransferSettings {
            request_timeout: Duration::from_secs(5),
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
        self.bucket.put_derived(&self.newer, &object).await.unwrap()
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
    let Some(behind) = Behind::new(CopyFault::None).await else {
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
async fn a_copy_that_fails_once_or_comes_twice_is_a_copy() {
    for fault in [
        CopyFault::RefusedOnce(503, "SlowDown"),
        CopyFault::ErrorInSuccess,
        CopyFault::Doubled,
        CopyFault::Late(Duration::from_secs(1)),
    ] {
        let Some(behind) = Behind::new(fault).await else {
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
        (CopyFault::Refused(412, "PreconditionFailed"), false),
        (CopyFault::Refused(503, "SlowDown"), false),
        (CopyFault::Cut, false),
        (CopyFault::CutAfter, false),
        (CopyFault::Late(Duration::from_secs(20)), false),
    ] {
        let Some(behind) = Behind::new(fault).await else {
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
    let Some(behind) = Behind::new(CopyFault::None).await else {
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
    behind.remove().await;
}

#[tokio::test]
async fn a_source_that_is_replaced_while_it_is_copied_gives_nothing() {
    let wait = Duration::from_secs(2);
    let Some(behind) = Behind::new(CopyFault::HeldBack(wait)).await else {
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

/// Ten mebibytes that the store has, and one that is new, on a server that says this of the copy.
async fn derived_where_a_copy_is(etag: &str) -> (Option<u64>, Vec<String>) {
    const MIB: u64 = 1 << 20;
    let copied = format!("<CopyPartResult><ETag>&quot;{etag}&quot;</ETag></CopyPartResult>");
    let done = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
    let answers = [success("", &copied), part(), success("", done)];
    let script = [found(12 * MIB), started()].into_iter().chain(answers);
    let (server, bucket) = server(script).await;
    let range = SharedRange {
        at: 0,
        from: 0,
        length: 10 * MIB,
    };
    let ranges = SharedRanges::from_iter([range]);
    let read = |range: Range<u64>| -> ByteStream {
        let length = usize::try_from(range.end - range.start).unwrap();
        stream::iter([Ok(Bytes::from(vec![0; length]))]).boxed()
    };
    let object = DerivedObject {
        size: 11 * MIB,
        read: &read,
        source: CopySource {
            key: &layout::probe_result(),
            size: 12 * MIB,
            ranges: &ranges,
        },
    };
    let key = layout::operation(OpId::from_random([7; 16]));
    let derived = bucket.put_derived(&key, &object).await.unwrap();
    let verb = |head: &String| head.split(' ').next().unwrap_or_default().to_owned();
    (derived, server.asked().iter().map(verb).collect())
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
