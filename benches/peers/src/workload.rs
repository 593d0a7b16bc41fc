//! The three trees on which everybody is measured, and what happens to them between two saves.
//!
//! A tree is first a *plan* (names, kinds and sizes: a pure function of seed and scale) and then written. Between two
//! saves a [`Variant`] is swapped in by renaming, so that all other files keep their inode and times as they would in
//! life, and swapped out again for the next tool.

mod contents;
mod database;
mod profile;
mod variant;
mod workspace;

pub(crate) use variant::Variant;

use crate::dice::Dice;
use crate::words::Words;
use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use serde::Serialize;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Which tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Workload {
    /// A browser's profile: databases, logs, caches
    Profile,
    /// A coding agent's working tree: many small files
    Workspace,
    /// One large database
    Database,
}

/// Randomness and vocabulary of one run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    /// 1 is the full size.
    pub(crate) scale: f64,
    words: Words,
}

impl World {
    pub(crate) fn new(seed: u64, scale: f64) -> Self {
        let words = Words::new(seed);
        Self { seed, scale, words }
    }

    fn dice(&self, name: &str) -> Dice {
        Dice::named(self.seed, name)
    }

    /// So much of a count or a size as the scale asks for, at least 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sizes far below 2^52"
    )]
    pub(crate) fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.scale).round() as u64).max(1)
    }
}

/// What is in a planned entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Directory,
    Link(String),
    Noise(u64),
    Prose(u64),
    Source(u64),
    Json(u64),
    /// Text with noise in it, as compiled or packed things are.
    Mixed(u64),
    LevelLog(u64),
    LevelTable(u64),
    Sqlite(u64),
    /// Pages that look like those of a database.
    Pages(u64),
    /// The same text wherever it appears.
    Common(u64),
}

impl What {
    /// How many bytes it has, nearly so for a database.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Directory | Self::Link(_) => 0,
            Self::Noise(n)
            | Self::Prose(n)
            | Self::Source(n)
            | Self::Json(n)
            | Self::Mixed(n)
            | Self::LevelLog(n)
            | Self::LevelTable(n)
            | Self::Sqlite(n)
            | Self::Pages(n)
            | Self::Common(n) => *n,
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        !matches!(self, Self::Directory | Self::Link(_))
    }
}

/// One entry that will be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Planned {
    pub(crate) path: String,
    pub(crate) what: What,
    pub(crate) mode: u32,
}

impl Planned {
    fn new(path: impl Into<String>, what: What) -> Self {
        let mode = if what == What::Directory {
            0o755
        } else {
            0o644
        };
        let path = path.into();
        Self { path, what, mode }
    }
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::Profile, Self::Workspace, Self::Database];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Workspace => "workspace",
            Self::Database => "database",
        }
    }

    /// Everything that will be in the tree; directories come before what is in them.
    pub(crate) fn plan(self, world: &World) -> Vec<Planned> {
        match self {
            Self::Profile => profile::plan(world),
            Self::Workspace => workspace::plan(world),
            Self::Database => database::plan(world),
        }
    }

    /// A file that is asked for alone.
    pub(crate) fn one_file(self) -> &'static str {
        match self {
            Self::Profile => profile::ONE_FILE,
            Self::Workspace => workspace::ONE_FILE,
            Self::Database => database::ONE_FILE,
        }
    }

    /// How many files, directories and links there will be, and how many bytes.
    pub(crate) fn shape(self, world: &World) -> (usize, usize, usize, u64) {
        let plan = self.plan(world);
        let count = |is: fn(&What) -> bool| plan.iter().filter(|one| is(&one.what)).count();
        let links = count(|what| matches!(what, What::Link(_)));
        let directories = count(|what| *what == What::Directory);
        let bytes = plan.iter().map(|one| one.what.bytes()).sum();
        (count(What::is_file), directories, links, bytes)
    }

    /// Writes the tree to `root`, which is not there yet.
    pub(crate) fn write(self, world: &World, root: &Path) -> Result<()> {
        fs::create_dir_all(root)?;
        let plan = self.plan(world);
        for planned in &plan {
            let path = root.join(&planned.path);
            write_one(world, planned, &path)
                .with_context(|| format!("could not make `{}`", planned.path))?;
        }
        let directories = plan.iter().filter(|one| one.what == What::Directory);
        for planned in directories {
            set_time(world, planned, &root.join(&planned.path))?;
        }
        Ok(())
    }

    /// Prepares what the tree at `root` becomes after a run, in `aside`.
    pub(crate) fn changed(self, world: &World, root: &Path, aside: &Path) -> Result<Variant> {
        let variant = Variant::new(root, aside)?;
        match self {
            Self::Profile => profile::change(world, variant),
            Self::Workspace => workspace::change(world, variant),
            Self::Database => database::change(world, variant),
        }
    }

    /// Prepares the tree with a few bytes inserted near the start, where that is asked.
    pub(crate) fn inserted(self, root: &Path, aside: &Path) -> Result<Option<Variant>> {
        if self != Self::Database {
            return Ok(None);
        }
        database::insert(Variant::new(root, aside)?).map(Some)
    }
}

fn write_one(world: &World, planned: &Planned, path: &Path) -> Result<()> {
    match &planned.what {
        What::Directory => fs::create_dir_all(path)?,
        What::Link(target) => symlink(target, path)?,
        What::Sqlite(size) => contents::sqlite(world, path, *size)?,
        What::Pages(size) => database::write(world, path, *size)?,
        what => fs::write(path, contents::bytes(world, &planned.path, what))?,
    }
    if !matches!(planned.what, What::Link(_)) {
        fs::set_permissions(path, fs::Permissions::from_mode(planned.mode))?;
    }
    set_time(world, planned, path)
}

/// A time in the months before the run's epoch, down to the nanosecond.
fn set_time(world: &World, planned: &Planned, path: &Path) -> Result<()> {
    let mut dice = world.dice(&planned.path);
    let time = Timespec {
        tv_sec: 1_760_000_000 + i64::try_from(dice.below(10_000_000))?,
        tv_nsec: i64::try_from(dice.below(1_000_000_000))?,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests;
