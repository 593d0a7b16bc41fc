//! A browser identity outlives its browser: which profile a newer Chrome begins with, and whether it lost anything.
//!
//! A lineage belongs to one major. A load for a major that has no snapshot of its own takes the snapshot of the newest
//! older one; the browser migrates it, and what comes of it is published under the new major. *Always true:* a snapshot
//! goes to newer majors only, because an older Chrome silently drops what it does not know; the older lineage is only
//! read; and a profile that has fewer cookies or fewer origins after its migration is never published by itself.

use crate::chrome::CookieLife;
pub use crate::format::manifest::Ancestor;
use crate::id::ChromeMajor;
use crate::policy::tenant::OnMajorUpgrade;
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a caller says about carrying a profile to a newer major.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UpgradeWish {
    /// As the tenant's policy says, when there is no snapshot of the major itself.
    #[default]
    ByPolicy,
    /// Never.
    Stay,
    /// From this major, also when there is a snapshot of the major itself.
    From(ChromeMajor),
}

/// Where a load gets its profile from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeSource {
    /// From the lineage itself.
    Own,
    /// From nowhere: no Chrome has a snapshot of this profile.
    Nothing,
    /// From the lineage of an older major.
    Carry(ChromeMajor),
    /// There are snapshots of other majors only, and none of them is used.
    Refused(UpgradeRefusal),
}

/// Why a snapshot of another major is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeRefusal {
    /// The tenant's policy says so.
    Policy,
    /// The caller says so.
    Wish,
    /// Only newer ones have a snapshot.
    OnlyNewer,
    /// The major that was named is not an older one.
    NotOlder(ChromeMajor),
    /// The major that was named has no snapshot.
    NotThere(ChromeMajor),
}

impl fmt::Display for UpgradeRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => out.write_str("the tenant's policy on_major_upgrade is `refuse`"),
            Self::Wish => out.write_str("--no-upgrade was given"),
            Self::OnlyNewer => out.write_str("a profile goes to newer majors only"),
            Self::NotOlder(major) => write!(out, "Chrome {major} is not older"),
            Self::NotThere(major) => write!(out, "there is no snapshot of Chrome {major}"),
        }
    }
}

/// Decides where a load for `wanted` gets its profile from; `others` are the other majors that have an active snapshot.
pub fn source(
    wanted: ChromeMajor,
    has_own: bool,
    others: &[ChromeMajor],
    wish: UpgradeWish,
    policy: OnMajorUpgrade,
) -> UpgradeSource {
    if let UpgradeWish::From(from) = wish {
        return match policy {
            _ if from >= wanted => UpgradeSource::Refused(UpgradeRefusal::NotOlder(from)),
            _ if !others.contains(&from) => UpgradeSource::Refused(UpgradeRefusal::NotThere(from)),
            OnMajorUpgrade::Refuse => UpgradeSource::Refused(UpgradeRefusal::Policy),
            OnMajorUpgrade::Carry => UpgradeSource::Carry(from),
        };
    }
    if has_own {
        return UpgradeSource::Own;
    }
    let older = others.iter().copied().filter(|major| *major < wanted).max();
    match (older, wish, policy) {
        (None, _, _) if others.is_empty() => UpgradeSource::Nothing,
        (None, _, _) => UpgradeSource::Refused(UpgradeRefusal::OnlyNewer),
        (Some(_), UpgradeWish::Stay, _) => UpgradeSource::Refused(UpgradeRefusal::Wish),
        (Some(_), _, OnMajorUpgrade::Refuse) => UpgradeSource::Refused(UpgradeRefusal::Policy),
        (Some(older), _, OnMajorUpgrade::Carry) => UpgradeSource::Carry(older),
    }
}

/// What a profile is known by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProfileContents {
    /// Cookies by site and name, with how long they last.
    pub cookies: BTreeMap<(String, String), CookieLife>,
    /// Origins that keep something.
    pub origins: BTreeSet<String>,
}

/// How much a profile is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ProfileCounts {
    /// Cookies that outlive the browser and have not expired.
    pub cookies: u64,
    /// Origins that keep something.
    pub origins: u64,
}

impl fmt::Display for ProfileCounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} cookies, {} origins", self.cookies, self.origins)
    }
}

impl ProfileContents {
    /// Counts what must still be there at `now`: every Chrome drops what expired, and cookies of a session.
    pub fn count(&self, now: Timestamp) -> ProfileCounts {
        let lasting = self.cookies.values().filter(|life| life.outlives(now));
        ProfileCounts {
            cookies: lasting.count() as u64,
            origins: self.origins.len() as u64,
        }
    }

    /// The sites and origins of which `after` lacks something, each once.
    pub fn missing_in(&self, after: &Self, now: Timestamp) -> BTreeSet<String> {
        let gone = |(cookie, life): (&(String, String), &CookieLife)| {
            let is_gone = life.outlives(now) && !after.cookies.contains_key(cookie);
            is_gone.then(|| cookie.0.clone())
        };
        let sites = self.cookies.iter().filter_map(gone);
        sites
            .chain(self.origins.difference(&after.origins).cloned())
            .collect()
    }
}

