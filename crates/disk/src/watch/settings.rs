//! What can be chosen.

use std::time::Duration;

/// How a tree is monitored.
#[derive(Clone, Debug)]
pub struct MonitorSettings {
    /// How long events are gathered before anything is reported.
    pub window: Duration,
    /// Gitignore-style patterns of what is neither reported nor watched.
    pub ignore: Vec<String>,
    /// How many directories inotify may watch; the kernel has a limit of its own, about a kilobyte of its memory each.
    pub most_watches: usize,
    /// How often directories that cannot be watched are read again; costs a look at every entry in them.
    pub rescan_every: Duration,
    /// How many entries are recorded; about 100 bytes each. More is an error.
    pub most_entries: usize,
}

impl Default for MonitorSettings {
    fn default() -> Self {
        let ignore = [
            ".git",
            "node_modules",
            "target",
            "__pycache__",
            ".venv",
            ".cache",
        ];
        Self {
            window: Duration::from_millis(100),
            ignore: ignore.map(str::to_owned).to_vec(),
            most_watches: usize::MAX,
            rescan_every: Duration::from_secs(5),
            most_entries: 4_000_000,
        }
    }
}
