//! Real coding agents, as `scripts/agents` installs them, against a scripted model on loopback.
//!
//! Each runs one prompt with thirty commands that damage the tree; then the tree before the prompt comes back, byte for byte. And
//! each goes on working when `stasis` is gone.

use crate::session::{STASIS, Said, Session, said};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/agents/model.py");
const PARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/parts/agents");

/// How many commands one prompt runs: three times what the ring of automatic checkpoints holds.
const STEPS: usize = 30;

/// The scripted model; ends with this.
struct Model {
    child: Child,
    port: u16,
}

impl Model {
    fn start(home: &Path, steps: &[Value]) -> Self {
        let script = home.join("steps.json");
        fs::write(&script, serde_json::to_string(steps).unwrap()).unwrap();
        let mut child = Command::new("python3")
            .arg(MODEL)
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        // What it says later is for whoever looks into a failure; nobody reads it here, and it must not block.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let port = line.trim().parse().unwrap();
        Self { child, port }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A home with an agent, `bin/stasis`, and a project.
struct World {
    session: Session,
    agent: &'static str,
    program: PathBuf,
}

impl World {
    /// Nothing where the agent is not installed.
    fn new(agent: &'static str) -> Option<Self> {
        let program = installed(agent)?;
        let session = Session::new();
        for directory in ["bin", "project", "tmp"] {
            fs::create_dir(session.home().join(directory)).unwrap();
        }
        symlink(STASIS, session.home().join("bin/stasis")).unwrap();
        Some(Self {
            session,
            agent,
            program,
        })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.session.home().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Nothing but what a user would have: no variable of whoever runs the tests.
    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.at("bin").display());
        command
            .env_clear()
            .env("HOME", self.session.home())
            .env("PATH", path)
            .env("TMPDIR", self.at("tmp"))
            .current_dir(self.at("project"))
    }

    fn stasis(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(STASIS);
        command.args(arguments);
        let done = self.environment(&mut command).stdin(Stdio::null()).output();
        said(done.unwrap())
    }

    fn stasis_ok(&self, arguments: &[&str]) -> String {
        let said = self.stasis(arguments);
        assert_eq!(said.code, 0, "{arguments:?}\n{}{}", said.out, said.err);
        said.out
    }

    /// Runs one prompt to its end; the agent must succeed.
    fn prompt(&self, model: &Model) {
        let url = format!("http://127.0.0.1:{}", model.port);
        let mut command = Command::new("timeout");
        command.arg("-k2").arg("120");
        self.environment(&mut command).stdin(Stdio::null());
        match self.agent {
            "claude-code" => command
                .arg(&self.program)
                .args(["-p", "tidy up", "--dangerously-skip-permissions"])
                .env("IS_SANDBOX", "1")
                .env("ANTHROPIC_BASE_URL", url)
                .env("ANTHROPIC_API_KEY", "x")
                .env("DISABLE_AUTOUPDATER", "1")
                .env("DISABLE_TELEMETRY", "1")
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            "gemini" => command
                .arg("node")
                .arg(&self.program)
                .args(["--yolo", "-p", "tidy up"])
                .env("GEMINI_CLI_TRUST_WORKSPACE", "true")
                .env("GOOGLE_GEMINI_BASE_URL", url)
                .env("GEMINI_API_KEY", "x"),
            _ => command
                .arg(&self.program)
                .args(["exec", "--skip-git-repo-check"])
                .arg("--dangerously-bypass-approvals-and-sandbox")
                .arg("--dangerously-bypass-hook-trust")
                .arg("tidy up")
                .env("X_KEY", "x"),
        };
        let said = said(command.output().unwrap());
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        assert!(said.out.contains("done"), "{}{}", said.out, said.err);
    }

    /// What the agent needs to know besides its variables.
    fn configure(&self, model: &Model) {
        match self.agent {
            "gemini" => {
                let settings = r#"{ "security": { "auth": { "selectedType": "gemini-api-key" } }, "privacy": { "usageStatisticsEnabled": false } }"#;
                self.put(".gemini/settings.json", settings);
            }
            "codex" => {
                let config = format!(
                    "model = \"m\"\nmodel_provider = \"x\"\n[model_providers.x]\nname = \"x\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n\
                     wire_api = \"responses\"\nenv_key = \"X_KEY\"\n",
                    model.port
                );
                self.put(".codex/config.toml", &config);
            }
            _ => {}
        }
    }
}

/// Where `scripts/agents` puts an agent; says so when it is not there.
fn installed(agent: &str) -> Option<PathBuf> {
    let parts = Path::new(PARTS).join(agent);
    let program = match agent {
        "claude-code" => parts.join("claude"),
        "gemini" => parts.join("bundle/gemini.js"),
        _ => {
            let vendor = fs::read_dir(parts.join("vendor")).into_iter().flatten();
            let triple = vendor.flatten().next().map(|entry| entry.path());
            triple.unwrap_or(parts).join("bin/codex")
        }
    };
    if program.is_file() {
        return Some(program);
    }
    // Agents come from npm: where there is none, `scripts/parts` says that they are left out.
    let has_npm = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join("npm").exists())
    });
    let is_asked = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    let needed = is_asked && has_npm && agent == "claude-code";
    assert!(!needed, "{agent} is not installed: run scripts/agents");
    println!("skipped: {agent} is not installed; scripts/agents does");
    None
}

