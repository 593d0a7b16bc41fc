//! The log of one run: always digested, kept as text only when somebody wants to read it.

use std::fmt::{self, Write};

/// The event log of a run.
#[derive(Debug)]
pub(crate) struct Diary {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Diary {
    pub(crate) fn new(kept: bool) -> Self {
        Self {
            hash: 0xCBF2_9CE4_8422_2325,
            lines: kept.then(Vec::new),
        }
    }

    pub(crate) fn note(&mut self, at: u64, what: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            let (seconds, millis) = (at / 1000, at % 1000);
            lines.push(format!("{seconds:>6}.{millis:03}  {what}"));
        }
        let mut digest = Fnv(self.hash);
        writeln!(digest, "{at} {what}").expect("a digest takes everything");
        self.hash = digest.0;
    }

    /// A digest of everything noted: equal for equal runs.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        Ok(())
    }
}
