//! Calendar periods: the newest snapshot that somebody asked for, else the newest at all, of each of the last hours, days, weeks, months and years.
//!
//! Periods are those of the calendar in UTC, and a week begins on Monday. Only periods that have a snapshot count, so that a pause of a
//! month does not use up thirty days. Nothing here asks what time it is now.

use crate::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A kind of calendar period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CalendarPeriod {
    /// From a full hour to the next.
    Hourly,
    /// From midnight to midnight.
    Daily,
    /// From Monday to Sunday.
    Weekly,
    /// From the first of a month.
    Monthly,
    /// From the first of January.
    Yearly,
}

impl CalendarPeriod {
    /// All of them, the shortest first.
    pub const ALL: [Self; 5] = [
        Self::Hourly,
        Self::Daily,
        Self::Weekly,
        Self::Monthly,
        Self::Yearly,
    ];

    /// The number of the period that a moment lies in; a later period has a larger one.
    fn number(self, at: Timestamp) -> u64 {
        const HOUR: u64 = 3_600_000;
        let hours = at.millis() / HOUR;
        let days = hours / 24;
        let (year, month, _) = at.date();
        match self {
            Self::Hourly => hours,
            Self::Daily => days,
            // The first of January 1970 was a Thursday, three days after a Monday.
            Self::Weekly => (days + 3) / 7,
            Self::Monthly => year * 12 + u64::from(month),
            Self::Yearly => year,
        }
    }
}

impl fmt::Display for CalendarPeriod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        })
    }
}

/// Of how many periods of each kind the newest snapshot is kept; 0 asks for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepPeriods {
    /// Hours.
    pub hourly: u64,
    /// Days.
    pub daily: u64,
    /// Weeks.
    pub weekly: u64,
    /// Months.
    pub monthly: u64,
    /// Years.
    pub yearly: u64,
}

impl KeepPeriods {
    /// Of how many periods of this kind.
    pub fn of(&self, period: CalendarPeriod) -> u64 {
        match period {
            CalendarPeriod::Hourly => self.hourly,
            CalendarPeriod::Daily => self.daily,
            CalendarPeriod::Weekly => self.weekly,
            CalendarPeriod::Monthly => self.monthly,
            CalendarPeriod::Yearly => self.yearly,
        }
    }

    /// The same, with other numbers for some kinds.
    #[must_use = "periods are values"]
    pub fn with(mut self, numbers: &BTreeMap<CalendarPeriod, u64>) -> Self {
        for (period, number) in numbers {
            let of = match period {
                CalendarPeriod::Hourly => &mut self.hourly,
                CalendarPeriod::Daily => &mut self.daily,
                CalendarPeriod::Weekly => &mut self.weekly,
                CalendarPeriod::Monthly => &mut self.monthly,
                CalendarPeriod::Yearly => &mut self.yearly,
            };
            *of = *number;
        }
        self
    }

    /// Whether any is asked for.
    pub fn is_any(&self) -> bool {
        CalendarPeriod::ALL
            .iter()
            .any(|period| self.of(*period) > 0)
    }

    /// The moments that are kept because of one kind of period, by their places; they are given the newest first, each with whether somebody
    /// asked for it. What made itself stands for a period only where nothing else does.
    pub(super) fn kept(
        &self,
        period: CalendarPeriod,
        newest_first: &[(Timestamp, bool)],
    ) -> Vec<usize> {
        let number = |place: usize| period.number(newest_first[place].0);
        let mut kept = Vec::new();
        let mut begin = 0;
        for _ in 0..self.of(period) {
            if begin == newest_first.len() {
                break;
            }
            let rest = begin..newest_first.len();
            let same = rest.take_while(|place| number(*place) == number(begin));
            let same: Vec<usize> = same.collect();
            let asked_for = same.iter().find(|place| newest_first[**place].1);
            kept.push(*asked_for.unwrap_or(&begin));
            begin += same.len();
        }
        kept
    }
}
