//! A container that is saved, beside a pause, `docker commit` and `tar` of its volume, as many do it today.
//!
//! The engine is the one of `DOCKER_HOST`, on this host, where only root reads volumes. The container has a file of its own and a
//! volume with one large database. It is saved; one page in a hundred becomes another; it is saved again.

use crate::bench::Bench;
use crate::budget::median;
use crate::compare::{self, Fidelity};
use crate::measure;
use crate::workload::{Variant, Workload, World};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the container, its volume and the images of the peers are called.
const NAME: &str = "stasis-peers";
/// How many megabytes the container has of its own.
const OWN: u64 = 50;

/// Somebody who does without Stasis: what `tar` writes goes through `pack`.
struct Peer {
    name: &'static str,
    pack: &'static str,
    unpack: &'static str,
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "`docker commit`, `tar`",
        pack: "cat",
        unpack: "cat",
    },
    Peer {
        name: "`docker commit`, `tar \\| zstd -3 -T0`",
        pack: "zstd -q -3 -T0",
        unpack: "zstd -dc",
    },
];

/// One save.
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    /// For how many seconds nothing of the container moved.
    frozen: f64,
    seconds: f64,
    /// How many megabytes more there are in the store or the archive, and as layers on the engine.
    megabytes: f64,
}

/// The first save and the one after changes, one of each for a round.
#[derive(Debug, Default)]
struct Samples {
    first: Vec<Saved>,
    changed: Vec<Saved>,
}

struct Race<'a> {
    bench: &'a Bench,
    image: &'a str,
}

/// Removes what was made on the engine.
impl Drop for Race<'_> {
    fn drop(&mut self) {
        let line = format!(
            "docker rm -f -v {NAME} {NAME}-restored; docker volume rm $(docker volume ls -q --filter name={NAME}); \
             docker rmi $(docker images -q {NAME})"
        );
        let _ = self.shell(&line).output();
    }
}

/// Measures, and says the figures as a table.
pub(crate) fn race(bench: &Bench, world: &World, image: &str, repeats: usize) -> Result<String> {
    let race = Race { bench, image };
    let (volume, changed) = race.start(world)?;
    let bytes = measure::stored(&volume)?;
    let ours = ("`stasis container create`", None);
    let peers = PEERS.iter().map(|peer| (peer.name, Some(peer)));
    let all: Vec<(&str, Option<&Peer>)> = std::iter::once(ours).chain(peers).collect();
    let mut samples: Vec<Samples> = all.iter().map(|_| Samples::default()).collect();
    for round in 0..repeats {
        for at in 0..all.len() {
            let at = (at + round) % all.len();
            let (name, peer) = all[at];
            let done = race.turn(peer, &volume, &changed, &mut samples[at]);
            done.with_context(|| name.to_owned())?;
        }
    }
    let names = all.iter().map(|(name, _)| *name);
    let all: Vec<(&str, Samples)> = names.zip(samples).collect();
    Ok(table((world.scaled(OWN), bytes), repeats, &all))
}

