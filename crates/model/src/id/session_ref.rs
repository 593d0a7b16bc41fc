//! A session as users name it.

use super::{SessionId, TenantId, shown};
use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a session is told from a path.
pub const SESSION_PREFIX: &str = "session:";

/// `<tenant>/<session>`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct SessionRef {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
}

impl fmt::Display for SessionRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.tenant, self.session)
    }
}

impl fmt::Debug for SessionRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SessionRef({self})")
    }
}

impl FromStr for SessionRef {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // As every other command writes it; `stasis session` knows what it is about without that.
        let text = text.strip_prefix(SESSION_PREFIX).unwrap_or(text);
        let Some((tenant, session)) = text.split_once('/') else {
            let found = shown(text);
            return Err(Invalid::new(format!(
                "`{found}` is not of the form <tenant>/<session>"
            )));
        };
        Ok(Self {
            tenant: tenant.parse()?,
            session: session.parse()?,
        })
    }
}

impl TryFrom<String> for SessionRef {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<SessionRef> for String {
    fn from(session: SessionRef) -> Self {
        session.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_with_its_tenant() {
        let session: SessionRef = "acme/42".parse().unwrap();

        assert_eq!(session.to_string(), "acme/42");
        assert_eq!("session:acme/42".parse(), Ok(session));
        for bad in ["acme", "acme/", "/42", "acme/4/2", "acme/.."] {
            assert!(bad.parse::<SessionRef>().is_err(), "{bad}");
        }
    }
}
