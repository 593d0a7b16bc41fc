//! A session that wakes on another host, beside an archive in the same bucket that is fetched and unpacked.
//!
//! One host has the workspace, an agent's tree and a browser's profile, about a gigabyte. It sleeps, and is woken on a host that has
//! nothing of it; it goes back, changes a little, sleeps, and is woken on a host that has what it was before.

use crate::bench::Bench;
use crate::budget::median;
use crate::compare::{self, Fidelity};
use crate::measure;
use crate::workload::{Variant, Workload, World};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// What a workspace has, and where.
const PARTS: [(Workload, &str); 2] = [
    (Workload::Workspace, "outputs"),
    (Workload::Profile, "attachments"),
];

/// Where the bucket is, as `curl` wants it.
struct Bucket {
    store: String,
    url: String,
    region: String,
}

impl Bucket {
    /// From `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.
    fn parse(store: &str) -> Result<Self> {
        let rest = store.strip_prefix("s3://").context("not s3://…")?;
        let (place, query) = rest.split_once('?').context("no endpoint is named")?;
        let bucket = place.split('/').next().unwrap_or_default();
        let value = |name: &str| {
            let mut all = query.split('&').filter_map(|one| one.split_once('='));
            all.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
        };
        let endpoint = value("endpoint").context("no endpoint is named")?;
        Ok(Self {
            store: store.to_owned(),
            url: format!("{endpoint}/{bucket}/peers.tar.zst"),
            region: value("region").unwrap_or_else(|| "us-east-1".to_owned()),
        })
    }
}

/// Seconds, one for each round.
#[derive(Default)]
struct Samples {
    cold: Vec<f64>,
    cold_archive: Vec<f64>,
    warm: Vec<f64>,
    warm_archive: Vec<f64>,
}

struct Race<'a> {
    bench: &'a Bench,
    bucket: Bucket,
    variants: Vec<Variant>,
}

/// Measures, and says the figures as a table.
pub(crate) fn race(bench: &Bench, world: &World, store: &str, repeats: usize) -> Result<String> {
    let race = Race {
        bench,
        bucket: Bucket::parse(store)?,
        variants: Vec::new(),
    };
    let home = race.workspace("a");
    let mut variants = Vec::new();
    for (workload, part) in PARTS {
        workload.write(world, &home.join(part))?;
        let aside = bench.scratch.join("aside").join(part);
        variants.push(workload.changed(world, &home.join(part), &aside)?);
    }
    let race = Race { variants, ..race };
    let bytes = measure::stored(&home)?;
    let register = format!("register acme/wake --dir '{}'", home.display());
    race.session("a", &register)?;
    race.session("a", "sleep acme/wake")?;
    let mut samples = Samples::default();
    for round in 0..repeats {
        race.round(round, &mut samples)?;
    }
    Ok(table(bytes, repeats, &samples))
}

