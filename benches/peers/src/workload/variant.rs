//! Another state of a tree, swapped in and out by renaming.

use anyhow::{Context, Result};
use rustix::fs::{CWD, RenameFlags};
use std::fs;
use std::path::{Path, PathBuf};

/// What differs from the tree it was made for.
#[derive(Debug)]
pub(crate) struct Variant {
    root: PathBuf,
    aside: PathBuf,
    replaced: Vec<PathBuf>,
    added: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
}

impl Variant {
    /// Nothing differs yet. `aside` is a directory on the same filesystem that is ours alone.
    pub(super) fn new(root: &Path, aside: &Path) -> Result<Self> {
        fs::create_dir_all(aside)?;
        Ok(Self {
            root: root.to_owned(),
            aside: aside.to_owned(),
            replaced: Vec::new(),
            added: Vec::new(),
            deleted: Vec::new(),
        })
    }

    /// The file as it is now.
    pub(super) fn original(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn prepared(&self, path: &str) -> Result<PathBuf> {
        let prepared = self.aside.join(path);
        fs::create_dir_all(prepared.parent().context("a file lies in a directory")?)?;
        Ok(prepared)
    }

    /// Another content for a file, which keeps its mode; returns where to write it. It starts as a copy.
    pub(super) fn replace(&mut self, path: &str) -> Result<PathBuf> {
        let prepared = self.prepared(path)?;
        let original = self.original(path);
        fs::copy(&original, &prepared).with_context(|| format!("could not copy `{path}`"))?;
        self.replaced.push(path.into());
        Ok(prepared)
    }

    /// A file that was not there.
    pub(super) fn add(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        fs::write(self.prepared(path)?, bytes)?;
        self.added.push(path.into());
        Ok(())
    }

    /// A file that goes.
    pub(super) fn delete(&mut self, path: &str) -> Result<()> {
        self.prepared(path)?;
        self.deleted.push(path.into());
        Ok(())
    }

    /// How many entries are replaced, added and deleted.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.replaced.len(), self.added.len(), self.deleted.len())
    }

    /// Makes the tree the other one.
    pub(crate) fn swap_in(&self) -> Result<()> {
        for path in &self.replaced {
            self.exchange(path)?;
        }
        for path in &self.added {
            fs::rename(self.aside.join(path), self.root.join(path))?;
        }
        for path in &self.deleted {
            fs::rename(self.root.join(path), self.aside.join(path))?;
        }
        Ok(())
    }

    /// Makes the tree what it was.
    pub(crate) fn swap_out(&self) -> Result<()> {
        for path in &self.replaced {
            self.exchange(path)?;
        }
        for path in &self.added {
            fs::rename(self.root.join(path), self.aside.join(path))?;
        }
        for path in &self.deleted {
            fs::rename(self.aside.join(path), self.root.join(path))?;
        }
        Ok(())
    }

    fn exchange(&self, path: &Path) -> Result<()> {
        let (here, there) = (self.root.join(path), self.aside.join(path));
        rustix::fs::renameat_with(CWD, &here, CWD, &there, RenameFlags::EXCHANGE)
            .with_context(|| format!("could not exchange `{}`", path.display()))
    }
}
