//! The kinds of subject: what only each of them knows.

pub mod container;
pub mod directory;
pub mod profile;
pub mod project;
pub mod session;
pub mod workspace;
