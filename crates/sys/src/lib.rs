//! What only this operating system has, in words that would make sense on another one.
//!
//! *Always true:* nothing above this crate names `/proc`, or a call, a flag or a clock that Linux alone has; a house test
//! (`only_sys_knows_the_operating_system`) reads the sources. So a port writes this crate once more, and nothing else. What rustix offers
//! on every Unix (`renameat_with`, extended attributes, `fallocate`, holes, signals of groups) needs no word here and is called where it is
//! needed.
//!
//! The callers keep the rules: what is looked for, what is done where something is not offered, what a user is told. Here is only how
//! this system is asked.

pub mod access_list;
#[expect(
    unsafe_code,
    reason = "the calls that rustix does not wrap; every block has a SAFETY line"
)]
pub mod background;
pub mod clock;
pub mod confine;
pub mod descriptor;
#[expect(
    unsafe_code,
    reason = "the calls that rustix does not wrap; every block has a SAFETY line"
)]
pub mod extents;
pub mod host;
pub mod listing;
pub mod mounts;
pub mod node;
pub mod open;
pub mod process_handle;
pub mod processes;
#[expect(
    unsafe_code,
    reason = "the calls that rustix does not wrap; every block has a SAFETY line"
)]
pub mod record_lock;
pub mod share;
pub mod sockets;
pub mod stat;
#[expect(
    unsafe_code,
    reason = "the calls that rustix does not wrap; every block has a SAFETY line"
)]
pub mod subvolume;
pub mod sync;
pub mod unnamed;
pub mod watch;
