//! A moment as a user types it after an `@`: how long ago, a time of today, or a day with or without a time.
//!
//! What a clock on the wall shows is a moment only in a [`Zone`]; the caller knows which.

use crate::invalid::Invalid;
use crate::time::Timestamp;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a calendar and a clock on the wall show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WallTime {
    /// Year, month and day.
    pub date: (u16, u8, u8),
    /// Hour, minute and second.
    pub time: (u8, u8, u8),
}

/// Where somebody's clocks and calendars hang.
pub trait Zone: fmt::Debug + Send + Sync {
    /// What they show at a moment.
    fn wall_time(&self, at: Timestamp) -> WallTime;

    /// When they show that; the earlier moment where they show it twice, and none on a day that does not exist.
    fn moment(&self, wall: WallTime) -> Option<Timestamp>;
}

/// A moment, as a user names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimeRef {
    /// `-2h`: so long before now.
    Ago(Duration),
    /// `10:30`: the last time that the clock showed it.
    TimeOfDay(u8, u8, u8),
    /// `2026-11-15`: the whole day, so its end.
    Day(u16, u8, u8),
    /// `2026-11-15T10:30`
    Wall(WallTime),
    /// `2026-11-15T10:30Z`
    Utc(WallTime),
}

/// What is written behind a number.
const UNITS: [(char, u64); 5] = [
    ('s', 1),
    ('m', 60),
    ('h', 3_600),
    ('d', 86_400),
    ('w', 604_800),
];
const DAY: Duration = Duration::from_hours(24);
const LAST_SECOND: (u8, u8, u8) = (23, 59, 59);

impl TimeRef {
    /// Which moment that is, for somebody who types it `now`, there. What names a minute means all of it.
    pub fn moment(&self, now: Timestamp, zone: &dyn Zone) -> Option<Timestamp> {
        let at = match *self {
            Self::Ago(duration) => return Some(now.minus(duration)),
            Self::TimeOfDay(hour, minute, second) => {
                let time = (hour, minute, second);
                let shown = |at: Timestamp| {
                    let date = zone.wall_time(at).date;
                    zone.moment(WallTime { date, time })
                };
                let today = shown(now).filter(|at| *at <= now);
                today.or_else(|| shown(now.minus(DAY)))?
            }
            Self::Day(year, month, day) => zone.moment(WallTime {
                date: (year, month, day),
                time: LAST_SECOND,
            })?,
            Self::Wall(wall) => zone.moment(wall)?,
            Self::Utc(wall) => Utc.moment(wall)?,
        };
        // To the end of the second that was named.
        Some(at.plus(Duration::from_millis(999)))
    }
}

impl FromStr for TimeRef {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let read = read(text);
        read.ok_or_else(|| {
            Invalid::new(format!(
                "`@{text}` is no time: try @-2h, @10:30, @2026-11-15 or @2026-11-15T10:30"
            ))
        })
    }
}

fn read(text: &str) -> Option<TimeRef> {
    if let Some(ago) = text.strip_prefix('-') {
        return ago_of(ago).map(TimeRef::Ago);
    }
    if let Some((hour, minute, second)) = time_of(text) {
        return Some(TimeRef::TimeOfDay(hour, minute, second));
    }
    if let Some((year, month, day)) = date_of(text) {
        return Some(TimeRef::Day(year, month, day));
    }
    let (date, time) = text.split_once(['T', ' '])?;
    let (time, is_utc) = match time.strip_suffix('Z') {
        Some(time) => (time, true),
        None => (time, false),
    };
    let wall = WallTime {
        date: date_of(date)?,
        time: time_of(time.split('.').next()?)?,
    };
    Some(if is_utc {
        TimeRef::Utc(wall)
    } else {
        TimeRef::Wall(wall)
    })
}

/// `2h`, `1h30m`.
fn ago_of(text: &str) -> Option<Duration> {
    let (mut all, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(end);
        let unit = unit.chars().next()?;
        let (_, seconds) = UNITS.iter().find(|(letter, _)| *letter == unit)?;
        all = all.checked_add(number.parse::<u64>().ok()?.checked_mul(*seconds)?)?;
        rest = &rest[end + unit.len_utf8()..];
    }
    (!text.is_empty()).then(|| Duration::from_secs(all))
}

