//! What the guides tell people to type is typed here.

use crate::session::{STASIS, Session};
use std::process::Command;

const PROFILES: &str = include_str!("../../../../docs/guides/profile.md");
const PROJECTS: &str = include_str!("../../../../docs/guides/project.md");
const WORKSPACES: &str = include_str!("../../../../docs/guides/workspace.md");
const FLAGS: &str = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --password-store=basic";

/// The commands after each mark, in order.
pub(crate) fn commands(guide: &str) -> Vec<&str> {
    let blocks = guide.split("<!-- executed -->\n```console\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("\n```"));
    let lines = blocks.flat_map(|(block, _)| block.lines());
    lines.filter_map(|line| line.strip_prefix("$ ")).collect()
}

#[test]
fn every_command_of_the_profile_guide_works_as_it_is_written() {
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    let found = Command::new("chromium").arg("--version").output().is_ok();
    assert!(
        found || !needed,
        "chromium is not installed: run scripts/parts"
    );
    if !found {
        println!("skipped: chromium is not installed");
        return;
    }
    follow(PROFILES);
}

#[test]
fn every_command_of_the_project_guide_works_as_it_is_written() {
    follow(PROJECTS);
}

#[test]
fn every_command_of_the_workspace_guide_works_as_it_is_written() {
    follow(WORKSPACES);
}

/// Types what a guide says, in a home of its own.
fn follow(guide: &str) {
    let session = Session::new();
    let bin = session.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(STASIS, bin.join("stasis")).unwrap();
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let all = commands(guide);
    assert!(all.len() > 12, "{all:?}");

    for line in all {
        let mut shell = Command::new("sh");
        let plain = session.command(&[]);
        shell.env_clear();
        shell.envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        shell
            .env("PATH", &path)
            .env("HOME", session.home())
            .env("CHROMIUM_FLAGS", FLAGS);
        let said = shell
            .args(["-c", line])
            .current_dir(session.home())
            .output()
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr),
        );
        assert!(said.status.success(), "$ {line}\n{out}\n{err}");
    }
}
