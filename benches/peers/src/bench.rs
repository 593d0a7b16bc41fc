//! One tool, one workload, once: the phases in order, each restore compared.

use crate::compare;
use crate::measure::{self, Cost};
use crate::tools::{Restored, Tool};
use crate::workload::{Variant, Workload, World};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is measured: seconds, and megabytes where it is sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    First,
    Unchanged,
    Changed,
    Restore,
    OneFile,
    Size,
    Added,
    Inserted,
    Memory,
    Copy,
}

/// What was measured, each as often as it was repeated.
pub(crate) type Samples = BTreeMap<Measure, Vec<f64>>;

/// A generated tree with what may become of it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) workload: Workload,
    pub(crate) tree: PathBuf,
    pub(crate) changed: Variant,
    pub(crate) inserted: Option<Variant>,
}

impl Subject {
    /// What may become of the tree in `home`, which was written.
    pub(crate) fn prepare(workload: Workload, world: &World, home: &Path) -> Result<Self> {
        let tree = home.join("tree");
        let changed = workload.changed(world, &tree, &home.join("changed"))?;
        // Inserted into what is saved before: a way back to the first content is not what is measured.
        changed.swap_in()?;
        let inserted = workload.inserted(&tree, &home.join("inserted"));
        changed.swap_out()?;
        Ok(Self {
            workload,
            tree,
            changed,
            inserted: inserted?,
        })
    }
}

/// Where and with what tools are run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) scratch: PathBuf,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) drop_caches: bool,
    /// How old files are before they are first saved: careful tools do not trust the times of younger ones.
    pub(crate) quiet: Duration,
}

/// One run of one tool.
struct Run<'a> {
    bench: &'a Bench,
    tool: &'a Tool,
    subject: &'a Subject,
    home: PathBuf,
    saves: u32,
    samples: &'a mut Samples,
    peak: u64,
}

#[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Bench {
    /// Runs a tool through all phases and adds what was measured. The tree is afterwards what it was.
    pub(crate) fn save(&self, tool: &Tool, subject: &Subject, samples: &mut Samples) -> Result<()> {
        let home = self.scratch.join("run");
        let mut run = Run {
            bench: self,
            tool,
            subject,
            home,
            saves: 0,
            samples,
            peak: 0,
        };
        run.begin()?;
        let done = run.phases();
        run.end()?;
        done.with_context(|| format!("{} on {}", tool.name, subject.workload.name()))
    }

    /// Runs a tool that makes a second tree, beside `tree`.
    pub(crate) fn copy(&self, tool: &Tool, tree: &Path, samples: &mut Samples) -> Result<()> {
        let target = tree.with_file_name("target");
        let mut variables = self.variables.clone();
        for (name, path) in [("TREE", tree), ("TARGET", &target)] {
            variables.push((name.into(), path.to_string_lossy().into_owned()));
        }
        measure::run(tool.prepare, &variables, &self.scratch.join("log"))?;
        measure::settle(self.drop_caches);
        measure::warm(tree)?;
        let cost = measure::run(tool.first, &variables, &self.scratch.join("log"));
        let checked = cost.and_then(|cost| {
            if !tool.restore.is_empty() {
                measure::run(tool.restore, &variables, &self.scratch.join("log"))?;
            }
            check(tree, &target, tool)?;
            Ok(cost)
        });
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        let cost = checked.with_context(|| tool.name)?;
        note(samples, Measure::Copy, cost.seconds);
        note(samples, Measure::Memory, megabytes(cost.peak_bytes));
        Ok(())
    }
}

fn note(samples: &mut Samples, measure: Measure, value: f64) {
    samples.entry(measure).or_default().push(value);
}

fn check(wanted: &Path, found: &Path, tool: &Tool) -> Result<()> {
    let differences = compare::trees(wanted, found, tool.fidelity)?;
    if let Some(first) = differences.first() {
        let count = differences.len();
        bail!("the restored tree is wrong in {count} places, the first: {first}");
    }
    Ok(())
}

