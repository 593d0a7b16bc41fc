//! This host: its clock, its randomness, and what its environment variables say. The only place where any of them is asked.

use crate::open::{AwsSettings, LocalDirs, Secret};
use chrono::{DateTime, Datelike, Local, NaiveDate, TimeZone as _, Timelike, Utc};
use stasis_model::digest::StoreDigest;
use stasis_model::id::{OpId, ProjectId};
use stasis_model::rng::Rng;
use stasis_model::snapshot_ref::TypedAt;
use stasis_model::time::{Clock, Timestamp};
use stasis_model::time_ref::{WallTime, Zone};
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel's clocks.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this file is where time comes from"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn uptime(&self) -> Duration {
        stasis_sys::clock::uptime()
    }
}

/// The clocks and calendars of this host's users: `TZ`, else `/etc/localtime`.
#[derive(Debug)]
pub struct LocalZone;

impl Zone for LocalZone {
    fn wall_time(&self, at: Timestamp) -> WallTime {
        let millis = i64::try_from(at.millis()).unwrap_or(i64::MAX);
        let at = DateTime::from_timestamp_millis(millis).unwrap_or(DateTime::<Utc>::MAX_UTC);
        let at = at.with_timezone(&Local);
        let small = |number: u32| u8::try_from(number).unwrap_or_default();
        WallTime {
            date: (
                u16::try_from(at.year()).unwrap_or(u16::MAX),
                small(at.month()),
                small(at.day()),
            ),
            time: (small(at.hour()), small(at.minute()), small(at.second())),
        }
    }

    fn moment(&self, wall: WallTime) -> Option<Timestamp> {
        let ((year, month, day), (hour, minute, second)) = (wall.date, wall.time);
        let date = NaiveDate::from_ymd_opt(year.into(), month.into(), day.into())?;
        let at = date.and_hms_opt(hour.into(), minute.into(), second.into())?;
        let at = Local.from_local_datetime(&at).earliest()?;
        Some(Timestamp::from_millis(
            u64::try_from(at.timestamp_millis()).ok()?,
        ))
    }
}

/// Now and here, for what a user types.
pub(crate) fn typed_at(clock: &dyn Clock) -> TypedAt<'static> {
    TypedAt {
        now: clock.now(),
        zone: &LocalZone,
    }
}

/// The kernel's randomness.
#[derive(Debug)]
pub struct SystemRng;

impl SystemRng {
    fn bytes<const N: usize>() -> [u8; N] {
        let mut bytes = [0; N];
        #[expect(
            clippy::disallowed_methods,
            reason = "this file is where randomness comes from"
        )]
        getrandom::fill(&mut bytes).expect("the kernel gives randomness");
        bytes
    }
}

impl Rng for SystemRng {
    fn op_id(&self) -> OpId {
        OpId::from_random(Self::bytes())
    }

    fn below(&self, bound: u64) -> u64 {
        u64::from_le_bytes(Self::bytes())
            .checked_rem(bound)
            .unwrap_or_default()
    }
}

/// The home directory of whoever runs this process.
pub fn home() -> Option<PathBuf> {
    directory("HOME")
}

/// The directory of ours beneath one of the XDG base directories, which stands in the home unless a variable says otherwise.
pub fn base_directory(variable: &str, in_home: &str) -> Option<PathBuf> {
    let base = directory(variable).or_else(|| Some(home()?.join(in_home)));
    Some(base?.join("stasis"))
}

/// Where this host keeps what it can lose: `$XDG_CACHE_HOME/stasis` and `$XDG_STATE_HOME/stasis`.
pub fn local_dirs() -> LocalDirs {
    LocalDirs {
        cache: base_directory("XDG_CACHE_HOME", ".cache"),
        state: base_directory("XDG_STATE_HOME", ".local/state"),
    }
}

/// What the usual variables say of an S3 store.
pub fn aws() -> AwsSettings {
    let file = |variable: &str, in_home: &str| {
        let named = env::var_os(variable).map(PathBuf::from);
        named.or_else(|| Some(home()?.join(in_home)))
    };
    AwsSettings {
        access_key: variable("AWS_ACCESS_KEY_ID"),
        secret_key: variable("AWS_SECRET_ACCESS_KEY").map(Secret::new),
        session_token: variable("AWS_SESSION_TOKEN").map(Secret::new),
        region: variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")),
        endpoint: variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")),
        profile: variable("AWS_PROFILE"),
        credentials_file: file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        config_file: file("AWS_CONFIG_FILE", ".aws/config"),
    }
}

/// A variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A directory variable; relative ones are ignored, as the XDG specification asks.
pub fn directory(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// How much of a directory's name is kept in an id.
const LONGEST_NAME: usize = 48;

/// The name of a directory without what cannot be in an id, and short enough for one.
pub(crate) fn name_for_id(dir: &Path) -> String {
    let name = dir.file_name().map(std::ffi::OsStr::to_string_lossy);
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name: String = name.unwrap_or_default().chars().filter(fits).collect();
    match name.trim_start_matches(['-', '_']) {
        "" => "directory".to_owned(),
        name => name.chars().take(LONGEST_NAME).collect(),
    }
}

/// The id of a directory on this host: its name, and what tells it from all others of that name.
pub(crate) fn directory_id(dir: &Path) -> ProjectId {
    let name = name_for_id(dir);
    let identity = [
        stasis_sys::host::machine().as_bytes(),
        b"\0",
        dir.as_os_str().as_encoded_bytes(),
    ]
    .concat();
    let digest = StoreDigest::of(&identity).prefix();
    format!("{name}-{digest}")
        .parse()
        .expect("letters, digits and a digest are a name")
}
