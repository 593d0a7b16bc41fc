//! A real Chromium: found, flushed, frozen, stopped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "a test writes its own files")]
#![expect(clippy::print_stdout, reason = "what was skipped or measured is told")]

#[path = "chromium/browser.rs"]
mod browser;
#[path = "chromium/flushing.rs"]
mod flushing;
#[path = "chromium/freezing.rs"]
mod freezing;
#[path = "chromium/stopping.rs"]
mod stopping;
