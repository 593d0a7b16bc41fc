//! Containers of a Docker engine: what of one is captured, why a snapshot was made, what it is called as a subject.

pub mod capture;
pub mod mount;
pub mod restoration;
pub mod status;
pub mod subject;
pub mod trigger;
