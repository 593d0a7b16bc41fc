//! Archives on a real filesystem: what comes out is what went in, whoever reads or writes it; what is forged is refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees and archives that they look at"
)]

mod calls;
mod damage;
mod differential;
mod encrypted;
mod forge;
mod fuzz;
mod golden;
mod hostile;
mod own;
mod raw;
mod reading;
mod seed;
mod tree;
