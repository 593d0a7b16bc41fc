//! One error for what nobody branches on.
//!
//! A caller that decides by *which* error it met gets an enum. Everybody else passes it on until a person reads it or a surface
//! turns it into an exit code; for them all failures have the same five parts: what the caller must do (`kind`), what we were
//! doing (`op`) to what (`target`), what to do now (`hint`), and why it failed (`source`).
//!
//! ```
//! use stasis_model::failure::{AtPath, ErrorKind};
//! use std::io;
//!
//! let read: io::Result<()> = Err(io::ErrorKind::PermissionDenied.into());
//! let failure = read.at("read", "notes.md").unwrap_err();
//!
//! assert_eq!(failure.to_string(), "could not read `notes.md`");
//! assert_eq!(failure.kind(), ErrorKind::Denied);
//! ```

use serde::Serialize;
use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::Path;

/// What the caller must do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again, a little later.
    Retry,
    /// Ask about the operation later; do not clean up.
    Unknown,
    /// Wait for the holder, or force it out.
    Conflict,
    /// Stop: the lease is not ours any more.
    Fenced,
    /// Decide which of two snapshots counts.
    Diverged,
    /// Name something that exists.
    NotFound,
    /// Look at the network or the store.
    Unreachable,
    /// Look at credentials and permissions.
    Denied,
    /// Correct the request or the configuration.
    Invalid,
    /// Make room, or change the policy.
    Limit,
    /// Look at the damage; nothing was overwritten.
    Corrupt,
    /// Look at the program of yours that failed.
    Failed,
    /// Nothing: the user asked us to stop, and nothing is left of the attempt.
    Cancelled,
    /// Report it to us.
    Bug,
}

/// An error that knows what its caller must do.
pub trait Kinded: Error {
    /// What the caller must do.
    fn kind(&self) -> ErrorKind;
}

impl Kinded for io::Error {
    fn kind(&self) -> ErrorKind {
        // Bytes of a store are read as if they were a file's; then the failure of the store is inside.
        let inner = self.get_ref().and_then(|inner| inner.downcast_ref());
        if let Some(failure) = inner {
            return Failure::kind(failure);
        }
        match io::Error::kind(self) {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Denied
            }
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::NotADirectory => ErrorKind::Invalid,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Limit,
            _ => ErrorKind::Unreachable,
        }
    }
}

/// What was being done to a directory that the user named.
pub const OPEN_DIRECTORY: &str = "open the directory";

/// An operation that failed, for whoever reports it.
///
/// `Display` says what was being done to what; why is the source, and is printed by whoever prints the chain. A directory
/// that is not there is said in one line without a source: everybody knows why it could not be opened. A failure
/// [`of`](Self::of) another error says what that one says.
pub struct Failure(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    /// `None` where the source has the sentence.
    act: Option<Act>,
    hint: Option<Cow<'static, str>>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What was being done, to what.
struct Act {
    op: Cow<'static, str>,
    target: String,
}

impl Failure {
    /// A failure to do `op`, a verb with what belongs to it ("make a copy of"), to `target`.
    pub fn new(kind: ErrorKind, op: impl Into<Cow<'static, str>>, target: impl Display) -> Self {
        Self(Box::new(Parts {
            kind,
            act: Some(Act {
                op: op.into(),
                target: target.to_string(),
            }),
            hint: None,
            source: None,
        }))
    }

    /// A failure because of what the system said, which tells the kind.
    pub fn from_io(
        error: impl Into<io::Error>,
        op: impl Into<Cow<'static, str>>,
        target: impl Display,
    ) -> Self {
        let error = error.into();
        Self::new(Kinded::kind(&error), op, target).because(error)
    }

    /// A failure that says what `error` says, be it an error or a sentence: for what has words of its own.
    pub fn of(kind: ErrorKind, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Box::new(Parts {
            kind,
            act: None,
            hint: None,
            source: Some(error.into()),
        }))
    }

    /// The same, with what the user can do now: one line, a command where there is one.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same, with why it failed. A failure [`of`](Self::of) an error has its reason already.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done: a verb with what belongs to it; nothing where another error has the words.
    pub fn op(&self) -> &str {
        self.0.act.as_ref().map_or("", |act| &act.op)
    }

    /// To what it was being done.
    pub fn target(&self) -> &str {
        self.0.act.as_ref().map_or("", |act| &act.target)
    }

    /// The error of this type that it is of, or that is why.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        self.0.source.as_ref()?.downcast_ref()
    }

    fn is_missing_directory(&self) -> bool {
        self.0.kind == ErrorKind::NotFound && self.op() == OPEN_DIRECTORY
    }

    /// What the user can do now.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The same, taken out, for whoever says it of something else.
    pub fn into_io_source(self) -> Option<io::Error> {
        let source = self.0.source?;
        source.downcast().ok().map(|source| *source)
    }

    /// What the system said, where the system is why.
    pub fn io_source(&self) -> Option<&io::Error> {
        self.0.source.as_ref()?.downcast_ref()
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.0.act, &self.0.source) {
            (Some(act), _) if self.is_missing_directory() => {
                write!(f, "{}: no such directory", act.target)
            }
            (Some(act), _) => write!(f, "could not {} `{}`", act.op, act.target),
            (None, Some(source)) => source.fmt(f),
            (None, None) => f.write_str("it failed"),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("kind", &self.0.kind)
            .field("op", &self.op())
            .field("target", &self.target())
            .field("hint", &self.0.hint)
            .field("source", &self.0.source)
            .finish()
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.0.source.as_ref()?;
        match self.0.act {
            Some(_) => (!self.is_missing_directory()).then_some(source.as_ref()),
            None => source.source(),
        }
    }
}