impl Race<'_> {
    fn workspace(&self, host: &str) -> PathBuf {
        self.bench.scratch.join(host).join("ws")
    }

    /// Runs a shell line with what a host keeps.
    fn run(&self, host: &str, line: &str) -> Result<f64> {
        let home = self.bench.scratch.join(host);
        fs::create_dir_all(&home)?;
        let mut variables = self.bench.variables.clone();
        for (name, place) in [
            ("XDG_DATA_HOME", "data"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_STATE_HOME", "state"),
        ] {
            variables.push((name.into(), home.join(place).to_string_lossy().into()));
        }
        variables.push(("STASIS_STORE".into(), self.bucket.store.clone()));
        let cost = measure::run(line, &variables, &self.bench.scratch.join("log"))?;
        Ok(cost.seconds)
    }

    fn session(&self, host: &str, words: &str) -> Result<f64> {
        self.run(host, &format!("\"$STASIS\" session --host {host} {words}"))
    }

    /// The `curl` that speaks to the bucket.
    fn curl(&self) -> String {
        format!(
            "curl -sSf --aws-sigv4 'aws:amz:{}:s3' -u \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\" '{}'",
            self.bucket.region, self.bucket.url
        )
    }

    /// Puts the archive of what the first host has into the bucket.
    fn pack(&self) -> Result<()> {
        let (from, pack) = (self.workspace("a"), self.bench.scratch.join("pack"));
        let (from, pack) = (from.display(), pack.display());
        let line = format!(
            "tar -C '{from}' -c outputs attachments | zstd -q -3 -T0 -f -o '{pack}'; {} -T '{pack}'; rm '{pack}'",
            self.curl()
        );
        self.run("a", &line).map(drop)
    }

    /// Fetches and unpacks it.
    fn unpack(&self) -> Result<f64> {
        let target = self.bench.scratch.join("unpacked");
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        fs::create_dir_all(&target)?;
        measure::settle(self.bench.drop_caches);
        let line = format!(
            "{} | zstd -dc | tar -C '{}' -x",
            self.curl(),
            target.display()
        );
        self.run("a", &line)
    }

    fn wake(&self, host: &str) -> Result<f64> {
        measure::settle(self.bench.drop_caches);
        let dir = self.workspace(host);
        self.session(host, &format!("wake acme/wake --dir '{}'", dir.display()))
    }

    /// Whether two hosts have the same.
    fn compare(&self, one: &str, other: &str) -> Result<()> {
        for (_, part) in PARTS {
            let (one, other) = (
                self.workspace(one).join(part),
                self.workspace(other).join(part),
            );
            let differs = compare::trees(&one, &other, Fidelity::COMMITTED)?;
            ensure!(
                differs.is_empty(),
                "a wake was wrong: {}",
                differs.join("; ")
            );
        }
        Ok(())
    }

    /// The session goes from a host that has it to one that has it, too.
    fn back(&self, from: &str) -> Result<()> {
        self.session(from, "sleep acme/wake")?;
        self.wake("a").map(drop)
    }

    fn round(&self, round: usize, samples: &mut Samples) -> Result<()> {
        let host = format!("b{round}");
        self.pack()?;
        samples.cold.push(self.wake(&host)?);
        samples.cold_archive.push(self.unpack()?);
        self.compare("a", &host)?;
        self.back(&host)?;
        for variant in &self.variants {
            variant.swap_in()?;
        }
        self.session("a", "sleep acme/wake")?;
        self.pack()?;
        // In the other order.
        samples.warm_archive.push(self.unpack()?);
        samples.warm.push(self.wake(&host)?);
        self.compare("a", &host)?;
        self.back(&host)?;
        for variant in &self.variants {
            variant.swap_out()?;
        }
        self.session("a", "sleep acme/wake")?;
        fs::remove_dir_all(self.bench.scratch.join(host))?;
        Ok(())
    }
}

fn table(bytes: u64, repeats: usize, samples: &Samples) -> String {
    let mut text = format!(
        "Wake of a session of {} MB, medians of {repeats} rounds, in seconds.\n\n\
         | the host has | `stasis session wake` | `curl \\| zstd -d \\| tar -x` | ratio |\n|---|---|---|---|\n",
        bytes / 1_000_000
    );
    for (name, ours, theirs) in [
        ("nothing of it", &samples.cold, &samples.cold_archive),
        ("what it was before", &samples.warm, &samples.warm_archive),
    ] {
        let (ours, theirs) = (median(ours).unwrap_or(0.0), median(theirs).unwrap_or(0.0));
        let ratio = ours / theirs;
        let _ = writeln!(text, "| {name} | {ours:.2} | {theirs:.2} | {ratio:.2} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_says_where_its_bucket_is() {
        let store = "s3://box/some/where?endpoint=http://127.0.0.1:9000&region=here";
        let bucket = Bucket::parse(store).unwrap();

        assert_eq!(bucket.url, "http://127.0.0.1:9000/box/peers.tar.zst");
        assert_eq!(bucket.region, "here");
        assert!(Bucket::parse("/a/directory").is_err());
    }
}
