//! A Chromium that works in a user data directory: who uses the directory, stop it, make it write what it holds back.
//!
//! *Always true:* no process is signalled or spoken to that does not work in exactly this directory: directories are compared
//! by device and inode, processes by number and start, and a debugging port is used only if a process of this very
//! browser listens there. A lock or a port file that an earlier run left behind proves nothing.

mod cdp;
mod cookies;
mod endpoint;
mod error;
mod evidence;
#[cfg(test)]
mod fake_browser;
mod flush;
mod pipe;
mod stop;
mod storage;
mod users;
mod version;

pub use error::BrowserError;
pub use flush::{Flushed, flush_cookies};
pub use pipe::{PIPE_FLAG, PipedBrowser};
pub use stop::{BrowserExit, BrowserStopped, StopSettings, stop};
pub use users::{DirectoryUser, ProcessRole, has_stale_lock, is_used, users_of};
pub use version::{NAMES, is_browser_name, version};
