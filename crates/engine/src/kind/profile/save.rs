//! Saves the profile in a directory: stops its browser, captures, publishes.
//!
//! lease → hold (close the browser) → capture → publish → record → release
//!
//! *Always true:* the base is what was loaded into the directory, never simply what is active: a directory that nobody
//! loaded has no base, and what is saved from it does not supersede a snapshot.

use super::capture::{BrowserState, Capture, ProfileSaved};
use super::directory::{self, facts, looks_like_a_profile, users};
use super::record::Record;
use super::session::{SessionClaim, SubjectSession};
use super::subject::ShaPrefix;
use crate::bridge;
use crate::error::{Error, ErrorKind, ProfileError, error_chain};
use crate::handle::Profiles;
use crate::lease::LeaseWait;
use crate::warning::Warning;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::Fence;
use stasis_model::format::manifest::{EndingRecord, Mode};
use stasis_model::id::{ChromeMajor, Lineage, ProfileRef};
use stasis_model::upgrade::Ancestor;
use stasis_quiesce::browser::{self, BrowserExit, BrowserStopped, StopSettings};
use stasis_quiesce::programs;
use stasis_store::documents::profiles::LineageSnapshots;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What to do with a browser that runs on the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnBrowser {
    /// Touch nothing, and say who it is.
    Refuse,
    /// Close it, whoever it is.
    Stop,
    /// Close it, if it is this process.
    StopPid(u32),
}

/// Which profile is saved, and how.
#[derive(Clone, Debug)]
pub struct ProfileSave {
    /// Of what; without a major the profile says it.
    pub subject: ProfileRef,
    /// The major as the caller knows it.
    pub chrome_major: Option<ChromeMajor>,
    /// What is captured; `base` is filled in from [`ProfileSave::base`] or the record.
    pub capture: Capture,
    /// The snapshot that the directory derives from, by its first digits, when the caller knows better than the record.
    pub base: Option<ShaPrefix>,
    /// Whether the browser is closed first, or goes on.
    pub mode: Mode,
    /// What to do with a browser that runs.
    pub browser: OnBrowser,
    /// How long closing it may take in all.
    pub close_timeout: Duration,
    /// Whether a directory that does not look like a browser's is saved all the same.
    pub force: bool,
    /// How long to wait for another holder; not at all when not given.
    pub wait: Option<LeaseWait>,
    /// A lease that is ours already; otherwise one is acquired, and given back.
    pub token: Option<Fence>,
}

/// What a directory derives from.
#[derive(Default)]
struct Derived {
    base: Option<ArchiveDigest>,
    upgraded_from: Option<Ancestor>,
    held_back: bool,
}

impl Derived {
    /// As the record of the directory says; one of another lineage says nothing.
    fn of(record: &Record, lineage: &Lineage) -> Self {
        let Record { upgraded_from, .. } = *record;
        if record.subject == *lineage {
            return Self {
                base: record.sha256,
                upgraded_from,
                held_back: record.held_back,
            };
        }
        // It was to be carried to a newer Chrome, which never started: it still is what the older one wrote.
        let older = upgraded_from.filter(|from| {
            let older = Lineage {
                major: from.chrome_major,
                ..record.subject.clone()
            };
            older == *lineage
        });
        Self {
            base: older.map(|from| from.sha256),
            ..Self::default()
        }
    }
}

