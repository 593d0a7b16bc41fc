//! What can be chosen.

use std::time::Duration;

/// Who hears of what happens in directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hearer {
    /// inotify for as many directories as it may watch, and fanotify for the others where that is permitted.
    #[default]
    Auto,
    /// inotify alone: one watch per directory; what it cannot watch is read again and again.
    Inotify,
    /// fanotify alone: one mark for the whole filesystem, every event of which wakes us. An error where it is not permitted.
    Fanotify,
}

/// How a tree is monitored.
#[derive(Clone, Debug)]
pub struct MonitorSettings {
    /// How long signs are gathered before anything is told.
    pub window: Duration,
    /// Gitignore-style patterns of what is neither told nor watched.
    pub ignore: Vec<String>,
    /// Who hears of what happens.
    pub hearer: Hearer,
    /// How many directories inotify may watch; the kernel has a limit of its own, about a kilobyte of its memory each.
    pub most_watches: usize,
    /// How often directories that cannot be watched are read again; costs a look at every entry in them.
    pub rescan_every: Duration,
    /// How many entries are believed in; about 100 bytes each. More is an error.
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
            hearer: Hearer::Auto,
            most_watches: usize::MAX,
            rescan_every: Duration::from_secs(5),
            most_entries: 4_000_000,
        }
    }
}
