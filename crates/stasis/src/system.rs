//! What is asked of the system besides what the engine asks.

pub(crate) use stasis_engine::system::{SystemClock, SystemRng};

/// The most memory this process ever had resident, if the kernel tells.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
