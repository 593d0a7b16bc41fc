//! What is asked of the system besides what the engine asks.

pub(crate) use stasis_engine::system::{SystemClock, SystemRng};
pub(crate) use stasis_sys::host::peak_memory;
