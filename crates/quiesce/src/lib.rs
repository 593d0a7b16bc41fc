//! To the live programs: find them, run them, hold them still, stop them, and copy what their databases hold.

pub mod browser;
pub mod docker;
pub mod freeze;
pub mod group;
pub mod hook;
pub mod invocation;
mod journal;
pub mod pause;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod sandbox;
pub mod service;
pub mod sqlite;
pub mod watchdog;
