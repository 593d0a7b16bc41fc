//! A browser identity as users name it: with or without a Chrome major.

use super::{ChromeMajor, Lineage, ProfileId, TenantId, shown};
use crate::invalid::Invalid;
use std::fmt;
use std::str::FromStr;

/// How a profile is told from a path.
pub const PROFILE_PREFIX: &str = "profile:";

/// `<tenant>/<profile>[@<chrome-major>]`: one lineage, or all of one profile.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileRef {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which browser identity.
    pub profile: ProfileId,
    /// Of which Chrome; `None` when the subject is all of them, or the one there is.
    pub major: Option<ChromeMajor>,
}

impl ProfileRef {
    /// The lineage of one major.
    pub fn lineage(&self, major: ChromeMajor) -> Lineage {
        Lineage {
            tenant: self.tenant.clone(),
            profile: self.profile.clone(),
            major,
        }
    }
}

impl From<Lineage> for ProfileRef {
    fn from(lineage: Lineage) -> Self {
        Self {
            tenant: lineage.tenant,
            profile: lineage.profile,
            major: Some(lineage.major),
        }
    }
}

impl fmt::Display for ProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.profile)?;
        match self.major {
            Some(major) => write!(f, "@{major}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProfileRef({self})")
    }
}

impl FromStr for ProfileRef {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || {
            let found = shown(text);
            Invalid::new(format!(
                "`{found}` is not of the form <tenant>/<profile>[@<chrome-major>]"
            ))
        };
        // As every other command writes it; `stasis profile` knows what it is about without that.
        let text = text.strip_prefix(PROFILE_PREFIX).unwrap_or(text);
        let (tenant, rest) = text.split_once('/').ok_or_else(bad)?;
        let (profile, major) = match rest.rsplit_once('@') {
            Some((profile, major)) => (profile, Some(major.parse()?)),
            None => (rest, None),
        };
        Ok(Self {
            tenant: tenant.parse()?,
            profile: profile.parse()?,
            major,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_with_or_without_its_major() {
        let all: ProfileRef = "acme/alice".parse().unwrap();
        let one: ProfileRef = "acme/alice@131".parse().unwrap();

        assert_eq!(all.major, None);
        assert_eq!(one.to_string(), "acme/alice@131");
        assert_eq!("profile:acme/alice@131".parse(), Ok(one.clone()));
        assert_eq!(ProfileRef::from(all.lineage(one.major.unwrap())), one);
        for bad in [
            "acme",
            "acme/",
            "/alice",
            "acme/a/b",
            "acme/alice@",
            "acme/alice@0131",
            "a\0/b",
            "../x/y",
        ] {
            assert!(bad.parse::<ProfileRef>().is_err(), "{bad:?}");
        }
    }
}
