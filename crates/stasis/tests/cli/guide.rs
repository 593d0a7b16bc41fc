//! What the guides tell people to type is typed here.

use crate::session::{STASIS, Session, real_store};
use stasis_testkit::docker::{Dockerd, IMAGE};
use std::process::Command;

const PROFILES: &str = include_str!("../../../../docs/guides/profile.md");
const PROJECTS: &str = include_str!("../../../../docs/guides/project.md");
const WORKSPACES: &str = include_str!("../../../../docs/guides/workspace.md");
const UNDO_AN_AGENT: &str = include_str!("../../../../docs/guides/undo-an-agent.md");
const RACE: &str = include_str!("../../../../docs/guides/race-three-agents.md");
const MOVE_A_LOGIN: &str = include_str!("../../../../docs/guides/move-a-login.md");
const SESSIONS: &str = include_str!("../../../../docs/guides/sessions.md");
const BACK_UP: &str = include_str!("../../../../docs/guides/back-up-an-app.md");
const DEPLOY: &str = include_str!("../../../../docs/guides/deploy.md");
const CONTAINERS: &str = include_str!("../../../../docs/guides/containers.md");
const GETTING_STARTED: &str = include_str!("../../../../docs/getting-started/README.md");
const README: &str = include_str!("../../../../README.md");
const FLAGS: &str = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --password-store=basic";

/// What stands before the commands of one shell.
const TYPED: &str = "<!-- typed in one shell -->\n```console\n";

/// The commands after each mark, in order.
pub(crate) fn commands(guide: &str) -> Vec<&str> {
    let blocks = guide.split("<!-- executed -->\n```console\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("\n```"));
    let lines = blocks.flat_map(|(block, _)| block.lines());
    lines.filter_map(|line| line.strip_prefix("$ ")).collect()
}

#[test]
fn every_command_of_the_profile_guide_works_as_it_is_written() {
    if has_chromium() {
        follow(PROFILES);
    }
}

#[test]
fn every_command_of_the_project_guide_works_as_it_is_written() {
    follow(PROJECTS);
}

#[test]
fn every_command_of_the_workspace_guide_works_as_it_is_written() {
    follow(WORKSPACES);
}

#[test]
fn an_agent_is_undone_in_the_words_of_the_guide() {
    follow_blocks(UNDO_AN_AGENT, 2);
}

#[test]
fn three_agents_race_in_the_words_of_the_guide() {
    follow_blocks(RACE, 2);
}

#[test]
fn sessions_sleep_and_wake_in_the_words_of_the_guide() {
    follow_blocks(SESSIONS, 2);
}

#[test]
fn an_application_is_backed_up_in_the_words_of_the_guide() {
    follow_blocks(BACK_UP, 2);
}

#[test]
fn a_service_speaks_tls_in_the_words_of_the_guide() {
    let port = free_port().to_string();
    // Whatever fails, the service does not stay.
    let ended = "server=$!; trap 'kill $server 2>/dev/null' EXIT";
    let guide = DEPLOY.replace("7443", &port).replace("server=$!", ended);
    follow_blocks(&guide, 1);
}

#[test]
fn containers_are_saved_in_the_words_of_the_guide() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    daemon.must(&["tag", IMAGE, "busybox"]);
    let desk = Desk::new();
    let docker = format!("export DOCKER_HOST={}", daemon.host());
    for block in blocks(CONTAINERS, TYPED) {
        let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
        let lines = [docker.as_str()].into_iter().chain(lines);
        desk.type_in_one_shell(&lines.map(str::to_owned).collect::<Vec<_>>());
    }
    // The guide removes what it made.
    assert_eq!(daemon.must(&["ps", "-aq"]), "");
    assert_eq!(daemon.must(&["volume", "ls", "-q"]), "");
    assert_eq!(daemon.must(&["images", "-q", "stasis-snapshot"]), "");
}

#[test]
fn a_login_moves_in_the_words_of_the_guide() {
    if has_chromium() {
        follow_blocks(MOVE_A_LOGIN, 2);
    }
}

/// The worked example: a profile goes from one sandbox to another through a bucket.
#[test]
fn a_login_outlives_its_sandbox_in_the_words_of_the_first_page() {
    let Some(store) = real_store("STASIS_TEST_S3").filter(|_| has_chromium()) else {
        return;
    };
    let of_its_own = format!("/getting-started-{}?", std::process::id());
    let desk = Desk::new();
    let store = store.replace("/test?", &of_its_own);
    let before = format!("export STASIS_STORE='{store}'");
    // Whatever fails, the site does not stay.
    let ended = "site=$!; trap 'kill $site 2>/dev/null' EXIT";
    let page = GETTING_STARTED.replace("8017", &free_port().to_string());
    let page = page.replace("site=$!", ended);
    for block in blocks(&page, TYPED) {
        let lines = [before.clone()].into_iter().chain(typed(block));
        desk.type_in_one_shell(&lines.collect::<Vec<_>>());
    }
    assert!(
        !desk.session.home().join("one").exists(),
        "the first sandbox went"
    );
}

/// What the README types, each block in one shell; what it leaves to the reader is done before.
#[test]
fn the_quick_starts_of_the_readme_work_as_they_are_written() {
    let blocks = blocks(README, "```console\n");
    let quick: Vec<&str> = blocks
        .into_iter()
        .filter(|block| block.contains("stasis ") && !block.contains("cargo "))
        .collect();
    assert_eq!(quick.len(), 3, "{quick:?}");
    let desk = Desk::new();
    desk.add_browser();
    desk.prepare("mkdir -p shop/src app && echo one > shop/src/main.rs && echo one > app/file");
    for block in quick {
        if block.contains("chromium") && !has_chromium() {
            continue;
        }
        // A bucket of ours, and an agent that was asked something before somebody rewinds.
        let block = block.replace(
            "'s3://bucket/agents?region=eu-central-1'",
            "\"$HOME/bucket\"",
        );
        let about = r#"{\"hook_event_name\":\"UserPromptSubmit\",\"session_id\":\"s\",\"cwd\":\"$PWD\",\"prompt\":\"tidy\"}"#;
        let prompt = format!("echo \"{about}\" | stasis hook run claude-code; rm -r src");
        // A service answers until somebody ends it.
        let served = "STASIS_LISTEN=127.0.0.1:0 timeout --preserve-status 5 stasis serve";
        let block = block.replace("$ stasis serve ", &format!("$ {served} "));
        let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
        let lines = lines.flat_map(|line| {
            let before = line.starts_with("stasis rewind").then(|| prompt.clone());
            before.into_iter().chain([line.to_owned()])
        });
        desk.type_in_one_shell(&lines.collect::<Vec<_>>());
    }
    let src = desk.session.home().join("shop/src/main.rs");
    assert_eq!(std::fs::read_to_string(src).unwrap(), "one\n");
    // The watch that `protect` started ends because it is asked to.
    desk.prepare("stasis protect --off shop --yes");
}

/// A port that nobody listens at yet.
fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// The lines of a block that are typed, each with what goes on after the shell asked for more.
fn typed(block: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in block.lines() {
        if let Some(line) = line.strip_prefix("$ ") {
            lines.push(line.to_owned());
        } else if let (Some(more), Some(last)) = (line.strip_prefix('>'), lines.last_mut()) {
            last.push('\n');
            last.push_str(more.strip_prefix(' ').unwrap_or(more));
        }
    }
    lines
}

fn has_chromium() -> bool {
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    let found = Command::new("chromium").arg("--version").output().is_ok();
    assert!(
        found || !needed,
        "chromium is not installed: run scripts/parts"
    );
    if !found {
        println!("skipped: chromium is not installed");
    }
    found
}

/// What stands between a mark and the end of its block.
fn blocks<'a>(guide: &'a str, mark: &str) -> Vec<&'a str> {
    let blocks = guide.split(mark).skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("\n```"));
    blocks.map(|(block, _)| block).collect()
}

