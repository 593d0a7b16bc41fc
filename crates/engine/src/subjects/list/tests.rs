use super::*;
use crate::rigged::pool::{Saver, World};
use crate::rigged::{Rigged, Turn};
use stasis_store::bucket::Bucket as _;
use stasis_store::location::StoreLocation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than are read at once.
const SUBJECTS: usize = 40;

async fn saved(world: &World, bucket: &Arc<Rigged>) -> Vec<Saver> {
    let mut all = Vec::new();
    for number in 0..SUBJECTS {
        let name = format!("s{number:02}");
        let saver = world.subject_in(bucket.clone(), "host", &name).await;
        saver.write("file", name.as_bytes()).save().await;
        all.push(saver);
    }
    all
}

/// A process of the same host that lists again and again.
fn service(world: &World, bucket: &Arc<Rigged>) -> Engine {
    let saver = world.host_in(bucket.clone(), "host", "none", None);
    saver.engine.with_document_memory(1 << 20)
}

async fn rows(engine: &Engine) -> Vec<SubjectRow> {
    engine.subjects(None).await.unwrap().items
}

fn indexes_read(bucket: &Rigged) -> usize {
    let all = bucket.requests().into_iter();
    all.filter(|request| request == "get index.json").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_reads_again_only_what_changed() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = saved(&world, &bucket).await;
    let service = service(&world, &bucket);
    bucket.requests();

    let first = rows(&service).await;
    let cold = indexes_read(&bucket);
    let second = rows(&service).await;
    let warm = indexes_read(&bucket);
    savers[7].write("file", b"changed").save().await;
    bucket.requests();
    let third = rows(&service).await;
    let changed = indexes_read(&bucket);

    assert_eq!((cold, warm, changed), (SUBJECTS, 0, 1));
    assert_eq!((first.len(), &second), (SUBJECTS, &first));
    assert_eq!((first[7].snapshots, third[7].snapshots), (1, 2));
    let others = |rows: &[SubjectRow]| -> Vec<SubjectRow> {
        let rows = rows.iter().enumerate();
        let rows = rows.filter(|(at, _)| *at != 7);
        rows.map(|(_, row)| row.clone()).collect()
    };
    assert_eq!(others(&third), others(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_on_this_host_while_a_list_is_made_is_no_damage() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = saved(&world, &bucket).await;
    // What is in the memory of a process only is not remembered by its host.
    let location = StoreLocation::File("/somewhere".into());
    let mut service = service(&world, &bucket);
    service.location = location.clone();
    rows(&service).await;
    // So that something is read once the listing is over.
    savers[0].write("file", b"changed").save().await;
    // By a way of its own, which does not come here again.
    let name = format!("s{}", SUBJECTS - 1);
    let mut last = world.host_in(bucket.inner.clone(), "host", &name, None);
    last.engine.location = location;
    last.write("file", b"changed meanwhile");
    let (last, is_over) = (Arc::new(last), Arc::new(AtomicBool::new(false)));
    let noted = is_over.clone();
    bucket.rig(move |asked| {
        let (last, is_over) = (last.clone(), noted.clone());
        Box::pin(async move {
            if asked.reads("s00/index.json") && !is_over.swap(true, Ordering::Relaxed) {
                last.save().await;
            }
            Turn::Work
        })
    });

    let listed = rows(&service).await;

    assert!(is_over.load(Ordering::Relaxed));
    let last = listed.last().unwrap();
    assert_eq!(last.error, None);
    assert_eq!(last.snapshots, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_damaged_after_it_was_listed_well_is_shown_so() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = saved(&world, &bucket).await;
    let service = service(&world, &bucket);
    rows(&service).await;
    let key = savers[3].engine.chunk_root.index();
    bucket.inner.put(&key, "{\"ver".into()).await.unwrap();

    let listed = rows(&service).await;

    let damaged: Vec<&SubjectRow> = listed.iter().filter(|row| row.error.is_some()).collect();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].subject, "dir:s03");
}