/// Whether a migration lost something.
pub fn has_lost(before: ProfileCounts, after: ProfileCounts) -> bool {
    after.cookies < before.cookies || after.origins < before.origins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn major(number: u32) -> ChromeMajor {
        ChromeMajor::try_from(number).unwrap()
    }

    fn chosen(
        has_own: bool,
        others: &[u32],
        wish: UpgradeWish,
        policy: OnMajorUpgrade,
    ) -> UpgradeSource {
        let others: Vec<ChromeMajor> = others.iter().map(|number| major(*number)).collect();
        source(major(157), has_own, &others, wish, policy)
    }

    #[test]
    fn the_newest_older_major_is_carried_and_a_newer_one_never() {
        use OnMajorUpgrade::Carry;
        let by_policy =
            |has_own, others: &[u32]| chosen(has_own, others, UpgradeWish::ByPolicy, Carry);

        assert_eq!(by_policy(false, &[]), UpgradeSource::Nothing);
        assert_eq!(
            by_policy(false, &[131, 156, 158]),
            UpgradeSource::Carry(major(156))
        );
        assert_eq!(by_policy(true, &[156]), UpgradeSource::Own);
        let only_newer = UpgradeSource::Refused(UpgradeRefusal::OnlyNewer);
        assert_eq!(by_policy(false, &[158]), only_newer);
    }

    #[test]
    fn a_policy_and_a_wish_keep_a_profile_where_it_is() {
        use OnMajorUpgrade::{Carry, Refuse};
        let stay = chosen(false, &[156], UpgradeWish::Stay, Carry);
        let refused = chosen(false, &[156], UpgradeWish::ByPolicy, Refuse);

        assert_eq!(stay, UpgradeSource::Refused(UpgradeRefusal::Wish));
        assert_eq!(refused, UpgradeSource::Refused(UpgradeRefusal::Policy));
        assert_eq!(
            chosen(false, &[], UpgradeWish::Stay, Refuse),
            UpgradeSource::Nothing
        );
        assert_eq!(
            chosen(true, &[156], UpgradeWish::Stay, Refuse),
            UpgradeSource::Own
        );
    }

    #[test]
    fn a_major_that_is_named_is_carried_over_an_own_snapshot_if_it_is_older_and_there() {
        use OnMajorUpgrade::{Carry, Refuse};
        let from =
            |number, policy| chosen(true, &[140, 156], UpgradeWish::From(major(number)), policy);

        assert_eq!(from(140, Carry), UpgradeSource::Carry(major(140)));
        assert_eq!(
            from(140, Refuse),
            UpgradeSource::Refused(UpgradeRefusal::Policy)
        );
        assert_eq!(
            from(150, Carry),
            UpgradeSource::Refused(UpgradeRefusal::NotThere(major(150)))
        );
        for not_older in [157, 158] {
            let refused = UpgradeRefusal::NotOlder(major(not_older));
            assert_eq!(from(not_older, Carry), UpgradeSource::Refused(refused));
        }
    }

    #[test]
    fn what_expires_by_itself_is_no_loss_and_everything_else_is() {
        let now = Timestamp::from_millis(1000);
        let known = |cookies: &[(&str, CookieLife)], origins: &[&str]| ProfileContents {
            cookies: cookies
                .iter()
                .map(|(name, life)| ((".a.example".to_owned(), (*name).to_owned()), *life))
                .collect(),
            origins: origins.iter().map(ToString::to_string).collect(),
        };
        let until = |millis| CookieLife::Until(Timestamp::from_millis(millis));
        let before = known(
            &[
                ("sid", until(2000)),
                ("old", until(999)),
                ("tab", CookieLife::Session),
                ("odd", CookieLife::Unknown),
            ],
            &["https://a.example"],
        );
        let whole = known(
            &[("sid", until(2000)), ("odd", CookieLife::Unknown)],
            &["https://a.example"],
        );
        let fewer = known(&[("sid", until(2000))], &["https://a.example"]);
        let elsewhere = known(&[("sid", until(2000)), ("new", until(2000))], &[]);

        let lost = |after: &ProfileContents| has_lost(before.count(now), after.count(now));
        assert_eq!(
            before.count(now),
            ProfileCounts {
                cookies: 2,
                origins: 1
            }
        );
        assert!(!lost(&whole));
        assert!(lost(&fewer), "a cookie");
        assert!(lost(&elsewhere), "an origin");
        assert_eq!(before.missing_in(&whole, now), BTreeSet::new());
        let sites: Vec<String> = before.missing_in(&elsewhere, now).into_iter().collect();
        assert_eq!(sites, [".a.example", "https://a.example"]);
    }
}