/// Types the blocks of a guide, each in one shell that begins at home.
fn follow_blocks(guide: &str, wanted: usize) {
    let all = blocks(guide, TYPED);
    assert!(all.len() >= wanted, "{all:?}");
    let desk = Desk::new();
    for block in all {
        let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
        desk.type_in_one_shell(&lines.map(str::to_owned).collect::<Vec<_>>());
    }
}

/// Types what a guide says, each line in a shell that begins at home.
fn follow(guide: &str) {
    let desk = Desk::new();
    let all = commands(guide);
    assert!(all.len() > 12, "{all:?}");
    for line in all {
        desk.type_in_one_shell(&[line.to_owned()]);
    }
}

/// A home of its own, and a shell that finds our program in it.
struct Desk {
    session: Session,
    path: String,
}

impl Desk {
    fn new() -> Self {
        let session = Session::new();
        let bin = session.home().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(STASIS, bin.join("stasis")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", bin.display());
        Self { session, path }
    }

    /// A browser that has no screen here, and ends by itself.
    fn add_browser(&self) {
        let mut find = Command::new("sh");
        let found = find.args(["-c", "command -v chromium"]).output();
        let found = found.unwrap().stdout;
        let found = String::from_utf8(found).unwrap();
        let browser = format!(
            "#!/bin/sh\nexec {} {FLAGS} \"$@\" --dump-dom about:blank\n",
            found.trim()
        );
        let chromium = self.session.home().join("bin/chromium");
        std::fs::write(&chromium, browser).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&chromium, mode).unwrap();
    }

    fn prepare(&self, line: &str) {
        self.type_in_one_shell(&[line.to_owned()]);
    }

    /// Every line must succeed; what one leaves (a directory, a variable) the next one finds.
    fn type_in_one_shell(&self, lines: &[String]) {
        let checked = |line: &String| {
            format!(
                "{line}\ncode=$?; if [ $code != 0 ]; then echo \"exit code $code\"; exit 97; fi\n"
            )
        };
        let script: String = lines.iter().map(checked).collect();
        let mut shell = Command::new("sh");
        let plain = self.session.command(&[]);
        let variables = plain.get_envs();
        shell
            .env_clear()
            .envs(variables.filter_map(|(name, value)| Some((name, value?))))
            .env("PATH", &self.path)
            .env("HOME", self.session.home())
            .env("CHROMIUM_FLAGS", FLAGS)
            .args(["-x", "-c", &script])
            .current_dir(self.session.home());
        let said = shell.output().unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr),
        );
        assert!(said.status.success(), "{}\n{out}\n{err}", lines.join("\n"));
    }
}