/// `10:30`, `10:30:15`.
fn time_of(text: &str) -> Option<(u8, u8, u8)> {
    let mut parts = text.split(':').map(two_digits);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = match parts.next() {
        Some(second) => second?,
        // All of that minute.
        None => 59,
    };
    let is_time = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    is_time.then_some((hour, minute, second))
}

/// `2026-11-15`.
fn date_of(text: &str) -> Option<(u16, u8, u8)> {
    let mut parts = text.split('-');
    let year = parts.next().filter(|year| year.len() == 4)?;
    let year = year
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(year)?;
    let (month, day) = (two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && parts.next().is_none();
    is_date.then_some((year.parse().ok()?, month, day))
}

fn two_digits(text: &str) -> Option<u8> {
    let is_number = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Greenwich, without a summer.
#[derive(Clone, Copy, Debug)]
pub struct Utc;

impl Zone for Utc {
    fn wall_time(&self, at: Timestamp) -> WallTime {
        let (year, month, day) = at.date();
        let seconds = at.millis() / 1000;
        let part = |of: u64| u8::try_from(of % 60).unwrap_or_default();
        WallTime {
            date: (u16::try_from(year).unwrap_or(u16::MAX), month, day),
            time: (
                u8::try_from(seconds / 3600 % 24).unwrap_or_default(),
                part(seconds / 60),
                part(seconds),
            ),
        }
    }

    fn moment(&self, wall: WallTime) -> Option<Timestamp> {
        let (year, month, day) = wall.date;
        let (hour, minute, second) = wall.time;
        let midnight = Timestamp::of_date(year.into(), month, day)?;
        let seconds = u64::from(hour) * 3600 + u64::from(minute) * 60 + u64::from(second);
        Some(midnight.plus(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hours ahead of Greenwich.
    #[derive(Debug)]
    struct Cairo;

    const AHEAD: Duration = Duration::from_hours(2);

    impl Zone for Cairo {
        fn wall_time(&self, at: Timestamp) -> WallTime {
            Utc.wall_time(at.plus(AHEAD))
        }

        fn moment(&self, wall: WallTime) -> Option<Timestamp> {
            Some(Utc.moment(wall)?.minus(AHEAD))
        }
    }

    fn moment(text: &str) -> Option<String> {
        // 2026-11-15T01:33:45Z, which is 03:33:45 in Cairo.
        let now = Timestamp::from_millis(1_794_706_425_000);
        let read: TimeRef = text.parse().ok()?;
        Some(read.moment(now, &Cairo)?.to_string())
    }

    #[test]
    fn what_people_type_is_a_moment_on_their_clock() {
        for (text, wanted) in [
            ("-2h", "2026-11-14T23:33:45.000Z"),
            ("-1h30m", "2026-11-15T00:03:45.000Z"),
            ("-1w", "2026-11-08T01:33:45.000Z"),
            ("-0s", "2026-11-15T01:33:45.000Z"),
            ("03:30", "2026-11-15T01:30:59.999Z"),
            ("03:30:10", "2026-11-15T01:30:10.999Z"),
            // Not yet today.
            ("10:30", "2026-11-14T08:30:59.999Z"),
            ("2026-11-14", "2026-11-14T21:59:59.999Z"),
            ("2026-11-14T10:30", "2026-11-14T08:30:59.999Z"),
            ("2026-11-14 10:30:00", "2026-11-14T08:30:00.999Z"),
            ("2026-11-14T10:30:00.123Z", "2026-11-14T10:30:00.999Z"),
            ("2000-02-29T00:00Z", "2000-02-29T00:00:59.999Z"),
        ] {
            assert_eq!(moment(text).as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "-",
            "2h",
            "-2",
            "-2x",
            "-h",
            "25:00",
            "10:60",
            "1:30",
            "10:30:",
            "10:30:61",
            "2026-13-01",
            "2026-02-30",
            "26-11-15",
            "2026-11-15T",
            "yesterday",
            "+026-11-15",
            "-99999999999999999999h",
            "10:30Z:1",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
