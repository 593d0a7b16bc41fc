//! What a save costs beside many other subjects, and what it writes.

use super::*;
use crate::rigged::pool::Saver;
use std::collections::{BTreeMap, BTreeSet};

/// How many subjects one host has.
const EACH: usize = 20;

/// A pool with a growing number of subjects, each written by a host that has others too.
struct Crowd {
    world: World,
    bucket: Arc<Rigged>,
    subjects: usize,
    /// By whom each object was written.
    writers: BTreeMap<String, BTreeSet<usize>>,
}

/// What was asked of the store.
#[derive(PartialEq, Eq, Debug)]
struct Cost {
    first: Vec<String>,
    unchanged: Vec<String>,
    changed: Vec<String>,
}

/// The verbs of some requests, and how often each was sent.
fn counted(requests: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests {
        *counts
            .entry(request.split(' ').next().unwrap())
            .or_default() += 1;
    }
    let shown = counts.iter().map(|(verb, count)| format!("{count} {verb}"));
    shown.collect()
}

impl Crowd {
    async fn new() -> Self {
        let bucket = Arc::new(Rigged::default());
        let world = World {
            home: tempfile::tempdir().unwrap(),
            bucket: bucket.inner.clone(),
        };
        let first = world.host("first", "first", None);
        let dirs = first.engine.dirs();
        dirs.make_pool(&dirs.root()).await.map(drop).unwrap();
        Self {
            world,
            bucket,
            subjects: 0,
            writers: BTreeMap::new(),
        }
    }

    /// Another subject; every other one has a file that all of these have.
    fn next(&mut self) -> Saver {
        let number = self.subjects;
        self.subjects += 1;
        let (host, name) = (
            format!("host-{}", number / EACH),
            format!("subject-{number}"),
        );
        let saver = self.world.host_in(self.bucket.clone(), &host, &name, None);
        saver.write("own", name.as_bytes());
        saver.write("common", &noise(u64::from(number.is_multiple_of(2)), 5_000));
        saver
    }

    fn note_writer(&mut self, number: usize) {
        for key in self.bucket.written() {
            self.writers.entry(key).or_default().insert(number);
        }
    }

    async fn grow_to(&mut self, subjects: usize) {
        while self.subjects < subjects {
            let number = self.subjects;
            self.next().save().await;
            self.note_writer(number);
        }
    }

    /// What the next subject costs.
    async fn cost(&mut self) -> Cost {
        let number = self.subjects;
        let saver = self.next();
        let asked = async |saver: &Saver| {
            let _ = self.bucket.requests();
            saver.save().await;
            counted(&self.bucket.requests())
        };
        let first = asked(&saver).await;
        let unchanged = asked(&saver).await;
        saver.write("own", format!("changed {number}").as_bytes());
        let changed = asked(&saver).await;
        self.note_writer(number);
        Cost {
            first,
            unchanged,
            changed,
        }
    }
}

#[tokio::test]
async fn a_save_costs_the_same_beside_a_thousand_subjects_and_no_two_write_one_document() {
    let mut crowd = Crowd::new().await;
    let mut costs = Vec::new();

    // The last of a host, so that what a host remembers has grown too.
    for subjects in [EACH - 1, 5 * EACH - 1, 50 * EACH - 1] {
        crowd.grow_to(subjects).await;
        costs.push(crowd.cost().await);
    }

    println!("{:#?}", costs[2]);
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], costs[2]);
    let shared = crowd.writers.iter().filter(|(_, by)| by.len() > 1);
    let shared: Vec<&String> = shared.map(|(key, _)| key).collect();
    let are_chunks = shared
        .iter()
        .all(|key| key.starts_with("pools/acme/chunks/"));
    assert!(are_chunks, "{shared:?}");
    let own = crowd.writers.iter().filter(|(_, by)| by.len() == 1);
    for (key, by) in own {
        let subject = format!("subjects/acme/dir/subject-{}/", by.first().unwrap());
        let is_own = key.starts_with(&subject) || key.starts_with("pools/acme/chunks/");
        assert!(is_own, "{key} by {by:?}");
    }
}