impl Race<'_> {
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        let variables = self.variables();
        command.args(["-c", line]).envs(variables);
        command
    }

    fn variables(&self) -> Vec<(String, String)> {
        let mut variables = self.bench.variables.clone();
        for name in ["DATA", "CONFIG", "CACHE", "STATE"] {
            let place = self.home().join(name.to_lowercase());
            let place = place.to_string_lossy().into_owned();
            variables.push((format!("XDG_{name}_HOME"), place));
        }
        variables
    }

    /// What Stasis keeps.
    fn home(&self) -> PathBuf {
        self.bench.scratch.join("home")
    }

    /// What a line prints that must succeed.
    fn ask(&self, line: &str) -> Result<String> {
        let output = self.shell(&format!("set -eo pipefail; {line}")).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{line}`: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Makes the container, and what its volume becomes.
    fn start(&self, world: &World) -> Result<(PathBuf, Variant)> {
        let own = world.scaled(OWN);
        let script = format!("dd if=/dev/urandom of=/own bs=1000000 count={own}; sleep 1000000");
        self.ask(&format!(
            "docker run -d --network none --name {NAME} -v {NAME}:/data {} sh -c '{script}'",
            self.image
        ))?;
        let volume = self.mountpoint(NAME)?;
        Workload::Database.write(world, &volume)?;
        let aside = volume.parent().context("a volume lies in a directory")?;
        let changed = Workload::Database.changed(world, &volume, &aside.join("aside"))?;
        Ok((volume, changed))
    }

    fn mountpoint(&self, volume: &str) -> Result<PathBuf> {
        let line = format!("docker volume inspect -f '{{{{.Mountpoint}}}}' {volume}");
        Ok(PathBuf::from(self.ask(&line)?))
    }

    /// Runs a line, and returns how long it took and what it printed.
    fn run(&self, line: &str) -> Result<(f64, String)> {
        let log = self.bench.scratch.join("log");
        let cost = measure::run(line, &self.variables(), &log)?;
        Ok((cost.seconds, fs::read_to_string(log)?))
    }

    /// Saves, changes, saves again, and compares what comes back.
    fn turn(
        &self,
        peer: Option<&Peer>,
        volume: &Path,
        changed: &Variant,
        samples: &mut Samples,
    ) -> Result<()> {
        let save = || match peer {
            Some(peer) => self.by_hand(peer, volume),
            None => self.stasis(),
        };
        measure::settle(self.bench.drop_caches);
        measure::warm(volume)?;
        std::thread::sleep(self.bench.quiet);
        samples.first.push(save()?);
        changed.swap_in()?;
        std::thread::sleep(self.bench.quiet);
        samples.changed.push(save()?);
        let back = match peer {
            Some(peer) => self.unpack(peer)?,
            None => self.restore()?,
        };
        let fidelity = if peer.is_some() {
            Fidelity::SECONDS
        } else {
            Fidelity::FULL
        };
        let differs = compare::trees(volume, &back, fidelity)?;
        changed.swap_out()?;
        self.forget(peer)?;
        ensure!(differs.is_empty(), "it was wrong: {}", differs.join("; "));
        Ok(())
    }

    fn stasis(&self) -> Result<Saved> {
        let before = self.stored()?;
        let (seconds, said) = self.run(&format!("\"$STASIS\" --json container create {NAME}"))?;
        let said: Value = serde_json::from_str(&said)?;
        let number = |name: &str| said[name].as_u64().context("no such figure");
        let more = self.stored()?.saturating_sub(before);
        Ok(Saved {
            frozen: thousandth(number("frozen_ms")?),
            seconds,
            megabytes: thousandth((more + number("image_bytes")?) / 1000),
        })
    }

    fn stored(&self) -> Result<u64> {
        let home = self.home();
        if home.exists() {
            measure::stored(&home)
        } else {
            Ok(0)
        }
    }

    fn restore(&self) -> Result<PathBuf> {
        let restored = self.ask(&format!(
            "\"$STASIS\" --json container restore latest {NAME} --name {NAME}-restored --no-start"
        ))?;
        let restored: Value = serde_json::from_str(&restored)?;
        let name = restored["volumes"][0]["name"].as_str();
        self.mountpoint(name.context("it has a volume")?)
    }

    fn archive(&self) -> PathBuf {
        self.bench.scratch.join("archive")
    }

    fn by_hand(&self, peer: &Peer, volume: &Path) -> Result<Saved> {
        // A name that goes to the next image leaves one without.
        self.ask(&format!("docker rmi {NAME}:save || true"))?;
        let (archive, volume) = (self.archive(), volume.display());
        let line = format!(
            "docker pause {NAME} > /dev/null; begun=$(date +%s%N); docker commit --pause=false {NAME} {NAME}:save > /dev/null; \
             tar -C '{volume}' -c . | {} > '{}'; docker unpause {NAME} > /dev/null; echo $(($(date +%s%N) - begun))",
            peer.pack,
            archive.display()
        );
        let (seconds, said) = self.run(&line)?;
        let frozen: u64 = said.trim().parse()?;
        let size = |image: &str| -> Result<u64> {
            let line = format!("docker image inspect -f '{{{{.Size}}}}' {image}");
            Ok(self.ask(&line)?.parse()?)
        };
        let layer = size(&format!("{NAME}:save"))?.saturating_sub(size(self.image)?);
        Ok(Saved {
            frozen: thousandth(frozen / 1_000_000),
            seconds,
            megabytes: thousandth((fs::metadata(archive)?.len() + layer) / 1000),
        })
    }

    fn unpack(&self, peer: &Peer) -> Result<PathBuf> {
        let (to, archive) = (self.bench.scratch.join("unpacked"), self.archive());
        fs::create_dir_all(&to)?;
        let unpack = peer.unpack;
        let line = format!(
            "{unpack} < '{}' | tar -C '{}' -x",
            archive.display(),
            to.display()
        );
        self.ask(&line)?;
        Ok(to)
    }

    /// Everybody begins with nothing.
    fn forget(&self, peer: Option<&Peer>) -> Result<()> {
        if peer.is_some() {
            fs::remove_dir_all(self.bench.scratch.join("unpacked"))?;
            fs::remove_file(self.archive())?;
            return self.ask(&format!("docker rmi {NAME}:save")).map(drop);
        }
        self.ask(&format!(
            "docker rm -f -v {NAME}-restored; docker volume rm $(docker volume ls -q --filter name={NAME}_restored); \
             for id in $(\"$STASIS\" --json container list {NAME} | grep -o '\"snapshot_id\": *\"[^\"]*' | grep -o '[^\"]*$'); \
             do \"$STASIS\" container delete $id --yes; done"
        ))?;
        Ok(fs::remove_dir_all(self.home())?)
    }
}

/// A thousandth of a number, for people.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn thousandth(number: u64) -> f64 {
    number as f64 / 1000.0
}

fn table((own, bytes): (u64, u64), repeats: usize, all: &[(&str, Samples)]) -> String {
    let mut text = format!(
        "A container with {own} MB of its own and a volume of {} MB, saved, and saved again when 1 % of the volume's pages have changed. \
         Medians of {repeats} rounds, in seconds and MB.\n\n\
         | | frozen | whole | stored | frozen, changed | whole, changed | stored, changed |\n|---|---:|---:|---:|---:|---:|---:|\n",
        bytes / 1_000_000
    );
    for (name, samples) in all {
        let _ = write!(text, "| {name} |");
        for saves in [&samples.first, &samples.changed] {
            let column = |of: fn(&Saved) -> f64| {
                let values: Vec<f64> = saves.iter().map(of).collect();
                median(&values).unwrap_or(0.0)
            };
            let (frozen, seconds) = (column(|one| one.frozen), column(|one| one.seconds));
            let megabytes = column(|one| one.megabytes);
            let _ = write!(text, " {frozen:.2} | {seconds:.2} | {megabytes:.0} |");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_has_the_medians_of_both_saves() {
        let saved = |frozen, seconds, megabytes| Saved {
            frozen,
            seconds,
            megabytes,
        };
        let samples = Samples {
            first: vec![
                saved(0.2, 5.0, 400.0),
                saved(0.4, 3.0, 200.0),
                saved(0.3, 4.0, 300.0),
            ],
            changed: vec![saved(0.1, 1.0, 17.0)],
        };

        let table = table((50, 1_073_741_824), 3, &[("ours", samples)]);

        assert!(table.contains("a volume of 1073 MB"), "{table}");
        let line = "| ours | 0.30 | 4.00 | 300 | 0.10 | 1.00 | 17 |\n";
        assert!(table.ends_with(line), "{table}");
    }
}
