//! Trees: reading, writing, cloning, comparing, and taking the place of one another.

pub mod clone;
pub mod compare;
pub(crate) mod content;
pub(crate) mod database_set;
pub mod ownership;
pub mod restore;
pub mod staging_view;
pub mod stat_cache;
pub mod stated;
pub mod survey;
pub mod walk;
pub mod write;
