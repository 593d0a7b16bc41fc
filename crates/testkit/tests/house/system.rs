//! What only Linux has is asked for in one crate, so that a port is a matter of that crate (ADR 83).

use super::{root, rust_files};
use std::collections::BTreeSet;
use std::path::Path;

/// The crates that say what they want and not how this system is asked; `sys` is where that is known.
const PORTABLE: [&str; 6] = ["model", "store", "disk", "quiesce", "engine", "stasis"];

/// Paths, calls, flags and clocks that other systems do not have. What rustix offers on macOS too is not among them.
const LINUX: [&str; 44] = [
    "\"/proc",
    "/proc/",
    "\"/sys/",
    "/etc/machine-id",
    "/etc/mtab",
    "cgroup",
    "os::linux",
    "target_os",
    "inotify",
    "fanotify",
    "epoll",
    "eventfd",
    "signalfd",
    "timerfd",
    "pidfd",
    "Pidfd",
    "prctl",
    "parent_process_death",
    "clock_ticks_per_second",
    "Boottime",
    "RealtimeCoarse",
    "renameat2",
    "RENAME_",
    "ResolveFlags",
    "OFlags::PATH",
    "TMPFILE",
    "memfd",
    "Memfd",
    "mknodat",
    "RawDir",
    "statx",
    "Statx",
    "f_type",
    "syncfs",
    "ficlone",
    "FICLONE",
    "FIEMAP",
    "copy_file_range",
    "ioctl",
    "rustix::mount",
    "landlock",
    "seccomp",
    "no_new_privs",
    "set_capabilities",
];

/// A file, a name in it, and why it would be wrong elsewhere.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    (
        "crates/engine/src/doctor.rs",
        "inotify",
        "words for a user: the limit by the name that the system's manual has, and the command that raises it",
    ),
    (
        "crates/engine/src/kind/workspace/watch.rs",
        "inotify",
        "the name of a field in the log, which somebody may search for",
    ),
];

/// The lines that are compiled into the program: no comments, and nothing that only tests have.
fn production(source: &str) -> Vec<(usize, &str)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = Vec::new();
    let mut of_tests: Option<usize> = None;
    for (number, line) in source.lines().enumerate() {
        let text = line.trim();
        match of_tests {
            // An item for tests ends where a line as far in as its beginning ends one.
            Some(at) if indent(line) == at && text.ends_with([';', '}', ',']) => of_tests = None,
            Some(_) => {}
            None if text == "#[cfg(test)]" => of_tests = Some(indent(line)),
            None if text.starts_with("//") => {}
            None => lines.push((number + 1, line)),
        }
    }
    lines
}

/// The names of Linux in a source, with their lines.
fn linux_names(source: &str) -> Vec<(usize, &'static str)> {
    let names = |line: &str| {
        LINUX
            .into_iter()
            .filter(|name| line.contains(name))
            .collect()
    };
    let lines = production(source).into_iter();
    let all = lines.flat_map(|(number, line)| {
        let found: Vec<&'static str> = names(line);
        found.into_iter().map(move |name| (number, name))
    });
    all.collect()
}

fn is_of_tests(file: &Path) -> bool {
    let name = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
    file.iter().any(name)
}

#[test]
fn only_sys_knows_the_operating_system() {
    let (mut refused, mut used) = (Vec::new(), BTreeSet::new());
    for room in PORTABLE {
        let sources = root().join("crates").join(room).join("src");
        for file in rust_files(&sources) {
            let shown = file.strip_prefix(root()).unwrap().display().to_string();
            if is_of_tests(Path::new(&shown)) {
                continue;
            }
            let source = std::fs::read_to_string(&file).unwrap();
            for (number, name) in linux_names(&source) {
                let mut exceptions = EXCEPTIONS.iter();
                match exceptions.find(|(file, word, _)| *file == shown && *word == name) {
                    Some(exception) => _ = used.insert(exception.0),
                    None => refused.push(format!("{shown}:{number}: `{name}`")),
                }
            }
        }
    }

    assert!(
        refused.is_empty(),
        "only Linux has these: put them behind a function in crates/sys, whose name makes sense elsewhere: {refused:#?}"
    );
    assert_eq!(
        used.len(),
        EXCEPTIONS.len(),
        "an exception is not needed any more"
    );
}

#[test]
fn a_name_of_linux_is_found_in_the_program_and_not_in_its_tests() {
    let source = "//! reads /proc/self/fd\n\
        use rustix::fs::RawDir;\n\
        #[cfg(test)]\n\
        use rustix::fs::inotify;\n\
        impl Queue {\n    \
            #[cfg(test)]\n    \
            fn account(\n        \
                &self,\n    \
            ) -> String {\n        \
                read(\"/proc/self/fdinfo\")\n    \
            }\n\
        }\n\
        fn link() -> String {\n    \
            format!(\"/proc/self/fd/{}\", 0) // a comment\n\
        }\n\
        #[cfg(test)]\n\
        mod tests {\n    \
            fn f() { fs::memfd_create(); }\n\
        }\n";

    assert_eq!(
        linux_names(source),
        [(2, "RawDir"), (14, "\"/proc"), (14, "/proc/")]
    );
}
