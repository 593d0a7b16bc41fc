//! Files that turn out to be live databases.

use super::plan::{FileState, Job, SavePlan};
use super::workers::{
    CopiedFile, DatabaseTask, FoundDatabase, OpenedFile, ReadSource, SaveWorkers, Tools,
};
use crate::form::chunked::ChunkError;
use crate::form::chunked::databases::{
    DatabaseCopy, HEADER, Inconsistent, LiveDatabase, OPENED_MEANWHILE, SetFile,
};
use crate::form::chunked::scan::Scan;
use crate::fs::fd::c_name;
use crate::tree::walk::{WalkError, WalkSkip};
use crate::worker_pool::lock;
use stasis_model::format::manifest::StoredAs;
use stasis_model::tree::EntryPath;
use stasis_model::tree::chunking::LARGE;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Arc;

impl<'a> SaveWorkers<'a> {
    /// Whether what a file begins with makes it a database that is to be captured.
    pub(super) fn is_database(&self, start: &[u8], tools: &Tools<'a>) -> bool {
        start.starts_with(HEADER) && tools.source.is_none() && self.parts.databases.is_some()
    }

    /// Leaves a database for later. Its descriptor is closed here: later that would drop the locks of its capture.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "its descriptor must be closed here"
    )]
    pub(super) fn put_aside(&self, job: &Job, opened: OpenedFile<'_>) -> Result<(), ChunkError> {
        let attributes = self.attributes(job, &opened)?;
        lock(&self.aside).push(FoundDatabase {
            file: job.file,
            attributes,
            identity: opened.seen.identity(),
        });
        Ok(())
    }

    /// Captures a database and stores the copy; without one, stores it and what lies beside it as they are.
    pub(super) fn database(
        &self,
        task: &DatabaseTask,
        tools: &mut Tools<'a>,
    ) -> Result<(), ChunkError> {
        let (at, beside) = (task.jobs.start, task.jobs.start + 1..task.jobs.end);
        let source = match self.captured(task)? {
            CapturedDatabase::One(source) => source,
            CapturedDatabase::Set(files) => return self.set(task, files, tools),
        };
        let is_copied = !matches!(source, ReadSource::AsItIs(_));
        tools.source = Some(source);
        let read = self.any(at, tools);
        tools.source = None;
        read?;
        if is_copied {
            return Ok(());
        }
        beside.into_iter().try_for_each(|at| self.any(at, tools))
    }

    /// Stores the files of a database; what was beside it and is not among them any more is left out.
    fn set(
        &self,
        task: &DatabaseTask,
        mut files: HashMap<Vec<u8>, CopiedFile>,
        tools: &mut Tools<'a>,
    ) -> Result<(), ChunkError> {
        for at in task.jobs.clone() {
            let job = &self.plan.jobs[at];
            let (listing, spotted) = self.scan.get(job.spot);
            let Some(copied) = files.remove(listing.name(spotted)) else {
                let _ = self.plan.files[job.file as usize].set(FileState::Left);
                continue;
            };
            tools.source = Some(ReadSource::Copy(Arc::new(copied)));
            let read = self.any(at, tools);
            tools.source = None;
            read?;
        }
        Ok(())
    }

    fn any(&self, at: usize, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let size = match &tools.source {
            Some(ReadSource::Copy(copied)) => {
                crate::fs::metadata::of(&copied.file).map(|seen| seen.size)
            }
            _ => Ok(self.scan.get(self.plan.jobs[at].spot).1.size()),
        };
        if size.unwrap_or_default() < LARGE {
            return self.small(at..at + 1, tools);
        }
        self.large(at, tools)
    }

    fn captured(&self, task: &DatabaseTask) -> Result<CapturedDatabase, ChunkError> {
        let (job, aside) = (&self.plan.jobs[task.jobs.start], &task.aside);
        let (listing, spotted) = self.scan.get(job.spot);
        let path = listing.path_of(spotted);
        let Some(capture) = self.parts.databases else {
            return Ok(CapturedDatabase::One(ReadSource::AsItIs(None)));
        };
        let name = c_name(listing.name(spotted));
        let opened = self.parts.root.directory(listing.path.as_bytes());
        let copy = match (name, opened) {
            (Ok(name), Ok(directory)) => capture.capture(&LiveDatabase {
                path: &path,
                directory: directory.as_fd(),
                name: &name,
                identity: aside.identity,
            }),
            (_, Err(error)) | (Err(error), _) => DatabaseCopy::Refused {
                why: std::io::Error::from(error).to_string(),
            },
        };
        Ok(match copy {
            DatabaseCopy::Consistent { file, live } => {
                CapturedDatabase::One(ReadSource::Copy(Arc::new(CopiedFile {
                    file,
                    live: Some(live),
                    attributes: aside.attributes.clone(),
                    database: Some(StoredAs::Consistent),
                })))
            }
            DatabaseCopy::Still => CapturedDatabase::One(ReadSource::Still),
            DatabaseCopy::Set { files, state, why } => {
                CapturedDatabase::Set(self.set_of(task, files, state, why)?)
            }
            DatabaseCopy::Cancelled => return Err(WalkError::Cancelled.into()),
            DatabaseCopy::Refused { why } => {
                self.name_inconsistent(path, why)?;
                let state = if capture.takes_sets() {
                    StoredAs::Torn
                } else {
                    StoredAs::CrashConsistent
                };
                CapturedDatabase::One(ReadSource::AsItIs(Some(state)))
            }
        })
    }

    /// The files of a database, by their names.
    fn set_of(
        &self,
        task: &DatabaseTask,
        files: Vec<SetFile>,
        mut state: StoredAs,
        mut why: Option<String>,
    ) -> Result<HashMap<Vec<u8>, CopiedFile>, ChunkError> {
        let own = self.scan.get(self.plan.jobs[task.jobs.start].spot);
        let own_name = own.0.name(own.1);
        let names: HashSet<&[u8]> = task
            .jobs
            .clone()
            .map(|at| self.scan.get(self.plan.jobs[at].spot))
            .map(|(listing, spotted)| listing.name(spotted))
            .collect();
        let files: Vec<(Vec<u8>, SetFile)> = files
            .into_iter()
            .map(|file| ([own_name, file.suffix].concat(), file))
            .collect();
        let has_come =
            |(name, file): &(Vec<u8>, SetFile)| file.live.size > 0 && !names.contains(&**name);
        if files.iter().any(has_come) {
            state = StoredAs::Torn;
            why = Some(OPENED_MEANWHILE.to_owned());
        }
        if let Some(why) = why {
            self.name_inconsistent(own.0.path_of(own.1), why)?;
        }
        let copied = |(name, file): (Vec<u8>, SetFile)| {
            let copied = CopiedFile {
                database: file.suffix.is_empty().then_some(state),
                file: file.file,
                live: Some(file.live),
                attributes: file.attributes,
            };
            (name, copied)
        };
        Ok(files.into_iter().map(copied).collect())
    }

    /// Reports a database that is not stored as one committed state; an error where everything must be right.
    fn name_inconsistent(&self, path: EntryPath, why: String) -> Result<(), ChunkError> {
        if self.settings.walk.strict {
            let reason = WalkSkip::Inconsistent;
            return Err(WalkError::Incomplete { path, reason }.into());
        }
        let mut report = lock(&self.report);
        report.inconsistent.push(Inconsistent { path, why });
        Ok(())
    }
}

