//! A tenant's policy: the numbers that an operator may set per tenant.

use crate::format::document::Document;
use crate::id::{Generation, OpId};
use crate::invalid::{Invalid, InvalidPart};
use crate::policy::retention::{AgeCountBytes, KeepPeriods};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// The longest time that a lease, a renewal's pause or a grace may take: more would block a dead holder's lineage for ever.
pub const LONGEST: Duration = Duration::from_hours(7 * 24);

/// What happens when a profile is loaded in another region than it was captured in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnRegionChange {
    /// Load, and say so.
    #[default]
    Warn,
    /// Do not load.
    Refuse,
}

/// What happens when a profile has no snapshot of the Chrome that is to run, but one of an older major.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnMajorUpgrade {
    /// Load that one, and let the browser migrate it.
    #[default]
    Carry,
    /// Do not.
    Refuse,
}

/// Which snapshots of a profile gc may remove.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProfileRetention {
    /// Whether anything is ever removed.
    pub enabled: bool,
    /// How many of the newest are kept.
    pub keep_newest: u32,
    /// For how many days a rollback protects its target.
    pub keep_rollback_days: u32,
    /// Of how many hours the newest is kept besides; in UTC, as the others.
    pub keep_hourly: u32,
    /// Of how many days.
    pub keep_daily: u32,
    /// Of how many weeks.
    pub keep_weekly: u32,
    /// Of how many months.
    pub keep_monthly: u32,
    /// Of how many years.
    pub keep_yearly: u32,
}

impl ProfileRetention {
    /// The calendar periods of which the newest is kept.
    pub fn periods(&self) -> KeepPeriods {
        KeepPeriods {
            hourly: self.keep_hourly.into(),
            daily: self.keep_daily.into(),
            weekly: self.keep_weekly.into(),
            monthly: self.keep_monthly.into(),
            yearly: self.keep_yearly.into(),
        }
    }
}

impl Default for ProfileRetention {
    fn default() -> Self {
        Self {
            enabled: false,
            keep_newest: 5,
            keep_rollback_days: 30,
            keep_hourly: 0,
            keep_daily: 0,
            keep_weekly: 0,
            keep_monthly: 0,
            keep_yearly: 0,
        }
    }
}

/// Which snapshots of containers stay when a new one was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ContainerRetention {
    /// How many one container may have.
    pub max_per_container: u64,
    /// How many there may be in all.
    pub max_snapshots: u64,
    /// How many bytes there may be in all: of images, and of chunks, each counted once.
    pub max_bytes: u64,
    /// How old one may be.
    pub max_age_s: u64,
}

impl Default for ContainerRetention {
    fn default() -> Self {
        let limits = AgeCountBytes::default();
        Self {
            max_per_container: limits.per_group,
            max_snapshots: limits.in_all,
            max_bytes: limits.max_bytes,
            max_age_s: limits.max_age.as_secs(),
        }
    }
}

impl ContainerRetention {
    /// The same as limits.
    pub fn limits(&self) -> AgeCountBytes {
        AgeCountBytes {
            max_age: Duration::from_secs(self.max_age_s),
            per_group: self.max_per_container,
            in_all: self.max_snapshots,
            max_bytes: self.max_bytes,
        }
    }
}

/// How much a tenant may store; 0 means without limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Quotas {
    /// Bytes in all.
    pub max_bytes: u64,
    /// Snapshots in all, of subjects of every kind.
    pub max_snapshots: u64,
    /// Snapshots of one profile.
    pub max_snapshots_per_profile: u64,
}

/// The document `tenants/<tenant>/policy.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TenantPolicy {
    version: u64,
    /// How long a lease lasts without a renewal.
    pub lease_ttl_s: u64,
    /// How often a holder renews.
    pub renew_s: u64,
    /// How long after its expiry a lock is reaped.
    pub grace_s: u64,
    /// Whether snapshots of a running browser may be taken.
    pub allow_hot: bool,
    /// Whether snapshots of a running browser may be loaded.
    pub accept_hot: bool,
    /// What a change of region means.
    pub on_region_change: OnRegionChange,
    /// What a newer Chrome begins with.
    pub on_major_upgrade: OnMajorUpgrade,
    /// Whether nothing of the tenant may be stored that is not encrypted.
    pub require_encryption: bool,
    /// The largest profile that is captured.
    pub max_profile_bytes: u64,
    /// What gc may remove.
    pub retention: ProfileRetention,
    /// Which snapshots of containers stay.
    pub containers: ContainerRetention,
    /// How much may be stored.
    pub quotas: Quotas,
    /// Counts the writes.
    pub generation: Generation,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            lease_ttl_s: 300,
            renew_s: 60,
            grace_s: 60,
            allow_hot: false,
            accept_hot: true,
            on_region_change: OnRegionChange::Warn,
            on_major_upgrade: OnMajorUpgrade::Carry,
            require_encryption: false,
            max_profile_bytes: 8_000_000_000,
            retention: ProfileRetention::default(),
            containers: ContainerRetention::default(),
            quotas: Quotas::default(),
            generation: Generation::default(),
            op_id: OpId::default(),
            extra: Map::new(),
        }
    }
}

