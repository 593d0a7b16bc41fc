//! An application whose orders are in a PostgreSQL server, which is started for the demo and ends with it.

use super::scene::{DemoCheck, DemoPart, PostgresFacts, SceneFacts, SkippedFacts};
use super::stage::DemoStage;
use super::working_tree::{Shown, since};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::kind::project::{self, Home, Host, Project, ProjectInit, ProjectRestore, ProjectSave};
use rustix::process::{Pid, kill_process};
use stasis_disk::fs::atomic_write::replace_unsynced;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::TenantId;
use stasis_quiesce::group::Signal;
use stasis_quiesce::watchdog;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How many orders this shop has had.
const ORDERS: u32 = 1204;
/// How often we look whether the server is there, and how many times.
const TICK: Duration = Duration::from_millis(50);
const TICKS: u32 = 200;

/// Programs of a server and its clients, all of one version.
const PROGRAMS: [&str; 5] = ["initdb", "postgres", "psql", "pg_dump", "pg_restore"];

pub(super) async fn shown(stage: &Arc<DemoStage>) -> Result<Shown, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(skipped(
            "its server does not run as root; try as an ordinary user",
        ));
    }
    let Some(programs) = programs(stage) else {
        return Ok(skipped("no initdb, postgres, psql and pg_dump are found"));
    };
    let (begun, at) = (stage.clone(), programs.clone());
    let server = match bridge::blocking(move || Server::start(&begun, at)).await {
        Ok(server) => Arc::new(server),
        // What hinders a server of others is no failure of ours.
        Err(error) if error.kind() != ErrorKind::Cancelled => {
            return Ok(skipped(&error_chain(&error)));
        }
        Err(error) => return Err(error),
    };
    let sold = ask(&server, &orders_sql()).await?;
    let project = project(stage, &server).await?;
    let started = stage.clock.uptime();
    let saved = Box::pin(project.save(ProjectSave::new(SaveReason::Manual))).await?;
    let save_us = since(stage, started);
    let dropped = "drop table orders; select to_regclass('orders') is null";
    let mut checks = vec![
        DemoCheck::new("the snapshot is in the store", true, saved.saved.published),
        DemoCheck::new("the table is gone", "t", ask(&server, dropped).await?),
    ];
    stage.go_on()?;
    let started = stage.clock.uptime();
    let restored = Box::pin(project.restore(ProjectRestore::new("latest"))).await?;
    let restore_us = since(stage, started);
    checks.push(DemoCheck::new(
        "the snapshot that was restored",
        &saved.saved.snapshot_id,
        &restored.snapshot_id,
    ));
    let found = ask(&server, FINGERPRINT).await?;
    checks.push(DemoCheck::new("orders and their digest", &sold, &found));
    let orders = found.split('|').next().and_then(|count| count.parse().ok());
    // Debian adds its own number.
    let version = ask(&server, "show server_version").await?;
    let version = version.split(' ').next().unwrap_or_default();
    let facts = PostgresFacts {
        version: version.to_owned(),
        orders: orders.unwrap_or_default(),
        save_us,
        restore_us,
    };
    Ok((SceneFacts::Postgres(facts), checks))
}

fn skipped(why: &str) -> Shown {
    let (part, why) = (DemoPart::Postgres, why.to_owned());
    (SceneFacts::Skipped(SkippedFacts { part, why }), Vec::new())
}

/// How many orders there are, and a digest of all of them.
const FINGERPRINT: &str =
    "select count(*), md5(string_agg(o::text, ',' order by id)) from orders o";

fn orders_sql() -> String {
    format!(
        "create table orders (id int primary key, cents int not null); \
         insert into orders select n, n * 7919 % 20000 from generate_series(1, {ORDERS}) n; {FINGERPRINT}"
    )
}

async fn ask(server: &Arc<Server>, sql: &str) -> Result<String, Error> {
    let (server, sql) = (server.clone(), sql.to_owned());
    bridge::blocking(move || server.ask("shop", &sql)).await
}

