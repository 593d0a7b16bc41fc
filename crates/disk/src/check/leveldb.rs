//! Whether a LevelDB is sound: our own reader, which changes nothing and trusts nothing.
//!
//! 1. `CURRENT` names a manifest
//! 2. the manifest is a log of edits: which tables there are, of which size, and which logs were not taken in yet
//! 3. every table is there, has that size, a footer, an index and blocks that match their checksums
//! 4. every log since then consists of records that match theirs
//!
//! The newest log, and the manifest, may end in the middle of a record: that is what a killed program leaves, and its
//! own recovery drops the rest. It is reported as recovered. Anything wrong *before* something right is damage, and so
//! is a torn end of an older log, which was finished before the newer one began.
//!
//! [`Depth::Quick`] reads manifest, logs, and of each table the footer, the index and its handles; [`Depth::Full`] also
//! reads, unpacks and parses every block. Keys are compared only where the order is plain bytes: `IndexedDB` has one of
//! its own.
//!
//! *Always true:* no bytes make it panic; it holds no more than a few blocks, one record and the list of live files,
//! each of bounded size.
//!
//! Files of other databases that use the same names (`OPTIONS-…`, `IDENTITY`) are left to their own programs.

mod batch;
mod block;
mod cursor;
mod keys;
mod log;
mod manifest;
mod source;
mod table;

pub use keys::{entries, keys};
pub use source::{Bytes, Files, ReadFileAt};

use super::{CheckError, CheckSettings, Depth, Messages, Recovered, Verdict};
use crate::fs::root_dir::RootDir;
use log::LogRecord;
use manifest::{Live, Number};
use source::Beside;
use stasis_model::tree::EntryPath;
use std::sync::atomic::{AtomicBool, Ordering};

/// The largest block that is read, and unpacked; a larger one is a limit, not damage.
pub(super) const LARGEST: u64 = 64 << 20;
/// What the blocks of a database may unpack to: so many times what they take, and some more for small ones.
const EXPANSION: u64 = 32;
const ALLOWANCE: u64 = 1 << 30;
/// What `CURRENT` may hold at most.
const LONGEST_NAME: u64 = 64;

/// Checks the database in the directory `path`.
pub fn check(
    root: &RootDir,
    path: &EntryPath,
    settings: &CheckSettings,
) -> Result<Verdict, CheckError> {
    let directory = match root.directory(path.as_bytes()) {
        Ok(directory) => directory,
        Err(error) => {
            let why = format!("it could not be opened: {error}");
            return Ok(Verdict::Unable { why });
        }
    };
    let files = match Beside::new(root, directory) {
        Ok(files) => files,
        Err(error) => {
            let why = format!("it could not be listed: {error}");
            return Ok(Verdict::Unable { why });
        }
    };
    let settings = LevelDbSettings {
        depth: settings.depth,
        messages: settings.messages,
        cancel: &settings.cancel,
    };
    judge(&files, &settings).ok_or(CheckError::Cancelled)
}

/// How a LevelDB is checked.
#[derive(Clone, Copy, Debug)]
pub struct LevelDbSettings<'a> {
    /// How thoroughly.
    pub depth: Depth,
    /// How many messages are kept.
    pub messages: usize,
    /// Set by anybody at any time to end soon.
    pub cancel: &'a AtomicBool,
}

/// Checks the database that consists of `files`; `None` when somebody asked us to stop.
pub fn judge(files: &dyn Files, settings: &LevelDbSettings<'_>) -> Option<Verdict> {
    let mut findings = Findings::new(settings);
    let ended = findings.look(files);
    match ended {
        Err(End::Cancelled) => None,
        Err(End::Verdict(verdict)) => Some(verdict),
        Ok(_) if !findings.messages.is_empty() => Some(Verdict::Damaged {
            messages: findings.messages,
        }),
        Ok(pages) => Some(Verdict::Sound {
            pages,
            recovered: findings.recovered,
            unchecked: Messages::default(),
        }),
    }
}

/// Why a check ends before everything was looked at.
#[derive(Debug)]
enum End {
    Cancelled,
    Verdict(Verdict),
}

impl End {
    fn limit(what: String) -> Self {
        Self::Verdict(Verdict::Limit { what })
    }

    fn unreadable(name: &str, error: &std::io::Error) -> Self {
        let why = format!("`{name}` could not be read: {error}");
        Self::Verdict(Verdict::Unable { why })
    }
}

/// What is wrong with a file, or why we cannot tell.
#[derive(Debug)]
enum LevelDbTrouble {
    /// It is damaged, in this way.
    Damage(String),
    /// The check ends.
    End(End),
}

impl From<End> for LevelDbTrouble {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

fn damage<T>(what: impl Into<String>) -> Result<T, LevelDbTrouble> {
    Err(LevelDbTrouble::Damage(what.into()))
}

/// What was found so far.
struct Findings<'a> {
    settings: LevelDbSettings<'a>,
    /// How many bytes more the blocks may unpack to.
    may_unpack: u64,
    messages: Messages,
    recovered: Recovered,
}

impl<'a> Findings<'a> {
    fn new(settings: &LevelDbSettings<'a>) -> Self {
        Self {
            settings: *settings,
            may_unpack: ALLOWANCE,
            messages: Messages::default(),
            recovered: Recovered::Nothing,
        }
    }

    fn say(&mut self, message: &str) {
        self.messages.push(self.settings.messages, message);
    }

    fn go_on(&self) -> Result<(), End> {
        if self.settings.cancel.load(Ordering::Relaxed) {
            return Err(End::Cancelled);
        }
        Ok(())
    }

