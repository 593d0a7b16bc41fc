//! Stasis beside its peers: the same bytes, the same machine, in turn.
//!
//! For each workload the tree is generated once; then every tool that is installed saves it, saves it unchanged, saves it
//! changed, restores it and fetches one file, and so on for as many rounds as are asked. Each round begins with another
//! tool. Medians are printed, as seconds and megabytes and as ratios against the best peer, beside what was promised. No
//! absolute time is a failure: only a restore that is wrong, or a tool that fails.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark looks at the clock, and makes and removes the trees that it measures"
)]

mod bench;
mod budget;
mod compare;
mod container;
mod dice;
mod image;
mod measure;
mod tables;
mod tools;
mod wake;
mod words;
mod workload;

use anyhow::{Context, Result};
use bench::{Bench, Subject};
use budget::{Results, Verdict};
use clap::Parser;
use image::Image;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use tools::{COPIERS, SAVERS, SNAPSHOT, Tool};
use workload::{Workload, World};

/// Two seconds is what Stasis and git ask for; a little more.
const QUIET: Duration = Duration::from_millis(2500);

/// Measures Stasis beside its peers
#[derive(Debug, Parser)]
struct Arguments {
    /// The `stasis` to measure: a release build
    #[arg(long, value_name = "PATH", default_value = "target/release/stasis")]
    stasis: PathBuf,
    /// Where trees and repositories are made; several GB are needed at full size
    #[arg(long, value_name = "DIR", required_unless_present = "generate")]
    scratch: Option<PathBuf>,
    /// Only write the trees, into this directory
    #[arg(long, value_name = "DIR")]
    generate: Option<PathBuf>,
    /// A directory with peers that are not on the PATH
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Which trees; all when none is named
    #[arg(long, value_name = "NAME")]
    workload: Vec<Workload>,
    /// Only tools whose name contains one of these
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// How large the trees are: 1 is full size
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// How often everything is repeated; medians are printed
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// The seed of the trees
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Reset the page cache between tools (root only) and warm it again
    #[arg(long)]
    drop_caches: bool,
    /// Only wakes a session on other hosts, over this `s3://…?endpoint=…`, beside an archive in its bucket
    #[arg(long, value_name = "STORE")]
    wake: Option<String>,
    /// Only saves a container of this image, which has a shell, on the engine of `DOCKER_HOST`, beside `docker commit` and `tar`
    #[arg(long, value_name = "IMAGE")]
    container: Option<String>,
    /// Tell everything as JSON, each sample included
    #[arg(long)]
    json: bool,
}

/// The figures of one workload.
#[derive(Debug, Serialize)]
struct WorkloadReport {
    workload: Workload,
    samples: Results,
    verdicts: Vec<Verdict>,
}

/// The whole report.
#[derive(Debug, Default, Serialize)]
struct Report {
    scale: f64,
    repeats: usize,
    versions: BTreeMap<&'static str, String>,
    absent: Vec<&'static str>,
    workloads: Vec<WorkloadReport>,
    failures: Vec<String>,
    notes: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "the table is what is asked for")]
fn print(table: &str) {
    println!("{table}");
}

fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let world = World::new(arguments.seed, arguments.scale);
    let wanted = Workload::ALL.into_iter();
    let wanted =
        wanted.filter(|one| arguments.workload.is_empty() || arguments.workload.contains(one));
    if let Some(directory) = &arguments.generate {
        for workload in wanted {
            workload.write(&world, &directory.join(workload.name()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let bench = prepare(&arguments)?;
    if let Some(store) = &arguments.wake {
        let table = wake::race(&bench, &world, store, arguments.repeats)?;
        print(&table);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(image) = &arguments.container {
        let table = container::race(&bench, &world, image, arguments.repeats)?;
        print(&table);
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report {
        scale: arguments.scale,
        repeats: arguments.repeats,
        ..Report::default()
    };
    let savers = present(&SAVERS, &arguments, &bench, &mut report);
    let copiers = present(&COPIERS, &arguments, &bench, &mut report);
    for workload in wanted {
        let mut round = Round {
            arguments: &arguments,
            bench: &bench,
            report: &mut report,
            samples: Results::new(),
        };
        round.workload(workload, &world, (&savers, &copiers))?;
        let samples = round.samples;
        let verdicts = budget::judge(workload, &samples);
        report.workloads.push(WorkloadReport {
            workload,
            samples,
            verdicts,
        });
    }
    print_report(&arguments, &report)?;
    let failed = !report.failures.is_empty();
    Ok(ExitCode::from(u8::from(failed)))
}

fn prepare(arguments: &Arguments) -> Result<Bench> {
    let scratch = arguments.scratch.as_deref().context("where to work?")?;
    fs::create_dir_all(scratch)?;
    let scratch = scratch.canonicalize()?.join("stasis-peers");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).context("could not remove what an earlier run left")?;
    }
    fs::create_dir_all(&scratch)?;
    let stasis = arguments
        .stasis
        .canonicalize()
        .context("where is stasis?")?;
    let mut path = std::env::var("PATH").unwrap_or_default();
    if let Some(peers) = &arguments.peers {
        path = format!("{}:{path}", peers.canonicalize()?.display());
    }
    let quiet = [
        ("PATH", &*path),
        ("STASIS", &stasis.to_string_lossy()),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "bench"),
        ("GIT_AUTHOR_EMAIL", "bench@example.net"),
        ("GIT_COMMITTER_NAME", "bench"),
        ("GIT_COMMITTER_EMAIL", "bench@example.net"),
        ("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes"),
    ];
    let variables = quiet.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Bench {
        scratch,
        variables: variables.to_vec(),
        drop_caches: arguments.drop_caches,
        quiet: QUIET,
    })
}

/// Those of the tools that are asked for and installed.
fn present(all: &[Tool], arguments: &Arguments, bench: &Bench, report: &mut Report) -> Vec<Tool> {
    let mut present = Vec::new();
    for tool in all {
        let is_wanted = |part: &String| tool.name.contains(part.as_str());
        if !arguments.only.is_empty() && !arguments.only.iter().any(is_wanted) {
            continue;
        }
        let version = Command::new("bash")
            .args(["-c", tool.version])
            .envs(bench.variables.clone())
            .output();
        let found = tool
            .program
            .is_none_or(|program| is_installed(program, bench));
        let Some(version) = version.ok().filter(|_| found) else {
            report.absent.push(tool.name);
            continue;
        };
        let version = String::from_utf8_lossy(&version.stdout);
        let version = version.lines().next().unwrap_or_default().to_owned();
        report.versions.insert(tool.name, version);
        present.push(*tool);
    }
    present
}

fn is_installed(program: &str, bench: &Bench) -> bool {
    let path = bench.variables.iter().find(|(name, _)| name == "PATH");
    let mut directories = path.iter().flat_map(|(_, path)| path.split(':'));
    directories.any(|directory| Path::new(directory).join(program).is_file())
}

/// One workload, measured.
struct Round<'a> {
    arguments: &'a Arguments,
    bench: &'a Bench,
    report: &'a mut Report,
    samples: Results,
}

