//! What is kept: the options of every command that forgets by a policy

use clap::Args;
use stasis_engine::model::policy::retention::CalendarPeriod;
use std::collections::BTreeMap;

/// The newest of calendar periods, in UTC. Only periods that have a snapshot count.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct KeepPeriodArgs {
    /// Keep the newest snapshot of each of the last N hours that have one
    #[arg(long = "keep-hourly", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    hourly: Option<u64>,
    /// Keep the newest snapshot of each of the last N days that have one
    #[arg(long = "keep-daily", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    daily: Option<u64>,
    /// Keep the newest snapshot of each of the last N weeks that have one; a week begins on Monday
    #[arg(long = "keep-weekly", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    weekly: Option<u64>,
    /// Keep the newest snapshot of each of the last N months that have one
    #[arg(long = "keep-monthly", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    monthly: Option<u64>,
    /// Keep the newest snapshot of each of the last N years that have one
    #[arg(long = "keep-yearly", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    yearly: Option<u64>,
}

impl KeepPeriodArgs {
    /// The numbers that were given.
    pub(super) fn given(self) -> BTreeMap<CalendarPeriod, u64> {
        let all = [
            (CalendarPeriod::Hourly, self.hourly),
            (CalendarPeriod::Daily, self.daily),
            (CalendarPeriod::Weekly, self.weekly),
            (CalendarPeriod::Monthly, self.monthly),
            (CalendarPeriod::Yearly, self.yearly),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(period, number)| Some((period, number?)))
            .collect()
    }
}
