//! Runs seeds of the simulator: `sim COUNT FIRST-SEED`. One seed alone is told in full.

use stasis_testkit::sim::observations::Observations;
use stasis_testkit::sim::{Report, Settings, run};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn main() -> io::Result<ExitCode> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let [count, first] = numbers[..] else {
        writeln!(io::stderr(), "usage: scripts/sim COUNT [SEED]")?;
        return Ok(ExitCode::from(2));
    };
    let mut tally = Tally::default();
    if count == 1 {
        tally.add(tell(first)?);
    } else {
        tally = run_all(first, count);
    }
    tally.summarise(first)
}

/// What a set of runs came to.
#[derive(Default)]
struct Tally {
    runs: u64,
    observations: Observations,
    broken: Vec<Report>,
}

impl Tally {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.observations.merge(&report.observations);
        if report.breach.is_some() {
            self.broken.push(report);
        }
    }

    fn merge(&mut self, other: Self) {
        self.runs += other.runs;
        self.observations.merge(&other.observations);
        self.broken.extend(other.broken);
    }

    fn summarise(&self, first: u64) -> io::Result<ExitCode> {
        let mut out = io::stdout().lock();
        write!(out, "{}", self.observations)?;
        for report in self.broken.iter().take(10) {
            writeln!(out, "{report}")?;
        }
        let (runs, failed) = (self.runs, self.broken.len());
        writeln!(
            out,
            "{runs} runs from seed {first}: {failed} broke a promise"
        )?;
        Ok(ExitCode::from(u8::from(failed > 0)))
    }
}

/// Runs one seed and prints everything that happened.
fn tell(seed: u64) -> io::Result<Report> {
    let settings = Settings {
        keeps_diary: true,
        ..Settings::default()
    };
    let report = run(seed, settings);
    let mut out = io::stdout().lock();
    for line in &report.diary {
        writeln!(out, "{line}")?;
    }
    Ok(report)
}

/// Runs `count` seeds on all cores.
fn run_all(first: u64, count: u64) -> Tally {
    let next = AtomicU64::new(0);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            if taken >= count {
                return tally;
            }
            tally.add(run(first.wrapping_add(taken), Settings::default()));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut all = Tally::default();
        for worker in workers {
            all.merge(worker.join().expect("a worker does not panic"));
        }
        all
    })
}