impl Round<'_> {
    fn workload(
        &mut self,
        workload: Workload,
        world: &World,
        (savers, copiers): (&[Tool], &[Tool]),
    ) -> Result<()> {
        let home = self.bench.scratch.join(workload.name());
        let tree = home.join("tree");
        let (files, directories, links, bytes) = workload.shape(world);
        let name = workload.name();
        say(&format!(
            "{name}: {files} files, {directories} directories, {links} links, {bytes} bytes"
        ));
        workload.write(world, &tree)?;
        let subject = Subject::prepare(workload, world, &home)?;
        self.in_turn(savers, |bench, tool, samples| {
            bench.save(tool, &subject, samples)
        });
        let (snapshots, files): (Vec<Tool>, Vec<Tool>) =
            copiers.iter().partition(|tool| tool.name == SNAPSHOT);
        self.on_image("xfs", &subject, &files);
        if !snapshots.is_empty() {
            self.on_image("btrfs", &subject, copiers);
        }
        fs::remove_dir_all(home)?;
        Ok(())
    }

    /// Everybody once, then everybody again, beginning with another one.
    fn in_turn(
        &mut self,
        tools: &[Tool],
        act: impl Fn(&Bench, &Tool, &mut bench::Samples) -> Result<()>,
    ) {
        let mut failed = Vec::new();
        for repeat in 0..self.arguments.repeats {
            for at in 0..tools.len() {
                let tool = &tools[(at + repeat) % tools.len()];
                if failed.contains(&tool.name) {
                    continue;
                }
                say(&format!("  round {}: {}", repeat + 1, tool.name));
                let samples = self.samples.entry(tool.name.to_owned()).or_default();
                if let Err(error) = act(self.bench, tool, samples) {
                    say(&format!("  failed: {error:#}"));
                    failed.push(tool.name);
                    self.report.failures.push(format!("{error:#}"));
                }
            }
        }
    }

    /// Those who make a second tree, where blocks can be shared.
    fn on_image(&mut self, filesystem: &'static str, subject: &Subject, tools: &[Tool]) {
        if tools.is_empty() || subject.workload == Workload::Database {
            return;
        }
        let image = Image::new(&self.bench.scratch, filesystem);
        let taken = image.and_then(|image| {
            let tree = image.take(&subject.tree, filesystem == "btrfs")?;
            Ok((image, tree))
        });
        match taken {
            Ok((_image, tree)) => {
                let before = std::mem::take(&mut self.samples);
                self.in_turn(tools, |bench, tool, samples| {
                    bench.copy(tool, &tree, samples)
                });
                let here = std::mem::replace(&mut self.samples, before);
                for (tool, samples) in here {
                    let name = if filesystem == "xfs" {
                        tool
                    } else {
                        format!("{tool}, {filesystem}")
                    };
                    self.samples.entry(name).or_default().extend(samples);
                }
            }
            Err(error) => {
                let note = format!("nothing was measured on {filesystem}: {error:#}");
                self.report.notes.push(note);
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "the tables are what is asked for")]
fn print_report(arguments: &Arguments, report: &Report) -> Result<()> {
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(report)?);
        return Ok(());
    }
    let tools = SAVERS.iter().chain(&COPIERS).map(|tool| tool.name);
    let mut order: Vec<String> = tools
        .flat_map(|name| [name.to_owned(), format!("{name}, btrfs")])
        .collect();
    // Somebody may do both.
    let mut seen = BTreeSet::new();
    order.retain(|name| seen.insert(name.clone()));
    for workload in &report.workloads {
        println!(
            "{}",
            tables::figures(workload.workload, &order, &workload.samples)
        );
        println!("{}", tables::ratios(&workload.verdicts));
    }
    println!(
        "Seconds and MB (10⁶ bytes); medians of {} rounds, scale {}.",
        report.repeats, report.scale
    );
    for (tool, version) in &report.versions {
        println!("- {tool}: {version}");
    }
    if !report.absent.is_empty() {
        println!("\nNot installed: {}.", report.absent.join(", "));
    }
    for note in &report.notes {
        println!("\n{note}");
    }
    for failure in &report.failures {
        println!("\n**Failed:** {failure}");
    }
    Ok(())
}
