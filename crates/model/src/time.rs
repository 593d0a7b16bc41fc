//! Time as an argument. Clocks decide how long to wait, never who is right.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

/// Where time comes from; the simulator's can be skewed and jump.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall clock: may be wrong, may jump.
    fn now(&self) -> Timestamp;

    /// Time since boot, counting time asleep: only differences mean anything.
    fn uptime(&self) -> Duration;
}

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// As results have it: the text for people, and the milliseconds for programs.
    pub fn spelled(self) -> (String, u64) {
        (self.to_string(), self.0)
    }

    /// This moment and `duration` later; stops at the end of time instead of wrapping.
    #[must_use = "timestamps are values"]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(duration)))
    }

    /// This moment and `duration` earlier; stops at the epoch instead of wrapping.
    #[must_use = "timestamps are values"]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(whole_millis(duration)))
    }

    /// How much later this is than `earlier`; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// How long ago it was, for people: `3 min ago`.
    pub fn age(self, now: Self) -> String {
        let seconds = now.since(self).as_secs();
        match seconds {
            0..60 => format!("{seconds} s ago"),
            60..3600 => format!("{} min ago", seconds / 60),
            3600..172_800 => format!("{} h ago", seconds / 3600),
            _ => format!("{} days ago", seconds / 86_400),
        }
    }

    /// To the second and without punctuation, `20261115T012345Z`: fits in a file name, and sorts as text until the year 9999.
    pub fn stamp(self) -> String {
        let seconds = self.0 / 1000;
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let day = self.day().replace('-', "");
        format!("{day}T{hour:02}{minute:02}{second:02}Z")
    }

    /// The UTC day, `2026-11-15`: sorts as text until the year 9999.
    pub fn day(self) -> String {
        let (year, month, day) = self.date();
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// Year, month and day in UTC.
    pub fn date(self) -> (u64, u8, u8) {
        let (year, month, day) = civil(self.0 / DAY);
        let small = |number| u8::try_from(number).unwrap_or_default();
        (year, small(month), small(day))
    }

    /// Midnight of a day in UTC, if there was such a day since the epoch.
    pub fn of_date(year: u64, month: u8, day: u8) -> Option<Self> {
        // Days since the epoch grow with the date: the one that is looked for is found between two that are too early and too late.
        let (mut from, mut until) = (0, 366 * year.checked_sub(1970)? + 366);
        let wanted = (year, month, day);
        while from < until {
            let middle = from.midpoint(until);
            let at = Self(middle * DAY);
            match at.date().cmp(&wanted) {
                Ordering::Equal => return Some(at),
                Ordering::Less => from = middle + 1,
                Ordering::Greater => until = middle,
            }
        }
        None
    }
}

/// The milliseconds of a day.
const DAY: u64 = 86_400_000;

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year and 400 years are one cycle.
    let days = days + 719_468;
    let (cycle, of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle =
        (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (
        cycle * 400 + year_of_cycle + u64::from(month <= 2),
        month,
        day,
    )
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(
            out,
            "{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z",
            self.day()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339() {
        let written = |millis| Timestamp::from_millis(millis).to_string();

        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_782_400_001), "2000-02-29T00:00:00.001Z");
        assert_eq!(written(1_794_706_425_000), "2026-11-15T01:33:45.000Z");
        assert_eq!(written(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(written(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_stamp_fits_in_a_file_name() {
        let stamp = Timestamp::from_millis(1_794_706_425_999).stamp();

        assert_eq!(stamp, "20261115T013345Z");
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        let hour = Duration::from_hours(1);

        assert_eq!(
            Timestamp::from_millis(5).minus(hour),
            Timestamp::from_millis(0)
        );
        assert_eq!(
            Timestamp::from_millis(u64::MAX).plus(hour).millis(),
            u64::MAX
        );
        assert_eq!(
            Timestamp::from_millis(5).since(Timestamp::from_millis(9)),
            Duration::ZERO
        );
    }
}