/// What is stored in the place of a live database.
enum CapturedDatabase {
    One(ReadSource),
    /// Its files, by their names.
    Set(HashMap<Vec<u8>, CopiedFile>),
}

/// Makes jobs of the databases and of what was held back because of files that turned out to be none.
pub(super) fn second_round(plan: &mut SavePlan, aside: Vec<FoundDatabase>) -> Vec<DatabaseTask> {
    let databases: HashMap<u32, FoundDatabase> =
        aside.into_iter().map(|one| (one.file, one)).collect();
    // All but the few that are databases are dropped at once: there may be a million.
    let finished = std::mem::take(&mut plan.jobs).into_iter();
    let mut by_file: HashMap<u32, Job> = finished
        .filter(|job| databases.contains_key(&job.file))
        .map(|job| (job.file, job))
        .collect();
    let job = |companion: &super::plan::Companion| Job {
        file: companion.file,
        spot: companion.spot,
        previous: None,
        held: None,
    };
    let mut jobs: Vec<Job> = Vec::new();
    for (owner, beside) in &plan.companions {
        if !databases.contains_key(owner) {
            let waiting = beside
                .iter()
                .filter(|one| plan.files[one.file as usize].get().is_none());
            jobs.extend(waiting.map(job));
        }
    }
    jobs.sort_unstable_by_key(|job| job.file);
    let mut tasks = Vec::new();
    let mut files: Vec<u32> = databases.keys().copied().collect();
    files.sort_unstable();
    for file in files {
        let (Some(owner), Some(aside)) = (by_file.remove(&file), databases.get(&file)) else {
            continue;
        };
        let start = jobs.len();
        jobs.push(owner);
        for companion in plan.companions.get(&file).into_iter().flatten() {
            let state = &mut plan.files[companion.file as usize];
            if matches!(state.get(), None | Some(FileState::Left)) {
                state.take();
                jobs.push(job(companion));
            }
        }
        tasks.push(DatabaseTask {
            jobs: start..jobs.len(),
            aside: aside.clone(),
        });
    }
    plan.jobs = jobs;
    tasks
}

/// The directories of captured databases look as they do now.
pub(super) fn refresh(
    scan: &mut Scan,
    plan: &SavePlan,
    tasks: &[DatabaseTask],
    root: &crate::fs::root_dir::RootDir,
) {
    let mut listings: Vec<u32> = tasks
        .iter()
        .map(|task| plan.jobs[task.jobs.start].spot.listing)
        .collect();
    listings.sort_unstable();
    listings.dedup();
    for listing in listings {
        scan.refresh(listing, root);
    }
}
