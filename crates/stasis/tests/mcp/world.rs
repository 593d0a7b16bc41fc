//! A workspace of its own for each test, served by the real program to a real client.

use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorData, Tool};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceError, ServiceExt};
use serde_json::{Value, json};
use stasis_testkit::json_schema;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Child;

/// The program under test.
pub(crate) const STASIS: &str = env!("CARGO_BIN_EXE_stasis");
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A home with a workspace in it.
pub(crate) struct World {
    home: TempDir,
}

impl World {
    /// A workspace with nothing in it.
    pub(crate) fn new() -> Self {
        let world = Self::plain();
        let made = world.stasis(&[
            "workspace",
            "init",
            "w",
            "--session-dir",
            "s",
            "--no-checkpoint",
        ]);
        assert!(made.status.success(), "{made:?}");
        world
    }

    /// A directory that nobody made a workspace.
    pub(crate) fn plain() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("w")).unwrap();
        std::fs::write(home.path().join("secret"), "xyzzy").unwrap();
        Self { home }
    }

    /// A workspace with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let world = Self::new();
        for (path, content) in files {
            world.write(path, content);
        }
        world
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where something in the workspace is.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.home().join("w").join(path)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(STASIS);
        command
            .args(arguments)
            .current_dir(self.home())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home());
        for name in ["DATA", "CONFIG", "CACHE", "STATE"] {
            let place = self.home().join(name.to_lowercase());
            command.env(format!("XDG_{name}_HOME"), place);
        }
        command
    }

    /// What somebody at the command line does.
    pub(crate) fn stasis(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A checkpoint that no model made.
    pub(crate) fn made_by_a_person(&self, name: &str) {
        let made = self.stasis(&["workspace", "create", name, "--workspace", "w"]);
        assert!(made.status.success(), "{made:?}");
    }

    /// A checkpoint as the timer makes them.
    pub(crate) fn made_automatically(&self) {
        let made = self.stasis(&["workspace", "create", "--auto", "--workspace", "w"]);
        assert!(made.status.success(), "{made:?}");
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.at(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn remove(&self, path: impl AsRef<Path>) {
        let path = self.at(path);
        let is_directory = std::fs::symlink_metadata(&path).unwrap().is_dir();
        if is_directory {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        symlink(target, self.at(path)).unwrap();
    }

    pub(crate) fn target(&self, path: impl AsRef<Path>) -> PathBuf {
        std::fs::read_link(self.at(path)).unwrap()
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        std::fs::symlink_metadata(self.at(path)).is_ok()
    }

    pub(crate) fn mode(&self, path: impl AsRef<Path>) -> u32 {
        std::fs::symlink_metadata(self.at(path)).unwrap().mode() & 0o7777
    }

    pub(crate) fn set_mode(&self, path: impl AsRef<Path>, mode: u32) {
        std::fs::set_permissions(self.at(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn inode(&self, path: impl AsRef<Path>) -> u64 {
        std::fs::symlink_metadata(self.at(path)).unwrap().ino()
    }

    pub(crate) fn mtime(&self, path: impl AsRef<Path>) -> SystemTime {
        std::fs::symlink_metadata(self.at(path))
            .unwrap()
            .modified()
            .unwrap()
    }

    /// Gives a file another time and nothing else.
    pub(crate) fn touch(&self, path: impl AsRef<Path>, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = std::fs::File::options()
            .append(true)
            .open(self.at(path))
            .unwrap();
        file.set_modified(time).unwrap();
    }

    /// What lies outside and is nobody's business is as it was.
    pub(crate) fn assert_outside_untouched(&self) {
        let secret = std::fs::read_to_string(self.home().join("secret")).unwrap();
        assert_eq!(secret, "xyzzy");
        assert!(!self.home().join("x").exists());
    }

    /// Starts a server; nobody talks to it yet.
    pub(crate) fn server(&self, more: &[&str]) -> Child {
        let arguments = [&["mcp", "--workspace", "w"], more].concat();
        let mut command = tokio::process::Command::from(self.command(&arguments));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// A client with a server of its own.
    pub(crate) async fn client(&self) -> Client {
        self.client_of(&[]).await
    }

    /// The same, with a server that was told more.
    pub(crate) async fn client_of(&self, more: &[&str]) -> Client {
        let mut server = self.server(more);
        let (read, write) = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
        Client::begin(().serve((read, write)).await.unwrap(), Some(server)).await
    }

    /// A server at a socket, which answers by now.
    pub(crate) async fn listening(&self) -> Child {
        std::fs::create_dir_all(self.home().join("run")).unwrap();
        std::fs::set_permissions(
            self.home().join("run"),
            std::fs::Permissions::from_mode(0o700),
        )
        .unwrap();
        let server = self.server(&["--listen", &format!("unix:{}", self.socket().display())]);
        for _ in 0..600 {
            if UnixStream::connect(self.socket()).await.is_ok() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody listens");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home().join("run/mcp.sock")
    }

    /// A client of a server at a socket.
    pub(crate) async fn connected(&self) -> Client {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        Client::begin(().serve(stream).await.unwrap(), None).await
    }
}

/// Sends a signal to a server and waits for its end.
pub(crate) async fn end_by(server: &mut Child, signal: rustix::process::Signal) -> i32 {
    let id = i32::try_from(server.id().unwrap()).unwrap();
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, signal).unwrap();
    ended(server).await
}

/// Waits for the end of a server.
pub(crate) async fn ended(server: &mut Child) -> i32 {
    let status = tokio::time::timeout(PATIENCE, server.wait()).await;
    status.unwrap().unwrap().code().unwrap_or(-1)
}

/// Somebody who talks to a server.
pub(crate) struct Client {
    service: RunningService<RoleClient, ()>,
    server: Option<Child>,
    tools: Vec<Tool>,
}

impl Client {
    async fn begin(service: RunningService<RoleClient, ()>, server: Option<Child>) -> Self {
        let tools = service.list_all_tools().await.unwrap();
        Self {
            service,
            server,
            tools,
        }
    }

    pub(crate) fn tools(&self) -> &[Tool] {
        &self.tools
    }

    pub(crate) fn service(&self) -> &RunningService<RoleClient, ()> {
        &self.service
    }

    async fn ask(&self, tool: &str, arguments: Value) -> Result<CallToolResult, ErrorData> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        let tool = format!("snapshots_{tool}");
        let call = CallToolRequestParams::new(tool.clone()).with_arguments(arguments);
        let asked = tokio::time::timeout(PATIENCE, self.service.call_tool(call)).await;
        match asked.expect("a call is answered in time") {
            Ok(result) => {
                self.assert_as_told(&tool, &result);
                Ok(result)
            }
            Err(ServiceError::McpError(error)) => Err(error),
            Err(error) => panic!("{tool}: {error}"),
        }
    }

    /// Whatever is answered is what the tool says it answers, and harmless.
    fn assert_as_told(&self, tool: &str, result: &CallToolResult) {
        let told = self.tools.iter().find(|one| one.name == tool).unwrap();
        let schema = Value::Object(told.output_schema.as_deref().unwrap().clone());
        let answer = result.structured_content.as_ref().unwrap();
        let faults = json_schema::misfits(&schema, &schema, answer);
        assert!(faults.is_empty(), "{tool}: {faults:?} in {answer}");
        assert!(answer.to_string().chars().count() <= 100_000);
        let text = &result.content[0].as_text().unwrap().text;
        let is_harmful = |c: char| (c.is_control() && c != '\n' && c != '\t') || is_unseen(c);
        assert!(!text.contains(is_harmful), "{text:?}");
    }

    /// The answer to a call that works.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let result = self.ask(tool, arguments.clone()).await;
        let result = result.unwrap_or_else(|error| panic!("{tool} {arguments}: {error}"));
        assert_ne!(
            result.is_error,
            Some(true),
            "{tool} {arguments}: {:?}",
            result.structured_content
        );
        result.structured_content.unwrap()
    }

    /// The words of an answer.
    pub(crate) async fn words(&self, tool: &str, arguments: Value) -> String {
        let result = self.ask(tool, arguments).await.unwrap();
        result.content[0].as_text().unwrap().text.clone()
    }

    /// Why a call did not work, as a model is told.
    pub(crate) async fn fails(&self, tool: &str, arguments: Value) -> Value {
        let result = self.ask(tool, arguments.clone()).await;
        let result = result.unwrap_or_else(|error| panic!("{tool} {arguments}: {error}"));
        assert_eq!(
            result.is_error,
            Some(true),
            "{tool} {arguments}: {result:?}"
        );
        result.structured_content.unwrap()["error"].clone()
    }

    /// How a call was refused by the protocol.
    pub(crate) async fn refused(&self, tool: &str, arguments: Value) -> ErrorData {
        match self.ask(tool, arguments.clone()).await {
            Err(error) => error,
            Ok(result) => panic!("{tool} {arguments}: {result:?}"),
        }
    }

    /// Everything that is said of a call, whether it worked or not.
    pub(crate) async fn heard(&self, tool: &str, arguments: Value) -> String {
        match self.ask(tool, arguments).await {
            Err(error) => error.to_string(),
            Ok(result) => json!(result).to_string(),
        }
    }

    /// A checkpoint of that name; which one it is.
    pub(crate) async fn checkpoint(&self, name: &str) -> String {
        let made = self.call("create", json!({ "name": name })).await;
        assert_eq!(made["created"], true, "{made}");
        made["checkpoint"].as_str().unwrap().to_owned()
    }

    /// All checkpoints, the newest first.
    pub(crate) async fn all(&self) -> Vec<Value> {
        let asked = json!({ "format": "json", "digests": true });
        let all = self.call("list", asked).await;
        all["items"].as_array().unwrap().clone()
    }

    /// Names of all checkpoints, the newest first.
    pub(crate) async fn names(&self) -> Vec<String> {
        let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
        self.all().await.iter().map(name).collect()
    }

    /// What became of each entry, in order of their paths.
    pub(crate) async fn changed(&self, arguments: Value) -> Vec<(String, String)> {
        let mut arguments = arguments;
        arguments["format"] = json!("json");
        arguments["max_length"] = json!(100_000);
        let answer = self.call("changes", arguments).await;
        assert_eq!(answer["next_index"], Value::Null);
        let word = |change: &Value, field: &str| change[field].as_str().unwrap().to_owned();
        let all = answer["items"].as_array().unwrap().iter();
        let all = all.map(|change| (word(change, "path"), word(change, "op")));
        let mut changed: Vec<(String, String)> = all.collect();
        changed.sort();
        changed
    }

    /// Says good-bye and waits for the end of the server.
    pub(crate) async fn end(self) -> i32 {
        let Self {
            service, server, ..
        } = self;
        service.cancel().await.unwrap();
        match server {
            Some(mut server) => ended(&mut server).await,
            None => 0,
        }
    }

    pub(crate) fn server(&mut self) -> &mut Child {
        self.server.as_mut().unwrap()
    }
}

fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Pairs as they are compared with what changed.
pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = pairs
        .iter()
        .map(|(path, op)| ((*path).to_owned(), (*op).to_owned()));
    owned.collect()
}
