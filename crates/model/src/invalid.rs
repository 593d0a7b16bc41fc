//! One error for a value that is not what it should be.
//!
//! A name, a path, a list, a document's fields: whoever reads one wants to know what is wrong with it, in a sentence, and does the
//! same whatever it is. A value whose refusals lead to different steps has an enum of its own, such as
//! [`BadDocument`](crate::format::document::BadDocument).
//!
//! ```
//! use stasis_model::id::TenantId;
//!
//! let refused = "a/b".parse::<TenantId>().unwrap_err();
//! assert!(refused.to_string().starts_with("the tenant contains `/` at position 1"));
//! ```

use crate::failure::error_chain;
use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// Why a value cannot be used: a sentence that names the value, and what is wrong with a part of it.
///
/// Two are equal when they, and all their causes, say the same.
#[derive(Clone, Debug)]
pub struct Invalid {
    message: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Invalid {
    /// A value of which `message` says what is wrong.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// The same, with what is wrong with a part of it.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

impl Display for Invalid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// By hand: derived, the source would be the `Arc`, which is an error itself, and nobody could tell what is in it.
impl Error for Invalid {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}

impl PartialEq for Invalid {
    fn eq(&self, other: &Self) -> bool {
        error_chain(self) == error_chain(other)
    }
}

impl Eq for Invalid {}

/// Says of what a part of a value was refused for what is wrong with the whole.
pub trait InvalidPart<T> {
    /// Turns the refusal of a part into that of the whole, of which `message` speaks.
    fn invalid(self, message: impl Into<Cow<'static, str>>) -> Result<T, Invalid>;
}

impl<T, E: Error + Send + Sync + 'static> InvalidPart<T> for Result<T, E> {
    fn invalid(self, message: impl Into<Cow<'static, str>>) -> Result<T, Invalid> {
        self.map_err(|part| Invalid::new(message).because(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn the_cause_is_what_was_given_and_not_what_holds_it() {
        let refused = Err::<(), _>(io::Error::from(io::ErrorKind::UnexpectedEof));
        let invalid = refused.invalid("the bytes end").unwrap_err();

        let cause = invalid.source().unwrap().downcast_ref::<io::Error>();

        assert_eq!(cause.unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_causes_belong_to_what_is_said() {
        let part = || Err::<(), _>(Invalid::new("the port is not a number"));
        let whole = part().invalid("the address cannot be read").unwrap_err();

        assert_eq!(whole.to_string(), "the address cannot be read");
        assert_eq!(
            error_chain(&whole),
            "the address cannot be read: the port is not a number"
        );
        assert_ne!(whole, Invalid::new("the address cannot be read"));
        assert_eq!(
            whole,
            part().invalid("the address cannot be read").unwrap_err()
        );
    }
}