/// An application as it lies there: a `.env` that names its server, from which its file is made.
async fn project(stage: &Arc<DemoStage>, server: &Server) -> Result<Project, Error> {
    let dir = stage.at("app");
    let url = format!("postgres://shop@/shop?host={}", server.socket.display());
    replace_unsynced(
        &dir.join(".env"),
        format!("DATABASE_URL='{url}'\n").as_bytes(),
    )?;
    let engine = stage.engine("host").await?;
    let remembered = engine.local_dirs.state.clone();
    let init = ProjectInit {
        state: remembered.clone(),
        ..ProjectInit::default()
    };
    project::init(&dir, init).await?;
    let home = Home::find(&dir, remembered.as_deref()).await?;
    let path = format!(
        "{}:{}",
        server.programs.display(),
        stage.settings.search_path.to_string_lossy()
    );
    let host = Host {
        variables: BTreeMap::from([("PATH".to_owned(), path)]),
        check: stage.settings.spawn.clone(),
        watchdog: watchdog::HelperCommand::this_program(&["internal", "watchdog"]),
    };
    Ok(engine.project(home, &TenantId::default(), host))
}

/// Where all programs are: beside the `initdb` on the search path, else where Debian has the newest version.
fn programs(stage: &DemoStage) -> Option<PathBuf> {
    let beside = stage.program("initdb").and_then(|initdb| {
        let initdb = initdb.canonicalize().ok()?;
        Some(initdb.parent()?.to_owned())
    });
    let versions = Path::new("/usr/lib/postgresql")
        .read_dir()
        .into_iter()
        .flatten();
    let mut installed: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    installed.sort();
    let all = beside
        .into_iter()
        .chain(installed.into_iter().rev().map(|(_, bin)| bin));
    let is_whole = |bin: &PathBuf| PROGRAMS.iter().all(|name| bin.join(name).is_file());
    all.into_iter().find(is_whole)
}

/// A server of the demo's own; it ends when it is dropped.
struct Server {
    stage: Arc<DemoStage>,
    programs: PathBuf,
    socket: PathBuf,
    child: Child,
}

impl Server {
    /// Makes a cluster, starts its server and makes a database.
    fn start(stage: &Arc<DemoStage>, programs: PathBuf) -> Result<Self, Error> {
        let (socket, data) = (stage.at("pg"), stage.at("pg-data"));
        std::fs::create_dir(&socket).at("make the directory", &socket)?;
        let program = |name: &str| programs.join(name).display().to_string();
        let (initdb, at) = (program("initdb"), data.display().to_string());
        let words = [
            &*initdb,
            "-D",
            &at,
            "-U",
            "shop",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ];
        stage.run(&stage.home, &words)?;
        let child = Command::new(program("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&socket)
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=off",
                "-c",
                "shared_buffers=16MB",
            ])
            .current_dir(&stage.home)
            .env_clear()
            .envs(stage.variables())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .on("start", program("postgres"))?;
        let server = Self {
            stage: stage.clone(),
            programs,
            socket,
            child,
        };
        server.wait()?;
        server.ask("postgres", "create database shop")?;
        Ok(server)
    }

    fn wait(&self) -> Result<(), Error> {
        for _ in 0..TICKS {
            self.stage.go_on()?;
            if self.ask("postgres", "select 1").is_ok() {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
        let failure = Failure::of(ErrorKind::Failed, "its server did not start in time");
        Err(failure.into())
    }

    /// Runs SQL, and returns the last row.
    fn ask(&self, database: &str, sql: &str) -> Result<String, Error> {
        let psql = self.programs.join("psql").display().to_string();
        let socket = self.socket.display().to_string();
        let words = [
            &*psql,
            "-XAtqw",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &socket,
            "-U",
            "shop",
            "-d",
            database,
            "-c",
            sql,
        ];
        let answer = self.stage.run(&self.stage.home, &words)?;
        Ok(answer.lines().last().unwrap_or_default().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends all sessions and itself at once; what it leaves is removed anyway.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::QUIT));
        let _ = self.child.wait();
    }
}
