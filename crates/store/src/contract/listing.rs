//! What a listing promises.

use super::ContractScratch;
use crate::bucket::{Bucket, Listed, objects};
use crate::layout::Key;
use bytes::Bytes;
use futures_util::TryStreamExt;

/// In byte order, which is not the order of a walk that goes into `a` before it looks at `a-b`.
const NAMES: [&str; 8] = [
    "a!z",
    "a-b",
    "a/b-c/d",
    "a/b/c.json",
    "a0",
    "b",
    "c/~",
    "é/x",
];

async fn with_names(scratch: &ContractScratch<'_>) {
    for name in NAMES.iter().rev() {
        let body = Bytes::from_static(name.as_bytes());
        let put = scratch.bucket.put(&scratch.key(name), body).await;
        put.expect("a put");
    }
}

/// A listing has every acknowledged write, with its size and perhaps its version, in byte order.
pub async fn a_listing_sees_every_write_in_byte_order(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    with_names(&scratch).await;

    assert_eq!(scratch.names(None, 100).await, NAMES);
    for row in bucket
        .list(&scratch.prefix, None, 100)
        .await
        .expect("a list")
    {
        let name = &row.key.as_str()[scratch.prefix.as_str().len()..];
        assert_eq!(row.size, name.len() as u64);
        // A listing may leave out versions; one that it has is the one that a read shows.
        if let Some(version) = &row.version {
            assert_eq!(*version, scratch.object(&row.key).await.version);
        }
    }
    assert!(scratch.names(None, 0).await.is_empty());
    scratch.remove().await;
}

/// Pages of any size, each after the last key of the one before, are the whole listing once.
pub async fn pages_of_a_listing_have_no_gaps(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    with_names(&scratch).await;

    for limit in [1, 2, 3, 5] {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = scratch.names(after.as_ref(), limit).await;
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(scratch.key(last));
            all.extend(page);
        }
        assert_eq!(all, NAMES, "pages of {limit}");
    }
    let beyond = scratch.key("a/b/a");
    let rest = scratch.names(Some(&beyond), 2).await;
    assert_eq!(
        rest,
        ["a/b/c.json", "a0"],
        "after a key that does not exist"
    );
    scratch.remove().await;
}

/// A prefix that ends in a slash is a directory, not a beginning of names.
pub async fn a_prefix_does_not_match_its_siblings(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let inside = scratch.key("inside");
    let stem = scratch.prefix.as_str().trim_end_matches('/');
    let sibling = |tail| Key::from_listing(&format!("{stem}{tail}")).expect("a key");
    let outside = [sibling("b"), sibling("-b/x"), sibling("0/inside")];
    for key in outside.iter().chain([&inside]) {
        bucket.put(key, "x".into()).await.expect("a put");
    }

    assert_eq!(scratch.names(None, 9).await, ["inside"]);
    for key in &outside {
        assert_eq!(scratch.object(key).await.body, "x");
        bucket.delete(key).await.expect("a delete");
    }
    scratch.remove().await;
}

/// A prefix that ends within a name lists what begins so, in directories too, and nothing besides.
pub async fn a_beginning_of_names_lists_those_and_no_others(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    for name in ["app-1/x", "app-2", "app/x", "apple/x", "ap/app-3", "b"] {
        let put = bucket.put(&scratch.key(name), "x".into()).await;
        put.expect("a put");
    }
    let beginning = scratch.prefix.starting("app-");

    let listed = bucket.list(&beginning, None, 9).await.expect("a list");
    let paged: Vec<Listed> = objects(bucket, &beginning)
        .try_collect()
        .await
        .expect("pages");

    for mut rows in [listed, paged] {
        rows.sort_unstable();
        let keys: Vec<&Key> = rows.iter().map(|row| &row.key).collect();
        assert_eq!(keys, [&scratch.key("app-1/x"), &scratch.key("app-2")]);
    }
    scratch.remove().await;
}