/// Everything that a restore must bring back: content, mode and links of every entry.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if about.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let beneath = path.strip_prefix(root).unwrap().to_owned();
            all.insert(beneath, (about.mode(), content));
        }
    }
    all
}

/// A small project with some of everything.
fn project(world: &World) {
    for number in 0..STEPS {
        world.put(
            &format!("project/src/part{number}.rs"),
            &format!("fn part{number}() {{}}\n"),
        );
    }
    world.put("project/README.md", "the project\n");
    world.put("project/.git/HEAD", "ref: refs/heads/main\n");
    world.put("project/data/big.bin", &"0123456789abcdef".repeat(20_000));
    world.put("project/run.sh", "#!/bin/sh\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o750);
    fs::set_permissions(world.at("project/run.sh"), mode).unwrap();
    symlink("README.md", world.at("project/link")).unwrap();
}

/// Thirty shell commands that each destroy something, and one edit by the agent's own tool, where it has one.
fn damage(world: &World) -> Vec<Value> {
    let shell = |number: usize| match number % 6 {
        0 => format!("find src -name part{number}.rs -delete"),
        1 => format!("echo broken > src/part{number}.rs"),
        2 => format!("mv src/part{number}.rs src/moved{number}.rs"),
        3 => {
            format!("truncate -s 1000 data/big.bin; chmod 600 run.sh; echo {number} >> README.md")
        }
        4 => format!("ln -sf run.sh link; mkdir -p new/{number}; touch new/{number}/file"),
        _ => format!("find data .git -type f -delete; echo {number} > data/big.bin"),
    };
    let mut steps: Vec<Value> = (0..STEPS).map(|number| json!(shell(number))).collect();
    let edited = json!({ "file_path": world.at("project/edited.md"), "content": "by the agent" });
    match world.agent {
        "claude-code" => steps.push(json!({ "tool": "Write", "input": edited })),
        "gemini" => steps.push(json!({ "tool": "write_file", "input": edited })),
        _ => {}
    }
    steps
}

fn thirty_commands_and_back(agent: &'static str) {
    let Some(world) = World::new(agent) else {
        return;
    };
    let model = Model::start(world.session.home(), &damage(&world));
    world.configure(&model);
    project(&world);
    world.stasis_ok(&["workspace", "init", "."]);
    world.stasis_ok(&["hook", "install", agent, "--yes"]);
    // The user works on, so that the state before the prompt is in no checkpoint yet.
    world.put("project/src/part0.rs", "fn part0() { finished(); }\n");
    let before = tree(&world.at("project"));

    world.prompt(&model);

    let after = tree(&world.at("project"));
    assert!(
        !after.contains_key(Path::new("src/part0.rs")),
        "the agent did nothing"
    );
    assert!(
        after.contains_key(Path::new("new/28/file")),
        "the agent stopped early"
    );
    assert_eq!(after.contains_key(Path::new("edited.md")), agent != "codex");
    world.stasis_ok(&["rewind", "--yes"]);
    assert_eq!(tree(&world.at("project")), before);
    let shown = world.stasis_ok(&["--json", "hook", "show"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let mut rows = shown["items"].as_array().unwrap().iter();
    let ran = rows
        .find(|row| row["agent"] == agent && row["scope"] == "user")
        .unwrap();
    assert_eq!(ran["last_checkpoint"]["outcome"], "made", "{ran}");
    assert!(ran["last_failure"].is_null(), "{ran}");
}

fn goes_on_without_stasis(agent: &'static str) {
    let Some(world) = World::new(agent) else {
        return;
    };
    let steps = [json!("echo one >> out"), json!("echo two >> out")];
    let model = Model::start(world.session.home(), &steps);
    world.configure(&model);
    // As a colleague has it: a project's hooks are committed, and nobody here has the program.
    world.stasis_ok(&["hook", "install", agent, "--scope", "project", "--yes"]);
    world.stasis_ok(&["hook", "install", agent, "--yes"]);
    fs::remove_file(world.at("bin/stasis")).unwrap();

    world.prompt(&model);

    assert_eq!(
        fs::read_to_string(world.at("project/out")).unwrap(),
        "one\ntwo\n"
    );
}

#[test]
fn real_claude_code_damages_a_tree_thirty_times_and_one_command_goes_back() {
    thirty_commands_and_back("claude-code");
}

#[test]
fn real_gemini_damages_a_tree_thirty_times_and_one_command_goes_back() {
    thirty_commands_and_back("gemini");
}

#[test]
fn real_codex_damages_a_tree_thirty_times_and_one_command_goes_back() {
    thirty_commands_and_back("codex");
}

#[test]
fn real_claude_code_works_on_when_stasis_is_gone() {
    goes_on_without_stasis("claude-code");
}

#[test]
fn real_gemini_works_on_when_stasis_is_gone() {
    goes_on_without_stasis("gemini");
}

#[test]
fn real_codex_works_on_when_stasis_is_gone() {
    goes_on_without_stasis("codex");
}
