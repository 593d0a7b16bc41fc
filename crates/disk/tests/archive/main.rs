//! Archives on a real filesystem: what comes out is what went in, whoever reads or writes it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees and archives that they look at"
)]

mod differential;
mod seed;
mod tree;
