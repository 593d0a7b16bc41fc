//! Four writers count in one directory without a server: each reads, adds one, and replaces exactly what it read.
//!
//! ```text
//! cargo run -p stasis-store --example shared_counter
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use futures_util::future::try_join_all;
use stasis_store::backend::file::FileBucket;
use stasis_store::bucket::{Bucket, Swap};
use stasis_store::layout::Key;
use std::error::Error;

const WRITERS: u64 = 4;
const EACH: u64 = 25;
/// More bytes than a count has.
const LIMIT: u64 = 64;

/// Adds one; says how often somebody else was faster.
async fn add_one(bucket: &dyn Bucket, key: &Key) -> Result<u64, Box<dyn Error>> {
    for lost in 0.. {
        let found = bucket.get(key, LIMIT).await?;
        let swap = match &found {
            Some(object) => {
                let count: u64 = std::str::from_utf8(&object.body)?.parse()?;
                let next = (count + 1).to_string();
                bucket.swap(key, &object.version, next.into()).await?
            }
            None => bucket.create(key, "1".into()).await?,
        };
        match swap {
            Swap::Won(_) => return Ok(lost),
            Swap::Lost => {}
            // A number does not say who wrote it. What has to be settled carries the id of its operation.
            Swap::Unknown => return Err("whether it was counted is not known".into()),
        }
    }
    unreachable!("a writer tries until it has won")
}

async fn write(bucket: &dyn Bucket, key: &Key) -> Result<u64, Box<dyn Error>> {
    let mut lost = 0;
    for _ in 0..EACH {
        lost += add_one(bucket, key).await?;
    }
    Ok(lost)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let bucket = FileBucket::open(directory.path().join("store")).await?;
    let key = Key::from_listing("counter").ok_or("that is a key")?;

    let writers = (0..WRITERS).map(|_| write(&bucket, &key));
    let lost: u64 = try_join_all(writers).await?.into_iter().sum();

    let counted = bucket.get(&key, LIMIT).await?.ok_or("it was written")?;
    println!("counted {}", String::from_utf8_lossy(&counted.body));
    println!("somebody else was faster {lost} times");
    assert_eq!(counted.body, (WRITERS * EACH).to_string());
    Ok(())
}
