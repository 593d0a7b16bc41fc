//! What a tenant allows, which snapshots stay, what looks like a loss.

pub mod loss;
pub mod retention;
pub mod shrink;
pub mod tenant;
