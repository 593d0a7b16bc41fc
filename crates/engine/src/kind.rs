//! The kinds of subject: what only each of them knows.

pub mod profile;
pub mod project;
pub mod workspace;
