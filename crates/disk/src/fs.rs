//! Files and directories, below trees: doors, names, locks, durable writes.

pub mod atomic_write;
pub mod facilities;
pub(crate) mod fd;
pub mod free_space;
pub mod holes;
pub mod lock_file;
pub mod metadata;
pub mod new_file;
pub mod remove;
pub mod root_dir;
pub(crate) mod staging;
pub(crate) mod stale;

/// What only this operating system has: a crate of its own, because whoever looks at processes asks it too.
pub use stasis_sys as sys;
