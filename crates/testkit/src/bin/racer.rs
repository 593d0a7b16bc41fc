//! One process of the races in `tests/processes.rs`.
//!
//! `racer publish STORE NAME JOURNAL CACHE PUBLISHES` races for a lineage; `racer count DIRECTORY TIMES` adds to a counter.

use bytes::Bytes;
use stasis_engine::bridge;
use stasis_engine::open::{AwsSettings, Engine, LocalDirs, Open, Secret};
use stasis_model::rng::Rng;
use stasis_store::backend::file::FileBucket;
use stasis_store::bucket::{Bucket, Swap};
use stasis_store::layout::Key;
use stasis_testkit::race::Racer;
use stasis_testkit::real_time::{RealClock, SystemRng};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["publish", store, name, journal, cache, publishes] => {
            bridge::run(publish(store, name, journal, cache, publishes.parse()?))?
        }
        ["count", directory, times] => bridge::run(count(directory, times.parse()?))?,
        _ => Err(
            "racer publish STORE NAME JOURNAL CACHE PUBLISHES | racer count DIRECTORY TIMES".into(),
        ),
    }
}

async fn publish(
    store: &str,
    name: &str,
    journal: &str,
    cache: &str,
    publishes: usize,
) -> Result<(), Failure> {
    let aws = AwsSettings {
        access_key: std::env::var("AWS_ACCESS_KEY_ID").ok(),
        secret_key: std::env::var("AWS_SECRET_ACCESS_KEY").ok().map(Secret::new),
        ..AwsSettings::default()
    };
    let local_dirs = LocalDirs {
        cache: Some(PathBuf::from(cache)),
        state: None,
    };
    let open = Open {
        location: store.parse()?,
        create: true,
        aws,
        local_dirs,
    };
    let engine = Engine::open(open, Arc::new(RealClock), Arc::new(SystemRng)).await?;
    let journal = OpenOptions::new().create(true).append(true).open(journal)?;
    let mut racer = Racer {
        engine: &engine,
        name: name.parse()?,
        journal,
        random: &SystemRng,
    };
    Ok(racer.race(publishes).await?)
}

/// Adds to a counter by compare-and-swap, never twice and never not at all.
async fn count(directory: &str, times: u32) -> Result<(), Failure> {
    let bucket = FileBucket::open(directory).await?;
    let key = Key::from_listing("meta/counter").ok_or("a constant that is a key")?;
    let mut done = 0;
    while done < times {
        let found = bucket.get(&key, 1024).await?;
        let text = found
            .as_ref()
            .map(|found| String::from_utf8_lossy(&found.body).into_owned())
            .unwrap_or_default();
        let value: u64 = text
            .split(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap_or_default();
        let body = Bytes::from(format!("{} {}", value + 1, SystemRng.op_id()));
        let swap = match &found {
            Some(found) => bucket.swap(&key, &found.version, body).await?,
            None => bucket.create(&key, body).await?,
        };
        match swap {
            Swap::Won(_) => done += 1,
            Swap::Lost => {}
            Swap::Unknown => return Err("a directory must always know".into()),
        }
    }
    Ok(())
}
