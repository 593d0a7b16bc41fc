//! Restores: into nothing, instead of a tree, and into a live one; killed, refused and attacked at every step.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

mod child;
mod faults;
mod filesystems;
mod hostile;
mod in_place;
mod placement;
mod put_back;
mod support;
mod unprivileged;
mod writers;
