use super::*;
use crate::rigged::Rigged;
use crate::rigged::pool::{Saver, World, key, noise};

/// As many bytes as give several chunks.
const LARGE: usize = 6_000_000;

/// A tree whose list is stored in chunks, with files of every size.
fn grow(saver: &Saver) {
    for number in 0..100 {
        saver.write(&format!("f{number}"), format!("file {number}").as_bytes());
    }
    saver.write("large", &noise(5, LARGE)).write("nothing", b"");
}

/// Looks into the newest snapshot, on a thread that may block.
async fn looked<T: Send + 'static>(
    saver: &Saver,
    look: impl FnOnce(&Browser, &OpenSnapshot) -> T + Send + 'static,
) -> T {
    let browser = Browser::new(BrowserSettings::default());
    let subject = BrowsedSubject::Dir(Box::new(saver.engine.clone()));
    bridge::blocking(move || {
        let newest = browser.snapshots(&subject).unwrap().pop().unwrap();
        assert!(newest.latest);
        let open = browser.open(&subject, &newest.id).unwrap();
        look(&browser, &open)
    })
    .await
}

fn node(open: &OpenSnapshot, name: &str) -> NodeId {
    open.tree().find(NodeId::ROOT, name.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_range_of_any_file_is_what_the_file_held() {
    let world = World::new();
    let plain = world.subject("one", "plain").await;
    let hidden = world.host("two", "hidden", Some(key(b'7')));
    let hidden = Saver {
        engine: hidden
            .engine
            .rooted(stasis_store::layout::ChunkRoot::project(
                &"secret".parse().unwrap(),
                &"hidden".parse().unwrap(),
            )),
        ..hidden
    };
    hidden.engine.dirs().ensure_pool().await.unwrap();
    for saver in [plain, hidden] {
        grow(&saver);
        saver.save().await;
        looked(&saver, |_, open| {
            assert_eq!(open.tree().len(), 103);
            let should = noise(5, LARGE);
            let large = node(open, "large");
            for turn in 0..300_usize {
                let from = turn * 7_919_777 % LARGE;
                let length = turn * 104_729 % 2_000_000;
                let until = LARGE.min(from + length);
                let read = open.read(large, from as u64, length).unwrap();
                assert!(read == should[from..until], "{length} bytes from {from}");
            }
            for number in 0..100 {
                let read = open.read(node(open, &format!("f{number}")), 0, 1000);
                assert_eq!(read.unwrap(), format!("file {number}").into_bytes());
            }
            assert_eq!(open.read(node(open, "nothing"), 0, 10).unwrap(), b"");
            assert_eq!(open.read(large, LARGE as u64 + 1, 10).unwrap(), b"");
            assert!(open.read(NodeId::ROOT, 0, 10).is_err());
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_fetches_no_content_and_a_read_only_what_its_range_lies_in() {
    let world = World::new();
    let bucket = Arc::new(Rigged::default());
    let shop = world.subject_in(bucket.clone(), "one", "shop").await;
    grow(&shop);
    shop.save().await;
    let chunks = {
        let bucket = bucket.clone();
        move || {
            let all = bucket.requests().into_iter();
            all.filter(|request| request.contains("sha256")).count()
        }
    };
    let (_, _) = (chunks(), bucket.written());

    let counted = chunks.clone();
    looked(&shop, move |_, open| {
        let looked = counted();
        assert!(looked <= 3, "{looked} chunks for a list");
        let large = node(open, "large");
        open.read(large, 3_000_000, 10).unwrap();
        // What says where files lie, once, and one chunk of the file.
        let read = counted();
        assert!((1..=3).contains(&read), "{read} chunks for ten bytes");
        open.read(large, 1_000_000, 10).unwrap();
        assert_eq!(counted(), 1, "one chunk has those ten bytes");
        open.read(large, 3_000_000, 10).unwrap();
        assert_eq!(counted(), 0, "what was read lately is here");
        open.read(node(open, "f1"), 0, 10).unwrap();
        let first = counted();
        open.read(node(open, "f2"), 0, 10).unwrap();
        assert!(first <= 1, "{first}");
    })
    .await;
    assert_eq!(
        bucket.written(),
        Vec::<String>::new(),
        "looking writes nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_on_is_read_ahead_of() {
    let world = World::new();
    let bucket = Arc::new(Rigged::default());
    let shop = world.subject_in(bucket.clone(), "one", "shop").await;
    grow(&shop);
    shop.save().await;

    looked(&shop, move |_, open| {
        let large = node(open, "large");
        bucket.requests();
        open.read(large, 0, 1000).unwrap();
        open.read(large, 1000, 1000).unwrap();
        let mut fetched = 0;
        for _ in 0..200 {
            fetched += bucket.requests().len();
            if fetched >= 4 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("only {fetched} requests for two reads in a row");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_and_collected_is_an_error() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    shop.write("a", &noise(1, 300_000)).save().await;
    let browser = Arc::new(Browser::new(BrowserSettings::default()));
    let subject = BrowsedSubject::Dir(Box::new(shop.engine.clone()));
    let (old, of) = (browser.clone(), subject.clone());
    let open = bridge::blocking(move || {
        let first = old.snapshots(&of).unwrap().remove(0);
        old.open(&of, &first.id).unwrap()
    });
    let open = open.await;
    shop.write("a", &noise(2, 300_000)).save().await;
    shop.gc().await.unwrap();

    let read = bridge::blocking(move || open.read(node(&open, "a"), 0, 10));

    let refused = read.await.unwrap_err();
    assert!(references::is_damage(&refused), "{refused:?}");
    let left = bridge::blocking(move || browser.snapshots(&subject).unwrap());
    assert_eq!(left.await.len(), 1);
}