    /// Counts what was unpacked: a small file must not keep us busy for ever.
    fn unpack(&mut self, bytes: u64, name: &str) -> Result<(), End> {
        let left = self.may_unpack.checked_sub(bytes);
        let too_much = || End::limit(format!("the blocks up to `{name}` unpack to too much"));
        self.may_unpack = left.ok_or_else(too_much)?;
        Ok(())
    }

    /// Notes what is wrong with `name` and goes on, unless the check ends.
    fn note<T>(&mut self, name: &str, found: Result<T, LevelDbTrouble>) -> Result<Option<T>, End> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(LevelDbTrouble::End(end)) => Err(end),
            Err(LevelDbTrouble::Damage(what)) => {
                self.say(&format!("{name}: {what}"));
                Ok(None)
            }
        }
    }

    /// Looks at everything; says how many files are alive.
    fn look(&mut self, files: &dyn Files) -> Result<u64, End> {
        let names = files.names();
        let foreign = |name: &&String| name.starts_with("OPTIONS-") || *name == "IDENTITY";
        if let Some(name) = names.iter().find(foreign) {
            let why = format!("`{name}` belongs to another kind of database");
            return Err(End::Verdict(Verdict::Unable { why }));
        }
        let Some(manifest) = self.current(files)? else {
            return Ok(0);
        };
        let read = self.manifest(files, &manifest);
        let Some(live) = self.note(&manifest, read)? else {
            return Ok(0);
        };
        for (number, size) in &live.tables {
            self.go_on()?;
            self.table(files, *number, *size, live.is_bytewise())?;
        }
        let logs = live.logs(names);
        let newest = logs.last().cloned();
        for name in &logs {
            self.go_on()?;
            let read = self.log(files, name, newest.as_ref() == Some(name));
            self.note(name, read)?;
        }
        Ok((live.tables.len() + logs.len()) as u64)
    }

    /// The name of the manifest, unless `CURRENT` is damaged.
    fn current(&mut self, files: &dyn Files) -> Result<Option<String>, End> {
        let Some(file) = open(files, "CURRENT")? else {
            self.say("CURRENT: it is missing");
            return Ok(None);
        };
        let mut text = vec![0; usize::try_from(file.size().min(LONGEST_NAME)).unwrap_or(0)];
        let read = file.read_at(&mut text, 0);
        read.map_err(|error| End::unreadable("CURRENT", &error))?;
        let text = String::from_utf8_lossy(&text);
        let name = text.strip_suffix('\n').filter(|name| {
            let number = name.strip_prefix("MANIFEST-").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if name.is_none() {
            self.say("CURRENT: it does not name a manifest");
        }
        Ok(name.map(str::to_owned))
    }

    fn manifest(&mut self, files: &dyn Files, name: &str) -> Result<Live, LevelDbTrouble> {
        let Some(file) = open(files, name)? else {
            return damage("it is missing");
        };
        let mut live = Live::default();
        let mut records = log::Records::new(&*file, name);
        while let Some(record) = records.next()? {
            self.go_on()?;
            match record {
                LogRecord::Whole(bytes) => live.apply(&bytes)?,
                LogRecord::TooLong => {
                    let what = format!("`{name}` has a record that is too long");
                    return Err(End::limit(what).into());
                }
            }
        }
        if records.is_torn() {
            self.recovered = Recovered::TornTail;
        }
        live.finish()
    }

    fn log(
        &mut self,
        files: &dyn Files,
        name: &str,
        is_newest: bool,
    ) -> Result<(), LevelDbTrouble> {
        let Some(file) = open(files, name)? else {
            return damage("it is missing");
        };
        let mut records = log::Records::new(&*file, name);
        while let Some(record) = records.next()? {
            self.go_on()?;
            if let LogRecord::Whole(bytes) = record {
                batch::check(&bytes)?;
            }
        }
        if records.is_torn() && !is_newest {
            return damage("it ends in the middle of a record, though there is a newer log");
        }
        if records.is_torn() {
            self.recovered = Recovered::TornTail;
        }
        Ok(())
    }

    fn table(
        &mut self,
        files: &dyn Files,
        number: Number,
        size: u64,
        is_bytewise: bool,
    ) -> Result<(), End> {
        let names = [format!("{number:06}.ldb"), format!("{number:06}.sst")];
        for name in &names {
            let Some(file) = open(files, name)? else {
                continue;
            };
            if file.size() != size {
                let found = file.size();
                self.say(&format!(
                    "{name}: it has {found} bytes, the manifest says {size}"
                ));
                return Ok(());
            }
            let checked = self.table_file(&*file, name, is_bytewise);
            self.note(name, checked)?;
            return Ok(());
        }
        self.say(&format!("{}: it is missing", names[0]));
        Ok(())
    }

    fn table_file(
        &mut self,
        file: &dyn ReadFileAt,
        name: &str,
        is_bytewise: bool,
    ) -> Result<(), LevelDbTrouble> {
        let table = table::SortedTable::open(file, name, is_bytewise)?;
        if self.settings.depth == Depth::Full {
            let mut last = Vec::new();
            let more = file.size().saturating_mul(EXPANSION);
            self.may_unpack = self.may_unpack.saturating_add(more);
            for handle in table.blocks() {
                self.go_on()?;
                let unpacked = table.check_block(*handle, &mut last)?;
                self.unpack(unpacked, name)?;
            }
        }
        Ok(())
    }
}

fn open<'a>(files: &'a dyn Files, name: &str) -> Result<Option<Box<dyn ReadFileAt + 'a>>, End> {
    files
        .open(name)
        .map_err(|error| End::unreadable(name, &error))
}

#[cfg(test)]
mod tests;
