//! What every command that makes a tree what it was, or what another one is, can be told: how far it goes, and whether it asks.

use super::directory::entry_path;
use clap::Args;
use stasis_engine::model::tree::EntryPath;
use std::ffi::OsString;

/// What a change leaves as it is, and whether somebody is asked before it.
#[derive(Clone, Debug, Args)]
pub(super) struct ChangeArgs {
    /// Leave this entry as it is, with everything in it: from where you stand in the directory, else from its top; may be given
    /// more than once
    #[arg(long, value_name = "PATH")]
    except: Vec<OsString>,
    /// Leave .git as it is: branch, commits and index
    #[arg(long)]
    keep_git: bool,
    /// Do not ask before anything is changed
    #[arg(long, short)]
    pub(super) yes: bool,
}

impl ChangeArgs {
    /// Whether everything may be changed.
    pub(super) fn is_whole(&self) -> bool {
        self.except.is_empty() && !self.keep_git
    }

    /// What was typed of those that are left as they are.
    pub(super) fn excepted(&mut self) -> impl Iterator<Item = &mut OsString> {
        self.except.iter_mut()
    }

    /// The entries that are left as they are; `entry` reads what was typed.
    pub(super) fn except(
        &self,
        entry: impl Fn(&OsString) -> anyhow::Result<EntryPath>,
    ) -> anyhow::Result<Vec<EntryPath>> {
        let mut all: Vec<EntryPath> = self.except.iter().map(entry).collect::<Result<_, _>>()?;
        if self.keep_git {
            all.push(entry_path(Some(&".git".into()))?);
        }
        Ok(all)
    }

    /// The same, typed from the top of what was saved.
    pub(super) fn except_from_top(&self) -> anyhow::Result<Vec<EntryPath>> {
        self.except(|path| entry_path(Some(path)))
    }
}
