//! Files and directories, below trees: doors, names, locks, durable writes.

pub mod atomic_write;
pub mod facilities;
pub(crate) mod fd;
pub mod free_space;
pub mod holes;
pub mod lock_file;
pub mod metadata;
pub(crate) mod mounts;
pub mod new_file;
pub mod remove;
pub mod root_dir;
pub(crate) mod staging;
pub(crate) mod stale;
#[expect(
    unsafe_code,
    reason = "the calls that rustix does not wrap; every block has a SAFETY line"
)]
pub(crate) mod sys;
