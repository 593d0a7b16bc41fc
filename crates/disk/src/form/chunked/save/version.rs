//! Files that are held whole: each version of a file is cloned once.
//!
//! 1. look at the file   2. clone it   3. digest it   4. look again: if it changed meanwhile, from the beginning
//!
//! A file with recent times is read at every save. If it was not written since the last one, and holds what is held of it, it is not cloned:
//! what was read is the version. One that was written, or is being written, is read only where it is cloned: once for each attempt. One that
//! has the time of the last save and holds something else is read once more than that.
//!
//! *Always true:* the digest is that of the clone's bytes. The live file is read in its place only if neither of its times is recent, so
//! that whatever is written to it after the clone shows in 4; what is recent is read from the clone. What was written through a mapping
//! before the clone is in both, because cloning a file writes its dirty pages out first, and a later store changes its times.

use super::plan::{Before, Job, Rare, ReadFile};
use super::workers::{ATTEMPTS, OpenedFile, SaveWorkers, Tools};
use crate::form::chunked::databases::HEADER;
use crate::form::chunked::table::StoredContent;
use crate::form::chunked::{ChunkError, ClonedVersion, VersionSink, same};
use crate::fs::metadata;
use crate::tree::stat_cache::{FileStat, RacyLimit};
use crate::tree::walk::WalkSkip;
use rustix::io::pread;
use stasis_model::digest::FileDigest;
use stasis_model::failure::AtPath;
use std::os::fd::AsFd;

/// What came of a look at a file that may hold what was saved of it before.
enum KnownVersion {
    /// It does, and is settled.
    Settled,
    /// It was read, and does not, or is being written.
    Other,
    /// It was not read.
    Unread,
}

impl<'a> SaveWorkers<'a> {
    /// Holds a file whole, if it can be cloned; says whether it is settled, one way or another.
    pub(super) fn version(&self, job: &Job, tools: &mut Tools<'a>) -> Result<bool, ChunkError> {
        let Some(sink) = self.parts.versions else {
            return Ok(false);
        };
        let (mut attempt, mut is_looked_at) = (1, false);
        loop {
            let Some(opened) = self.open(job, tools)? else {
                return Ok(true);
            };
            if opened.seen.size == 0 {
                return Ok(false);
            }
            if self.begins_as_database(job, &opened, tools)? {
                self.put_aside(job, opened)?;
                return Ok(true);
            }
            if !is_looked_at {
                is_looked_at = true;
                match self.known_version(job, &opened, sink)? {
                    KnownVersion::Settled => return Ok(true),
                    // What is cloned is what is seen from now on.
                    KnownVersion::Other => continue,
                    KnownVersion::Unread => {}
                }
            }
            let cloned = sink.clone_file(opened.file.as_fd(), opened.seen.size);
            let Some(cloned) = cloned.on("clone", self.path(job))? else {
                return Ok(false);
            };
            let Some(mut digest) = self.digest_of(job, &opened, &cloned)? else {
                return Ok(true);
            };
            let now = match metadata::of(&opened.file) {
                Ok(now) => now,
                Err(error) => return self.could_not(job, "look at", error).map(|()| true),
            };
            let is_steady = now.is_unchanged_since(&opened.seen) && cloned.size == now.size;
            if is_steady || attempt == ATTEMPTS {
                if !is_steady {
                    self.note(job, WalkSkip::Changed)?;
                    // What was read may be another state than what was cloned.
                    digest = same::digest(&cloned.file).on("read", self.path(job))?;
                }
                self.settle_version(job, &opened, sink, (cloned, digest))?;
                return Ok(true);
            }
            attempt += 1;
        }
    }

    /// Settles a file that was written a moment ago and holds what was saved of it before: it is read, but not cloned once more. One that
    /// was written since is not even read.
    fn known_version(
        &self,
        job: &Job,
        opened: &OpenedFile<'_>,
        sink: &dyn VersionSink,
    ) -> Result<KnownVersion, ChunkError> {
        let racy = RacyLimit::at(self.settings.started);
        let size = opened.seen.size;
        let known = match job.previous.as_deref() {
            Some(Before {
                content: StoredContent::Version(digest),
                size: before,
                modified: Some(modified),
            }) if *before == size && *modified == opened.seen.modified => *digest,
            _ => return Ok(KnownVersion::Unread),
        };
        // Once it is old enough to be cached it is cloned after all: a program that has it mapped may store into it without any sign
        // before a clone made the kernel write its pages out.
        if racy.is_settled(&FileStat::from(&opened.seen)) || !sink.holds(&known, size) {
            return Ok(KnownVersion::Unread);
        }
        let is_steady =
            || metadata::of(&opened.file).is_ok_and(|now| now.is_unchanged_since(&opened.seen));
        if !same::holds(&opened.file, &known) || !is_steady() {
            return Ok(KnownVersion::Other);
        }
        self.count(1, size);
        let rare = Rare {
            attributes: self.attributes(job, opened)?,
            fresh: opened.fresh(size),
            blocks: None,
            database: opened.database(),
        };
        let content = StoredContent::Version(known);
        self.done(job, ReadFile::new(content, rare), false);
        Ok(KnownVersion::Settled)
    }

    fn begins_as_database(
        &self,
        job: &Job,
        opened: &OpenedFile<'_>,
        tools: &Tools<'a>,
    ) -> Result<bool, ChunkError> {
        let mut start = [0; HEADER.len()];
        match pread(&opened.file, &mut start, 0) {
            Ok(read) => Ok(self.is_database(&start[..read], tools)),
            Err(error) => Ok(Err(error).on("read", self.path(job))?),
        }
    }

    /// What a clone holds; nothing when the file cannot be read, which is reported.
    fn digest_of(
        &self,
        job: &Job,
        opened: &OpenedFile<'_>,
        cloned: &ClonedVersion,
    ) -> Result<Option<FileDigest>, ChunkError> {
        let racy = RacyLimit::at(self.settings.started);
        let is_settled = racy.is_settled(&FileStat::from(&opened.seen));
        // The live file's pages are in memory more often than those of a clone that was just made.
        let digest = if is_settled && cloned.size == opened.seen.size {
            same::digest(&opened.file)
        } else {
            same::digest(&cloned.file)
        };
        match digest {
            Ok(digest) => Ok(Some(digest)),
            Err(error) => self.could_not(job, "read", error).map(|()| None),
        }
    }

    fn settle_version(
        &self,
        job: &Job,
        opened: &OpenedFile<'_>,
        sink: &dyn VersionSink,
        (cloned, digest): (ClonedVersion, FileDigest),
    ) -> Result<(), ChunkError> {
        let size = cloned.size;
        self.count(1, size);
        let rare = Rare {
            attributes: self.attributes(job, opened)?,
            fresh: opened.fresh(size),
            blocks: None,
            database: opened.database(),
        };
        sink.hold(cloned, &digest)
            .on("keep a clone of", self.path(job))?;
        let content = if size == 0 {
            StoredContent::One {
                digest,
                chunk: 0,
                offset: 0,
            }
        } else {
            StoredContent::Version(digest)
        };
        self.done(job, ReadFile::new(content, rare), size > 0);
        Ok(())
    }
}
