//! `stasis`: saves, restores, rewinds and forks what an AI agent's computer holds.
//!
//! This crate translates: words and requests into commands of the engine, results and errors into words and codes. It
//! decides nothing.

mod cli;
mod config;
mod env;
mod http;
mod mcp;
mod mount;
mod profile_settings;
mod report;
mod system;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