impl Run<'_> {
    fn begin(&self) -> Result<()> {
        if self.home.exists() {
            fs::remove_dir_all(&self.home)?;
        }
        for name in ["repo", "cache", "home"] {
            fs::create_dir_all(self.home.join(name))?;
        }
        measure::settle(self.bench.drop_caches);
        measure::warm(&self.subject.tree)?;
        std::thread::sleep(self.bench.quiet);
        Ok(())
    }

    fn end(&self) -> Result<()> {
        fs::remove_dir_all(&self.home).context("could not remove what a tool left")
    }

    fn line(&mut self, line: &str) -> Result<Cost> {
        let at = |name: &str| self.home.join(name).to_string_lossy().into_owned();
        let mut variables = self.bench.variables.clone();
        let own = [
            ("TREE", self.subject.tree.to_string_lossy().into_owned()),
            ("REPO", at("repo")),
            ("CACHE", at("cache")),
            ("XDG_CACHE_HOME", at("cache")),
            ("BORG_BASE_DIR", at("cache")),
            ("HOME", at("home")),
            ("TARGET", at("target")),
            ("FILE", self.subject.workload.one_file().to_owned()),
            ("OUT", at("out")),
            ("N", self.saves.to_string()),
            ("BEFORE", self.saves.saturating_sub(1).to_string()),
        ];
        variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let cost = measure::run(line, &variables, &self.home.join("log"))?;
        self.peak = self.peak.max(cost.peak_bytes);
        Ok(cost)
    }

    fn note(&mut self, measure: Measure, value: f64) {
        note(self.samples, measure, value);
    }

    fn stored(&self) -> Result<u64> {
        measure::stored(&self.home.join("repo"))
    }

    /// Saves once more and returns by how much the repository grew.
    fn again(&mut self, measure: Option<Measure>) -> Result<f64> {
        measure::settle(false);
        let before = self.stored()?;
        self.saves += 1;
        let cost = self.line(self.tool.again)?;
        if let Some(measure) = measure {
            self.note(measure, cost.seconds);
        }
        Ok(megabytes(self.stored()?.saturating_sub(before)))
    }

    fn phases(&mut self) -> Result<()> {
        self.line(self.tool.prepare)?;
        self.saves += 1;
        let cost = self.line(self.tool.first)?;
        self.note(Measure::First, cost.seconds);
        let stored = megabytes(self.stored()?);
        self.note(Measure::Size, stored);
        if self.tool.again.is_empty() {
            self.restore()?;
        } else {
            self.again(Some(Measure::Unchanged))?;
            self.with(&self.subject.changed, |run| {
                let added = run.again(Some(Measure::Changed))?;
                run.note(Measure::Added, added);
                run.restore()?;
                let Some(inserted) = &run.subject.inserted else {
                    return Ok(());
                };
                run.with(inserted, |run| {
                    let added = run.again(None)?;
                    run.note(Measure::Inserted, added);
                    Ok(())
                })
            })?;
        }
        let peak = megabytes(self.peak);
        self.note(Measure::Memory, peak);
        Ok(())
    }

    /// Does something while the tree is another one.
    fn with(&mut self, variant: &Variant, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        variant.swap_in()?;
        let done = act(self);
        variant.swap_out()?;
        done
    }

    fn restore(&mut self) -> Result<()> {
        measure::settle(false);
        let cost = self.line(self.tool.restore)?;
        self.note(Measure::Restore, cost.seconds);
        let target = self.home.join("target");
        let tree = self.subject.tree.clone();
        let restored = match self.tool.restored {
            Restored::Here => target,
            Restored::ByPath => target.join(tree.strip_prefix("/").unwrap_or(&tree)),
        };
        check(&tree, &restored, self.tool)?;
        if self.tool.one_file.is_empty() {
            return Ok(());
        }
        let cost = self.line(self.tool.one_file)?;
        self.note(Measure::OneFile, cost.seconds);
        let file = tree.join(self.subject.workload.one_file());
        if !compare::files(&file, &self.home.join("out"))? {
            bail!("`{}` came back with other bytes", file.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