impl Profiles<'_> {
    /// Saves the profile in a directory.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %save.subject, dir = %save.capture.dir.display()))]
    pub async fn save(self, mut save: ProfileSave) -> Result<ProfileSaved, Error> {
        self.recover().await;
        let dir = save.capture.dir.clone();
        let asked = save.subject.major.or(save.chrome_major);
        let major = major_of(&dir, asked, &save.subject).await?;
        if !save.force && !looks_like_a_profile(&dir).await {
            return Err(ProfileError::NotAProfile(dir).into());
        }
        let lineage = save.subject.lineage(major);
        let mut policy = None;
        if save.mode == Mode::Hot {
            let hot = self.tenants().policy(&lineage.tenant).await?;
            if !hot.allow_hot {
                return Err(ProfileError::HotNotAllowed(lineage).into());
            }
            policy = Some(hot);
        }
        let derived = self.derived_from(&save, &lineage).await?;
        save.capture.base = derived.base;
        save.capture.upgraded_from = derived.upgraded_from;
        save.capture.held_back = derived.held_back;
        refuse_strangers(&dir, save.browser, save.mode).await?;
        self.store().ensure_trusted().await?;
        let policy = match policy {
            Some(policy) => policy,
            None => self.tenants().policy(&lineage.tenant).await?,
        };
        let holder = &save.capture.holder;
        let claim = SessionClaim {
            holder,
            wait: save.wait.as_ref(),
            token: save.token,
        };
        let session = self.begin_session(&lineage, policy, claim);
        let session = session.await?;
        let result = self.save_owned(&mut save, &session).await;
        let (mut saved, is_released) = self.end_session(&session, result).await?;
        self.note_save(&dir, &mut saved).await;
        saved.warnings.extend(session.warnings);
        if !is_released {
            saved.warnings.push(Warning::LeaseNotReleased);
        }
        Ok(saved)
    }

    /// Gives the lease back; says what became of the work under it, and whether nobody has to wait for the lease.
    ///
    /// Nothing was written for a directory that is what the active snapshot is, so nothing proved yet that the lease was
    /// ours to the end. Giving it back does; where that failed, the pointer is asked.
    async fn end_session(
        self,
        session: &SubjectSession,
        result: Result<ProfileSaved, Error>,
    ) -> Result<(ProfileSaved, bool), Error> {
        if !session.ends_with_its_lease() {
            return Ok((result?, true));
        }
        let released = self.leases().release_lease(&session.lease).await;
        let saved = result?;
        let Err(error) = released else {
            return Ok((saved, true));
        };
        if saved.is_unchanged {
            if error.kind() == ErrorKind::Fenced {
                return Err(error);
            }
            let pointer = self.session_pointer_now(session).await?;
            let fence = pointer.as_ref().map(|pointer| pointer.fence);
            if fence != Some(session.lease.fence) {
                return Err(error);
            }
        }
        Ok((saved, false))
    }

    async fn save_owned(
        self,
        save: &mut ProfileSave,
        session: &SubjectSession,
    ) -> Result<ProfileSaved, Error> {
        let lease = &session.lease;
        let cancel = save.capture.cancel.clone();
        let work = async {
            match save.mode {
                Mode::Cold => {
                    let dir = save.capture.dir.clone();
                    save.capture.browser = match save.browser {
                        OnBrowser::Refuse => not_running(&dir),
                        OnBrowser::Stop | OnBrowser::StopPid(_) => {
                            self.precheck(&save.capture, session).await?;
                            close(&dir, save.close_timeout).await?
                        }
                    };
                    self.capture(&save.capture, session).await
                }
                Mode::Hot => self.capture_hot(&save.capture, session).await,
            }
        };
        let mut work = Box::pin(work);
        tokio::select! {
            biased;
            saved = &mut work => saved,
            lost = self.leases().keep_alive(lease, session.renew_every()) => {
                // What was sent may have been applied: the work itself says how it ended.
                cancel.store(true, Ordering::Relaxed);
                work.await.map_err(|error| lost_or(error, &lease.lineage, lost.detail()))
            }
        }
    }

    /// Everything that can be refused is refused before a browser is closed for it.
    async fn precheck(&self, capture: &Capture, session: &SubjectSession) -> Result<(), Error> {
        let limit = session.policy.max_profile_bytes;
        self.session_key(session).await?;
        let (capture, major) = (capture.clone(), session.lineage().major);
        let capture = Capture {
            progress: Arc::default(),
            ..capture
        };
        bridge::blocking(move || super::capture::look(&capture, limit, major)).await?;
        Ok(())
    }

    /// Writes down what the directory is now; the snapshot counts whether that succeeds or not.
    pub(super) async fn note_save(self, dir: &Path, saved: &mut ProfileSaved) {
        if !saved.outcome.is_published() {
            return;
        }
        let record = Record::new(
            saved.subject.clone(),
            self.location.to_string(),
            Some(saved.sha256),
            &saved.outcome.to_string(),
            self.clock.now(),
        );
        if let Err(error) = record.write(dir).await {
            let reason = error_chain(&error);
            saved.warnings.push(Warning::RecordNotWritten { reason });
        }
    }

    /// What the directory derives from: what the caller says, else what was loaded into it.
    async fn derived_from(self, save: &ProfileSave, lineage: &Lineage) -> Result<Derived, Error> {
        let Some(base) = &save.base else {
            let record = Record::of(&save.capture.dir).await;
            let ours = record.filter(|record| record.store == self.location.to_string());
            return Ok(ours.map_or_else(Derived::default, |record| Derived::of(&record, lineage)));
        };
        let all = LineageSnapshots::of(&*self.bucket, lineage).all().await?;
        let digests = all.snapshots.iter().map(|snapshot| snapshot.active.archive);
        let mut fitting = digests.filter(|digest| base.fits(*digest));
        match (fitting.next(), fitting.next()) {
            (Some(digest), None) if base.is_telling() => Ok(Derived {
                base: Some(digest),
                ..Derived::default()
            }),
            _ => Err(ProfileError::NoSuchBase {
                base: base.to_string(),
                lineage: lineage.clone(),
            }
            .into()),
        }
    }
}