impl Document for TenantPolicy {
    const NAME: &'static str = "policy.json";
}

const OWN: [&str; 3] = ["version", "generation", "op_id"];

impl TenantPolicy {
    /// How long a lease lasts without a renewal.
    pub fn lease_ttl(&self) -> Duration {
        Duration::from_secs(self.lease_ttl_s)
    }

    /// How often a holder renews.
    pub fn renew_every(&self) -> Duration {
        Duration::from_secs(self.renew_s)
    }

    /// How long after its expiry a lock is reaped.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_s)
    }

    /// The same policy with settings changed, all or none; they must fit together only in the end.
    pub fn with_all(&self, settings: &[(String, String)]) -> Result<Self, Invalid> {
        let changed = |policy: Self, (name, value): &(String, String)| policy.with(name, value);
        let next = settings.iter().try_fold(self.clone(), changed)?;
        next.check()?;
        Ok(next)
    }

    /// The same policy with one setting changed; `name` may reach inside with dots, as in `retention.enabled`.
    fn with(&self, name: &str, value: &str) -> Result<Self, Invalid> {
        let mut tree = serde_json::to_value(self).expect("a policy holds only JSON values");
        let unknown = || {
            let known = Self::settings().join(", ");
            Invalid::new(format!(
                "there is no policy setting `{name}`; settings are {known}"
            ))
        };
        if !Self::settings().iter().any(|setting| setting == name) {
            return Err(unknown());
        }
        let slot = tree
            .pointer_mut(&format!("/{}", name.replace('.', "/")))
            .ok_or_else(unknown)?;
        *slot = match slot {
            Value::String(_) => Value::String(value.to_owned()),
            _ => serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned())),
        };
        serde_json::from_value(tree).invalid(format!("`{value}` is not a value for `{name}`"))
    }

    /// The same policy, one write later.
    #[must_use = "the policy is not changed in place"]
    pub fn successor(&self, op_id: OpId) -> Self {
        Self {
            generation: self.generation.next(),
            op_id,
            ..self.clone()
        }
    }

    /// The names of all settings.
    pub fn settings() -> Vec<String> {
        let tree = serde_json::to_value(Self::default()).expect("a policy holds only JSON values");
        let mut names = Vec::new();
        for (name, value) in tree.as_object().into_iter().flatten() {
            match value.as_object() {
                Some(inner) => names.extend(inner.keys().map(|key| format!("{name}.{key}"))),
                None if OWN.contains(&name.as_str()) => {}
                None => names.push(name.clone()),
            }
        }
        names
    }

    /// Whether the numbers fit together.
    pub fn check(&self) -> Result<(), Invalid> {
        if [self.lease_ttl_s, self.renew_s, self.grace_s]
            .iter()
            .any(|seconds| *seconds > LONGEST.as_secs())
        {
            let said = "lease_ttl_s, renew_s and grace_s must be at most 604800, which is 7 days";
            return Err(Invalid::new(said));
        }
        if self.renew_s == 0 || self.lease_ttl_s == 0 {
            return Err(Invalid::new("lease_ttl_s and renew_s must be at least 1"));
        }
        if self.lease_ttl_s < self.renew_s.saturating_mul(2) {
            let said = "lease_ttl_s must be at least twice renew_s, so that one lost renewal does not lose the lease";
            return Err(Invalid::new(said));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[(&str, &str)]) -> Result<TenantPolicy, Invalid> {
        let owned: Vec<(String, String)> = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        TenantPolicy::default().with_all(&owned)
    }

    #[test]
    fn settings_are_changed_by_name_and_must_fit_together_in_the_end() {
        let policy = set(&[
            ("lease_ttl_s", "20"),
            ("renew_s", "10"),
            ("retention.enabled", "true"),
            ("on_region_change", "refuse"),
        ])
        .unwrap();

        assert_eq!(policy.lease_ttl(), Duration::from_secs(20));
        assert!(policy.retention.enabled);
        assert_eq!(policy.on_region_change, OnRegionChange::Refuse);
    }

    #[test]
    fn what_would_break_the_tenant_is_refused() {
        for (name, value) in [
            ("op_id", "x"),
            ("retention", "{}"),
            ("nonsense", "1"),
            ("lease_ttl_s", "-1"),
            ("lease_ttl_s", "90"),
            ("renew_s", "0"),
            ("lease_ttl_s", "18446744073709551615"),
            ("grace_s", "604801"),
            ("on_region_change", "maybe"),
            ("on_major_upgrade", "maybe"),
            ("allow_hot", "1"),
        ] {
            assert!(set(&[(name, value)]).is_err(), "{name}={value}");
        }
    }
}
