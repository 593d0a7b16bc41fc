use super::*;
use crate::layout;
use futures_util::stream;
use rustix::fs::{FlockOperation, Mode, flock};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn key(text: &str) -> Key {
    Key::from_listing(text).unwrap()
}

async fn store() -> (TempDir, FileBucket) {
    let directory = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(directory.path().join("store"))
        .await
        .unwrap();
    (directory, bucket)
}

#[expect(
    clippy::disallowed_methods,
    reason = "what a test finds in a store it puts there itself"
)]
fn write(path: impl AsRef<Path>, text: &str) {
    fs::write(path, text).unwrap();
}

#[expect(
    clippy::disallowed_methods,
    reason = "somebody who does not know what a store is"
)]
fn remove(root: &Path) {
    fs::remove_dir_all(root).unwrap();
}

fn in_tmp(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(".stasis/tmp")).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let names = entries.map(|entry| name(entry).into_string().unwrap());
    names.collect()
}

async fn kind_of_get(bucket: &FileBucket, text: &str) -> BucketErrorKind {
    bucket.get(&key(text), 99).await.unwrap_err().kind
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_in_several_instances_lose_no_increment() {
    let directory = tempfile::tempdir().unwrap();
    let (writers, times) = (8, 200_u32);
    let first = FileBucket::open(directory.path()).await.unwrap();
    let counter = layout::probe_result();
    let made = first.create(&counter, "0".into()).await.unwrap();
    assert!(matches!(made, Swap::Won(_)));

    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..writers {
        let bucket = FileBucket::open(directory.path()).await.unwrap();
        let counter = counter.clone();
        tasks.spawn(async move {
            let mut left = times;
            while left > 0 {
                let object = bucket.get(&counter, 99).await.unwrap().unwrap();
                let count: u32 = std::str::from_utf8(&object.body).unwrap().parse().unwrap();
                let next = (count + 1).to_string();
                let swap = bucket.swap(&counter, &object.version, next.into()).await;
                left -= u32::from(matches!(swap.unwrap(), Swap::Won(_)));
            }
        });
    }
    tasks.join_all().await;

    let total = first.get(&counter, 99).await.unwrap().unwrap();
    assert_eq!(total.body, (writers * times).to_string());
    assert!(in_tmp(directory.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_directory_that_empties_does_not_get_in_the_way_of_the_next_write() {
    let (directory, bucket) = store().await;

    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let bucket = bucket.clone();
        tasks.spawn(async move {
            let key = key(&format!("deep/down/below/{writer}"));
            for _ in 0..100 {
                let made = bucket.create(&key, "x".into()).await.unwrap();
                assert!(matches!(made, Swap::Won(_)));
                bucket.delete(&key).await.unwrap();
            }
        });
    }
    tasks.join_all().await;

    assert!(!directory.path().join("store/deep").exists());
}

#[tokio::test]
async fn a_store_that_must_exist_is_absent_where_there_never_was_one() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("store");

    let missing = FileBucket::open_existing(&root).await.unwrap_err();
    let mount_point = FileBucket::open_existing(directory.path())
        .await
        .unwrap_err();
    FileBucket::open(&root).await.unwrap();

    assert_eq!(missing.kind, BucketErrorKind::Absent);
    assert_eq!(mount_point.kind, BucketErrorKind::Absent);
    FileBucket::open_existing(&root).await.unwrap();
}

#[tokio::test]
async fn a_root_that_was_removed_is_absent_and_not_empty() {
    let (directory, bucket) = store().await;
    let root = directory.path().join("store");
    remove(&root);

    assert_eq!(kind_of_get(&bucket, "a").await, BucketErrorKind::Absent);
    let listed = bucket.list(&Prefix::everything(), None, 9).await;
    assert_eq!(listed.unwrap_err().kind, BucketErrorKind::Absent);
    let deleted = bucket.delete(&key("a/b")).await;
    assert_eq!(deleted.unwrap_err().kind, BucketErrorKind::Absent);
    let made = bucket.create(&key("a/b"), "x".into()).await;
    assert_eq!(made.unwrap_err().kind, BucketErrorKind::Absent);
}

#[tokio::test]
async fn a_path_through_a_symbolic_link_is_corrupt_and_leads_nowhere() {
    let (directory, bucket) = store().await;
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    write(outside.join("secret"), "secret");
    symlink(&outside, directory.path().join("store/link")).unwrap();
    symlink(outside.join("secret"), directory.path().join("store/file")).unwrap();

    assert_eq!(
        kind_of_get(&bucket, "link/secret").await,
        BucketErrorKind::Corrupt
    );
    assert_eq!(kind_of_get(&bucket, "file").await, BucketErrorKind::Corrupt);
    for text in ["link/new", "link/secret"] {
        let put = bucket.put(&key(text), "x".into()).await.unwrap_err();
        assert_eq!(put.kind, BucketErrorKind::Corrupt);
        let deleted = bucket.delete(&key(text)).await.unwrap_err();
        assert_eq!(deleted.kind, BucketErrorKind::Corrupt);
    }

    let listed = bucket.list(&Prefix::everything(), None, 9).await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    assert_eq!(
        fs::read_to_string(outside.join("secret")).unwrap(),
        "secret"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_pipe_where_an_object_should_be_is_corrupt_and_stops_nobody() {
    let (directory, bucket) = store().await;
    let root = fs::File::open(directory.path().join("store")).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(&root, "pipe", kind, Mode::RUSR, 0).unwrap();

    assert_eq!(kind_of_get(&bucket, "pipe").await, BucketErrorKind::Corrupt);
}

#[tokio::test]
async fn our_own_directory_is_no_object_and_is_never_listed() {
    let (_directory, bucket) = store().await;

    assert_eq!(
        kind_of_get(&bucket, ".stasis/tmp/x").await,
        BucketErrorKind::Unsupported
    );
    let put = bucket.put(&key(".stasis/locks/00"), "x".into()).await;
    assert_eq!(put.unwrap_err().kind, BucketErrorKind::Unsupported);
    bucket.put(&key("inner/.stasis"), "x".into()).await.unwrap();
    let listed = bucket.list(&Prefix::everything(), None, 9).await.unwrap();
    assert_eq!(listed.len(), 1);
}

#[tokio::test]
async fn an_object_is_not_a_directory() {
    let (_directory, bucket) = store().await;
    bucket.put(&key("a/object"), "x".into()).await.unwrap();

    assert_eq!(bucket.get(&key("a/object/below"), 9).await.unwrap(), None);
    assert_eq!(bucket.get(&key("a"), 9).await.unwrap(), None);
    let below = bucket.put(&key("a/object/below"), "y".into()).await;
    assert_eq!(below.unwrap_err().kind, BucketErrorKind::Unsupported);
    let above = bucket.put(&key("a"), "y".into()).await;
    assert_eq!(above.unwrap_err().kind, BucketErrorKind::Unsupported);
    bucket.delete(&key("a")).await.unwrap();
    assert!(bucket.get(&key("a/object"), 9).await.unwrap().is_some());
}

#[tokio::test]
async fn a_dead_writers_file_is_swept_and_a_live_ones_is_not() {
    let (directory, _bucket) = store().await;
    let root = directory.path().join("store");
    write(root.join(".stasis/tmp/1-dead.tmp"), "half");
    write(root.join(".stasis/tmp/1-live.tmp"), "half");
    let live = fs::File::open(root.join(".stasis/tmp/1-live.tmp")).unwrap();
    flock(&live, FlockOperation::LockExclusive).unwrap();

    FileBucket::open(&root).await.unwrap();
    assert_eq!(in_tmp(&root), ["1-live.tmp"]);

    drop(live);
    let existing = FileBucket::open_existing(&root).await.unwrap();
    existing.list(&Prefix::everything(), None, 9).await.unwrap();
    assert_eq!(in_tmp(&root), ["1-live.tmp"], "who reads removes nothing");
    existing.put(&key("a"), "x".into()).await.unwrap();
    assert!(in_tmp(&root).is_empty());
}

#[tokio::test]
async fn a_stream_whose_reader_gives_up_stores_nothing() {
    let (directory, bucket) = store().await;
    let root = directory.path().join("store");
    let key = key("large");
    let body = stream::iter([Ok(Bytes::from("half"))]).chain(stream::pending());

    let given_up = tokio::time::timeout(
        Duration::from_millis(50),
        bucket.put_stream(&key, body.boxed()),
    );

    assert!(given_up.await.is_err());
    while !in_tmp(&root).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(bucket.get(&key, 9).await.unwrap(), None);
}

#[tokio::test]
async fn every_page_of_a_listing_is_the_one_that_memory_gives() {
    let (_directory, bucket) = store().await;
    let memory = crate::backend::memory::MemoryBucket::new();
    let names = [
        "a!",
        "a-b/c",
        "a-b/c-d",
        "a/b/c",
        "a/b-c",
        "a/b.c/d/e",
        "a0",
        "b/z",
        "b/é",
        "ba",
        "z",
    ];
    for name in names {
        bucket.put(&key(name), name.into()).await.unwrap();
        memory.put(&key(name), name.into()).await.unwrap();
    }
    let starts = names.into_iter().chain(["a", "a/b/b", "a-", "b/zz", "zz"]);

    for after in starts.map(|name| Some(key(name))).chain([None]) {
        for limit in [0, 1, 2, 5, 99] {
            let all = Prefix::everything();
            let ours = bucket.list(&all, after.as_ref(), limit).await.unwrap();
            let mut theirs = memory.list(&all, after.as_ref(), limit).await.unwrap();
            // A file's version is not to be had without reading it.
            for row in &mut theirs {
                row.version = None;
            }
            assert_eq!(ours, theirs, "after {after:?}, {limit} of them");
        }
    }
}

#[tokio::test]
async fn where_nothing_may_be_written_a_store_is_denied() {
    let denied = FileBucket::open("/sys/stasis-store").await.unwrap_err();

    assert_eq!(denied.kind, BucketErrorKind::Denied, "{denied:?}");
}

#[test]
fn what_the_system_says_tells_the_caller_what_to_do() {
    use rustix::io::Errno;
    for (errno, kind) in [
        (Errno::ACCESS, BucketErrorKind::Denied),
        (Errno::PERM, BucketErrorKind::Denied),
        (Errno::ROFS, BucketErrorKind::Denied),
        (Errno::NOSPC, BucketErrorKind::Full),
        (Errno::DQUOT, BucketErrorKind::Full),
        (Errno::IO, BucketErrorKind::Unreachable),
        (Errno::STALE, BucketErrorKind::Unreachable),
        (Errno::NAMETOOLONG, BucketErrorKind::Unsupported),
    ] {
        let error = FileTrouble::from(errno).while_("read", "a");

        assert_eq!(error.kind, kind, "{errno}");
    }
}

#[tokio::test]
async fn what_may_not_be_durable_is_written_anew_by_whoever_needs_it_next() {
    use std::os::unix::fs::MetadataExt;
    let (directory, bucket) = store().await;
    let (document, chunk) = (key("a/document"), key("chunks/ab/chunk"));
    let inode = |key: &Key| {
        let path = directory.path().join("store").join(key.as_str());
        fs::metadata(path).unwrap().ino()
    };
    for key in [&document, &chunk] {
        bucket.put(key, "bytes".into()).await.unwrap();
        bucket.disk.doubt(key);
    }
    let before = [inode(&document), inode(&chunk)];
    let other = FileBucket {
        disk: Arc::new(Disk::open_existing(directory.path().join("store")).unwrap()),
    };
    let read = other.get(&document, 99).await.unwrap().unwrap();
    let exists = other.exists(&chunk).await.unwrap();

    assert_eq!((&read.body[..], exists), (&b"bytes"[..], true));
    let after = [inode(&document), inode(&chunk)];
    assert!(before.iter().zip(after).all(|(one, two)| *one != two));
    assert!(in_tmp(&directory.path().join("store")).is_empty());
}

#[tokio::test]
async fn a_large_object_is_measured_without_being_read() {
    let (directory, bucket) = store().await;
    let document = key("repo.json");
    bucket.put(&document, "{}".into()).await.unwrap();
    let file = fs::File::options()
        .write(true)
        .open(directory.path().join("store/repo.json"))
        .unwrap();
    file.set_len(1 << 40).unwrap();

    let size = bucket.size(&document).await.unwrap();
    let read = kind_of_get(&bucket, "repo.json").await;
    let old = Version::new("0".repeat(64));
    let swapped = bucket.swap(&document, &old, "{}".into()).await.unwrap();

    assert_eq!(size, Some(1 << 40));
    assert_eq!(read, BucketErrorKind::TooLarge);
    assert_eq!(swapped, Swap::Lost);
}
