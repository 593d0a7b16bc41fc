use super::*;
use crate::backend::memory::MemoryBucket;
use crate::bucket::objects;
use futures_util::TryStreamExt;

fn key(name: &str) -> Key {
    Key::from_listing(name).unwrap()
}

/// A bucket whose documents are behind its listing: what is read is told from what is remembered.
struct World {
    bucket: Arc<MemoryBucket>,
    memory: Arc<DocumentMemory>,
}

impl World {
    fn new(most_bytes: usize) -> Self {
        Self {
            bucket: Arc::default(),
            memory: Arc::new(DocumentMemory::new(most_bytes)),
        }
    }

    async fn put(&self, name: &str, body: &str) {
        let body = Bytes::from(body.to_owned());
        self.bucket.put(&key(name), body).await.unwrap();
    }

    /// A view through which everything was listed.
    async fn listed(&self) -> ListedView {
        let view = ListedView::new(self.bucket.clone(), self.memory.clone());
        let everything = Prefix::everything();
        let all: Vec<Listed> = objects(&view, &everything).try_collect().await.unwrap();
        assert!(all.iter().all(|row| row.version.is_some()));
        view
    }

    fn remembered(&self) -> usize {
        lock(&self.memory.kept).by_key.len()
    }
}

async fn read(view: &ListedView, name: &str) -> Option<String> {
    let found = view.get(&key(name), 1000).await.unwrap();
    found.map(|found| String::from_utf8(found.body.to_vec()).unwrap())
}

#[tokio::test]
async fn what_is_listed_as_it_was_read_is_not_read_again() {
    let world = World::new(1000);
    world.put("a.json", "one").await;
    let first = world.listed().await;
    assert_eq!(read(&first, "a.json").await.unwrap(), "one");

    let second = world.listed().await;
    // Whoever reads the store now would see this.
    world.put("a.json", "two").await;

    assert_eq!(read(&second, "a.json").await.unwrap(), "one");
    let third = world.listed().await;
    assert_eq!(read(&third, "a.json").await.unwrap(), "two");
}

#[tokio::test]
async fn what_a_whole_listing_does_not_have_is_not_there() {
    let world = World::new(1000);
    world.put("a.json", "one").await;
    let view = world.listed().await;

    world.put("b.json", "later").await;

    assert_eq!(read(&view, "b.json").await, None);
    let unlisted = ListedView::new(world.bucket.clone(), world.memory.clone());
    assert_eq!(read(&unlisted, "b.json").await.unwrap(), "later");
    assert_eq!(
        read(&world.listed().await, "b.json").await.unwrap(),
        "later"
    );
}

/// A pool has millions of them: a count of the store must not have all their names at once.
#[tokio::test]
async fn of_chunks_nothing_is_noted_and_each_is_read_from_the_store() {
    let world = World::new(10_000);
    let chunk = format!("pools/acme/chunks/ab/sha256:{}", "ab".repeat(32));
    world.put(&chunk, "bytes").await;
    world.put("pools/acme/repo.json", "settings").await;
    let view = world.listed().await;

    assert_eq!(lock(&view.listed).versions.len(), 1);
    assert_eq!(read(&view, &chunk).await.unwrap(), "bytes");
    assert_eq!(world.remembered(), 0);
    // One that came later is not said to be absent.
    let later = chunk.replace("ab", "cd");
    world.put(&later, "more").await;
    assert_eq!(read(&view, &later).await.unwrap(), "more");
}

#[tokio::test]
async fn a_listing_that_was_not_finished_says_nothing_of_what_it_lacks() {
    let world = World::new(1000);
    for number in 0..1500 {
        world.put(&format!("a{number:04}"), "x").await;
    }
    let everything = Prefix::everything();
    let view = ListedView::new(world.bucket.clone(), world.memory.clone());
    let first = view.list_page(&everything, None).await.unwrap();
    world.put("b", "later").await;

    assert!(first.next.is_some());
    assert_eq!(read(&view, "b").await.unwrap(), "later");
    // A page in the middle alone does not make it whole.
    let other = ListedView::new(world.bucket.clone(), world.memory.clone());
    let last = other.list_page(&everything, first.next.as_ref()).await;
    assert!(last.unwrap().next.is_none());
    assert_eq!(read(&other, "a0001").await.unwrap(), "x");
}