/// A failure after the lease was lost is the loss, unless nobody knows what was applied.
pub(super) fn lost_or(error: Error, lineage: &Lineage, detail: &str) -> Error {
    if error.kind() == ErrorKind::Unknown {
        return error;
    }
    let (lineage, detail) = (lineage.clone(), detail.to_owned());
    ProfileError::LeaseLost { lineage, detail }.into()
}

/// The major of a browser, which is asked for it.
pub async fn browser_major(program: &Path) -> Result<ChromeMajor, Error> {
    let version = browser::version(program).await;
    let number = version.map_err(ProfileError::Version)?;
    ChromeMajor::try_from(number).or(Err(ProfileError::NoCommand.into()))
}

/// The major of the browser that a command is going to start: of the command itself if that is called like one, else of
/// the first browser that is installed. Nothing else is asked, and nothing is run when there is none.
pub async fn browser_major_for(
    command: &[OsString],
    search_path: &OsStr,
) -> Result<ChromeMajor, Error> {
    let program = command.first().map(Path::new);
    if let Some(program) = program.filter(|program| browser::is_browser_name(program)) {
        return browser_major(program).await;
    }
    browser_major(&installed_browser(None, search_path)?).await
}

/// Where the browser is that somebody named, else the first one that is installed.
pub fn installed_browser(named: Option<&Path>, search_path: &OsStr) -> Result<PathBuf, Error> {
    let installed = match named.map(|named| (named, named.to_str())) {
        None => programs::located(&browser::NAMES, search_path),
        Some((_, Some(name))) if !name.contains('/') => programs::located(&[name], search_path),
        Some((path, _)) => std::path::absolute(path).ok().filter(|path| path.is_file()),
    };
    installed.ok_or_else(|| ProfileError::NoBrowser.into())
}

/// The major that the profile says, if nobody contradicts it.
pub(super) async fn major_of(
    dir: &Path,
    asked: Option<ChromeMajor>,
    subject: &ProfileRef,
) -> Result<ChromeMajor, Error> {
    let path = dir.to_owned();
    let facts = bridge::blocking(move || facts(&directory::open(&path)?, &path)).await?;
    match (asked, facts.version) {
        (Some(asked), Some((found, _))) if asked != found => Err(ProfileError::OtherMajor {
            dir: dir.to_owned(),
            asked,
            found,
        }
        .into()),
        (Some(asked), _) => Ok(asked),
        (None, Some((found, _))) => Ok(found),
        (None, None) => Err(ProfileError::NoMajor(subject.clone()).into()),
    }
}

/// A browser that we were not told about is left alone, and with it the directory.
async fn refuse_strangers(dir: &Path, browser: OnBrowser, mode: Mode) -> Result<(), Error> {
    let users = users(dir).await?;
    let Some(first) = users.first() else {
        return Ok(());
    };
    let pid = first.process.pid();
    let is_known = match browser {
        OnBrowser::Refuse => mode == Mode::Hot,
        OnBrowser::Stop => true,
        OnBrowser::StopPid(pid) => users.iter().any(|user| user.process.pid() == pid),
    };
    if is_known {
        return Ok(());
    }
    let dir = dir.to_owned();
    Err(ProfileError::InUse { dir, pid }.into())
}

/// Closes the browser of a directory, if one runs; says how it went.
pub(super) async fn close(dir: &Path, close_timeout: Duration) -> Result<BrowserState, Error> {
    let uptime = users(dir).await?.first().map(|user| user.process.uptime());
    let stopped = browser::stop(
        dir,
        None,
        StopSettings {
            timeout: close_timeout,
        },
    )
    .await;
    let failed = |source| ProfileError::Stop {
        dir: dir.to_owned(),
        source,
    };
    Ok(ended(&stopped.map_err(failed)?, uptime.unwrap_or_default()))
}

/// What a manifest says when no browser was there to be closed.
fn not_running(dir: &Path) -> BrowserState {
    BrowserState {
        clean_exit: browser::has_stale_lock(dir).then_some(false),
        ending: Some(EndingRecord {
            how: "not_running".to_owned(),
            waited_ms: 0,
        }),
        ..BrowserState::default()
    }
}

fn ended(stopped: &BrowserStopped, uptime: Duration) -> BrowserState {
    let how = match stopped.how {
        BrowserExit::NotRunning => "not_running",
        BrowserExit::Closed => "closed",
        BrowserExit::Interrupted => "interrupted",
        BrowserExit::Terminated => "terminated",
        BrowserExit::Killed => "killed",
    };
    let was_running = stopped.how != BrowserExit::NotRunning;
    BrowserState {
        mode: Mode::Cold,
        clean_exit: was_running.then(|| stopped.is_clean()),
        ending: Some(EndingRecord {
            how: how.to_owned(),
            waited_ms: super::millis(stopped.took),
        }),
        uptime_s: uptime.as_secs(),
        ..BrowserState::default()
    }
}
