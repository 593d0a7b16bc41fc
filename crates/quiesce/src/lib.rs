//! To the live programs: find them, run them, stop them; holding them still moves in with the first kind that needs it.

pub mod group;
pub mod programs;