#[tokio::test]
async fn what_is_written_through_a_view_is_read_from_the_store() {
    let world = World::new(1000);
    world.put("a.json", "one").await;
    let view = world.listed().await;
    read(&view, "a.json").await;

    view.put(&key("a.json"), "two".into()).await.unwrap();
    let created = view.create(&key("b.json"), "new".into()).await.unwrap();

    assert!(matches!(created, Swap::Won(_)));
    assert_eq!(read(&view, "a.json").await.unwrap(), "two");
    assert_eq!(read(&view, "b.json").await.unwrap(), "new");
}

#[tokio::test]
async fn a_document_above_the_limit_of_its_reader_is_refused_as_the_store_does() {
    let world = World::new(1000);
    world.put("a.json", "0123456789").await;
    let view = world.listed().await;
    read(&view, "a.json").await;

    let refused = view.get(&key("a.json"), 9).await;

    assert!(refused.is_err());
}

#[tokio::test]
async fn no_more_is_remembered_than_may_be_and_what_is_not_asked_for_goes_first() {
    let world = World::new(30);
    for name in ["old-1", "old-2", "old-3"] {
        world.put(name, "0123456789").await;
    }
    let view = world.listed().await;
    for name in ["old-1", "old-2", "old-3"] {
        read(&view, name).await;
    }
    assert_eq!(world.remembered(), 3);
    world.put("new", "0123456789").await;
    let view = world.listed().await;
    read(&view, "old-1").await;
    read(&view, "new").await;

    assert_eq!(world.remembered(), 2);
    let view = world.listed().await;
    for name in ["new", "old-1", "old-2", "old-3"] {
        assert_eq!(read(&view, name).await.unwrap(), "0123456789");
    }
    // What found no room was read, and what was there stayed.
    assert_eq!(world.remembered(), 3);
    assert!(lock(&world.memory.kept).by_key.contains_key(&key("new")));
}

/// A name below a prefix that others have besides.
fn within(name: &str) -> String {
    format!("{}{name}", Prefix::lineages())
}

/// Everything after a key, so many rows at a time, two pages of it.
async fn two_pages(view: &ListedView, after: &str, limit: usize) {
    let (prefix, mut after) = (Prefix::lineages(), Some(key(&within(after))));
    for _ in 0..2 {
        let page = view.list_after(&prefix, after.as_ref(), limit).await;
        after = page.unwrap().rows.last().map(|row| row.key.clone());
    }
}

#[tokio::test]
async fn what_a_directory_does_not_have_that_was_gone_through_is_not_there() {
    let world = World::new(1000);
    for name in ["a/1/x", "a/1/y", "a/2/x", "b/1/x", "c/1/x"] {
        world.put(&within(name), "one").await;
    }
    let view = ListedView::new(world.bucket.clone(), world.memory.clone());
    two_pages(&view, "a/1/x", 2).await;
    for name in ["a/0", "a/1/z", "a/2/z", "b/1/z", "b/2/z", "c/1/z"] {
        world.put(&within(name), "later").await;
    }

    let read = async |name: &str| read(&view, &within(name)).await;
    // It began within `a` and `a/1`, and has not left `c`.
    for open in ["a/0", "a/1/z", "c/1/z"] {
        assert_eq!(read(open).await.as_deref(), Some("later"), "{open}");
    }
    for passed in ["a/2/z", "b/1/z", "b/2/z"] {
        assert_eq!(read(passed).await, None, "{passed}");
    }
    assert_eq!(read("a/2/x").await.as_deref(), Some("one"));
}

#[tokio::test]
async fn pages_with_a_gap_between_them_have_gone_through_nothing() {
    let world = World::new(1000);
    for name in ["a/x", "a/y", "b/x", "b/y", "c/x"] {
        world.put(&within(name), "one").await;
    }
    let view = ListedView::new(world.bucket.clone(), world.memory.clone());
    let prefix = Prefix::lineages();
    for after in ["a/x", "b/x"] {
        let after = key(&within(after));
        view.list_after(&prefix, Some(&after), 1).await.unwrap();
    }

    world.put(&within("b/w"), "later").await;

    let seen = read(&view, &within("b/w")).await;
    assert_eq!(seen.as_deref(), Some("later"));
}