impl Kinded for Failure {
    fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

/// Says of what the system refused what it was, and to which path.
pub trait AtPath<T> {
    /// Turns an error of the system into "could not `op` `path`".
    fn at(self, op: impl Into<Cow<'static, str>>, path: impl AsRef<Path>) -> Result<T, Failure>;

    /// The same for what is no path of this host: an entry of a tree, which shows its name escaped.
    fn on(self, op: impl Into<Cow<'static, str>>, target: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> AtPath<T> for Result<T, E> {
    fn at(self, op: impl Into<Cow<'static, str>>, path: impl AsRef<Path>) -> Result<T, Failure> {
        self.on(op, path.as_ref().display())
    }

    fn on(self, op: impl Into<Cow<'static, str>>, target: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::from_io(error, op, target))
    }
}

/// Says of any error that has a kind what was being done, to what.
pub trait Context<T> {
    /// Turns an error into "could not `op` `target`", of the same kind.
    fn context(self, op: impl Into<Cow<'static, str>>, target: impl Display) -> Result<T, Failure>;
}

impl<T, E: Kinded + Send + Sync + 'static> Context<T> for Result<T, E> {
    fn context(self, op: impl Into<Cow<'static, str>>, target: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(error.kind(), op, target).because(error))
    }
}

/// An error with all its causes, in one line.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> io::Error {
        io::ErrorKind::PermissionDenied.into()
    }

    #[test]
    fn a_failure_says_what_was_done_to_what_and_its_source_why() {
        let failure = Err::<(), _>(denied()).at("open", "/a/b").unwrap_err();

        assert_eq!(
            error_chain(&failure),
            "could not open `/a/b`: permission denied"
        );
        assert_eq!((failure.op(), failure.target()), ("open", "/a/b"));
        assert_eq!(
            failure.io_source().unwrap().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_said_in_one_line() {
        let opened =
            |kind: io::ErrorKind| Err::<(), _>(io::Error::from(kind)).at(OPEN_DIRECTORY, "/nope");
        let missing = opened(io::ErrorKind::NotFound).unwrap_err();
        let closed = opened(io::ErrorKind::PermissionDenied).unwrap_err();

        assert_eq!(error_chain(&missing), "/nope: no such directory");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(missing.io_source().unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(
            error_chain(&closed),
            "could not open the directory `/nope`: permission denied"
        );
    }

    #[test]
    fn the_kind_goes_up_with_the_context() {
        let failure = Err::<(), _>(denied()).at("open", "lock").unwrap_err();
        let outer = Err::<(), _>(failure).context("save", "notes").unwrap_err();

        assert_eq!(outer.kind(), ErrorKind::Denied);
        let chain = error_chain(&outer);
        assert_eq!(
            chain,
            "could not save `notes`: could not open `lock`: permission denied"
        );
    }

    #[test]
    fn a_failure_of_another_error_says_what_that_one_says() {
        let inner = Err::<(), _>(denied()).at("open", "/a/b").unwrap_err();
        let said = error_chain(&inner);
        let outer = Failure::of(ErrorKind::Conflict, inner).with_hint("wait");

        assert_eq!(error_chain(&outer), said);
        assert_eq!(outer.kind(), ErrorKind::Conflict);
        assert_eq!(outer.cause::<Failure>().unwrap().op(), "open");
        let sentence = Failure::of(ErrorKind::Limit, "there are too many");
        assert_eq!(error_chain(&sentence), "there are too many");
    }

    #[test]
    fn a_failure_inside_an_error_of_the_system_keeps_its_kind() {
        let inner = Failure::new(ErrorKind::Limit, "write", "bucket");
        let failure = Err::<(), _>(io::Error::other(inner))
            .at("copy", "x")
            .unwrap_err();

        assert_eq!(failure.kind(), ErrorKind::Limit);
    }

    #[test]
    fn a_failure_is_as_small_as_a_pointer() {
        assert_eq!(size_of::<Failure>(), size_of::<usize>());
    }
}
