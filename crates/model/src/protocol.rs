//! How documents change: pure rules that hear an answer and say the next step.

pub mod gc;
pub mod operation;
pub mod publish;
pub mod settle;
pub mod step;
