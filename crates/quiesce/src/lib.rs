//! To the live programs: find them, run them, hold them still, stop them.

pub mod browser;
pub mod freeze;
pub mod group;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod sqlite;
pub mod watchdog;
