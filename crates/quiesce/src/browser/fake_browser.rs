//! Shells that behave like browsers, for tests.

use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A directory with two user data directories, `ada` and `ada2`, and a `link` to the first.
pub(super) fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in ["ada", "ada2"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    symlink("ada", home.path().join("link")).unwrap();
    home
}

/// A shell that looks like a browser; it is killed with its test.
pub(super) struct FakeBrowser(pub(super) Child);

impl FakeBrowser {
    /// Starts `script`, which must say so when it is ready, in `home` with one more argument.
    pub(super) fn start(home: &TempDir, script: &str, argument: &str) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script, "sh", argument])
            .current_dir(home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut said = [0];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        Self(child)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for FakeBrowser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
