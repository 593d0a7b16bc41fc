//! A browser profile on two hosts: what a page set on the first is there on the second, which is another directory with nothing but the
//! store in common.

use super::scene::{BrowserFacts, DemoCheck, DemoPart, SceneFacts, SkippedFacts};
use super::stage::DemoStage;
use super::working_tree::Shown;
use crate::error::{Error, ErrorKind, error_chain};
use crate::kind::profile::{
    BrowserState, Capture, LoadOutcome, ProfileLoad, ProfileRan, ProfileRun, UpgradeWish,
    browser_major,
};
use stasis_disk::tree::restore::Placement;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::lease::Holder;
use stasis_model::format::manifest::CapturedIn;
use stasis_model::id::{Label, Lineage};
use stasis_quiesce::browser::NAMES;
use stasis_quiesce::group::Signal;
use stasis_quiesce::programs;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long a browser may take to show a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Without a window, and without talking to anybody but our page.
const FLAGS: [&str; 9] = [
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--password-store=basic",
    "--remote-debugging-port=0",
];

/// What both pages do: ask for something else, by which time their cookies are set.
const PAGE: &str = "<!doctype html><title>shop</title><script>fetch('/seen')</script>";

pub(super) async fn shown(stage: &Arc<DemoStage>) -> Result<Shown, Error> {
    let named = stage.settings.browser.clone();
    let found = named.or_else(|| programs::located(&NAMES, &stage.settings.search_path));
    let Some(browser) = found else {
        return Ok(skipped("no Chromium is on the PATH"));
    };
    let major = match stage.unless_stopped(browser_major(&browser)).await? {
        Ok(major) => major,
        Err(error) => return Ok(skipped(&error_chain(&error))),
    };
    let lineage: Lineage = format!("demo/alice@{major}")
        .parse()
        .map_err(|error| Failure::new(ErrorKind::Bug, "name the profile", major).because(error))?;
    let secret = stage.rng.op_id().to_string();
    let site = Site::open(&secret).await?;
    let mut tour = Tour {
        stage,
        browser: &browser,
        lineage,
        site,
    };
    let Some((first, _)) = tour.visit("host", "login").await? else {
        return Ok(skipped("the browser showed no page here"));
    };
    let second = tour.visit("other-host", "account").await?;
    let (loaded, cookie) = match &second {
        Some((ran, cookie)) => (ran.load.outcome.to_string(), cookie.clone()),
        None => ("no page".to_owned(), String::new()),
    };
    let checks = vec![
        DemoCheck::new("the load on the second host", LoadOutcome::Success, loaded),
        DemoCheck::new(
            "the cookie on the second host",
            format!("login={secret}"),
            cookie,
        ),
    ];
    let load_ms = second.map_or(0, |(ran, _)| ran.load.download_ms + ran.load.extract_ms);
    let saved = first.save.as_ref();
    let facts = BrowserFacts {
        major: major.to_string().parse().unwrap_or_default(),
        files: saved.map_or(0, |saved| saved.files),
        bytes: saved.map_or(0, |saved| saved.bytes),
        archive_bytes: saved.map_or(0, |saved| saved.archive_bytes),
        load_us: load_ms * 1000,
    };
    Ok((SceneFacts::Browser(facts), checks))
}

fn skipped(why: &str) -> Shown {
    let (part, why) = (DemoPart::Browser, why.to_owned());
    (SceneFacts::Skipped(SkippedFacts { part, why }), Vec::new())
}

/// One profile that goes from host to host.
struct Tour<'a> {
    stage: &'a DemoStage,
    browser: &'a Path,
    lineage: Lineage,
    site: Site,
}

impl Tour<'_> {
    /// Runs the browser on a host until it has shown a page; returns what became of the run, and the cookies that the page had. `None`
    /// where it showed none.
    async fn visit(
        &mut self,
        host: &str,
        page: &str,
    ) -> Result<Option<(ProfileRan, String)>, Error> {
        let engine = self.stage.engine(host).await?;
        let (signal, signals) = mpsc::unbounded_channel();
        let url = format!("http://localhost:{}/{page}", self.site.port);
        let run = self.run(host, &url, signals);
        let mut run = Box::pin(engine.profiles().run(run));
        let seen = self
            .stage
            .unless_stopped(tokio::time::timeout(PAGE_TIMEOUT, self.site.seen.recv()));
        let seen = tokio::select! {
            seen = seen => seen,
            // It ended before it showed anything.
            ended = &mut run => return ended.map(|_| None),
        };
        // The browser is closed whatever was seen: its profile is in our directory.
        let _ = signal.send(Signal::INT);
        let ran = run.await?;
        let cookies = seen?.ok().flatten();
        Ok(cookies.map(|cookies| (ran, cookies)))
    }

    fn run(&self, host: &str, url: &str, signals: mpsc::UnboundedReceiver<Signal>) -> ProfileRun {
        let (dir, settings) = (self.stage.at(host).join("profile"), &self.stage.settings);
        let label = |text: &str| text.parse::<Label>().expect("it is a label");
        let load = ProfileLoad {
            lineage: self.lineage.clone(),
            dir: dir.clone(),
            placement: Placement::Replace,
            exactly: None,
            on_failure: None,
            upgrade: UpgradeWish::default(),
            cold_only: false,
            region: None,
            actor: label("demo"),
            spawn: settings.spawn.clone(),
            progress: Arc::default(),
            cancel: settings.cancel.clone(),
        };
        let capture = Capture {
            dir,
            base: None,
            upgraded_from: None,
            held_back: false,
            exclude_caches: true,
            accept_shrink: false,
            holder: Holder {
                run_id: label(host),
                host: label(host),
                host_run_id: Label::nobody(),
            },
            captured_in: CapturedIn::default(),
            notes: String::new(),
            browser: BrowserState::default(),
            spawn: settings.spawn.clone(),
            progress: Arc::default(),
            cancel: Arc::default(),
        };
        let mut run = ProfileRun::new(load, capture, self.command(host, url), signals);
        run.close_timeout = CLOSE_TIMEOUT;
        run.max_time = PAGE_TIMEOUT + CLOSE_TIMEOUT;
        run
    }

    /// The browser with a home in the demo's directory; what it says goes into a file.
    fn command(&self, host: &str, url: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["env".into()];
        for (name, value) in self.stage.variables() {
            let mut word = name;
            word.push("=");
            word.push(value);
            words.push(word);
        }
        let log = self.stage.at(&format!("{host}.log"));
        let script = "exec \"$@\" > \"$0\" 2>&1";
        words.extend(["sh".into(), "-c".into(), script.into(), log.into()]);
        words.push(self.browser.into());
        words.extend(FLAGS.map(Into::into));
        if rustix::process::geteuid().is_root() {
            // Chromium refuses to start as root otherwise, and shows only our own page.
            words.push("--no-sandbox".into());
        }
        words.extend(["--user-data-dir={dir}".into(), url.into()]);
        words
    }
}

/// A site on loopback: `/login` sets a cookie, `/seen` reports which ones came.
struct Site {
    port: u16,
    seen: mpsc::UnboundedReceiver<String>,
    server: JoinHandle<()>,
}

impl Site {
    async fn open(secret: &str) -> Result<Self, Error> {
        let address = "127.0.0.1:0";
        let listener = TcpListener::bind(address).await.on("listen on", address)?;
        let port = listener.local_addr().on("listen on", address)?.port();
        let (sender, seen) = mpsc::unbounded_channel();
        let secret = secret.to_owned();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A browser that hangs up has what it wanted.
                let _ = answer(stream, &secret, &sender).await;
            }
        });
        Ok(Self { port, seen, server })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    stream: TcpStream,
    secret: &str,
    seen: &mpsc::UnboundedSender<String>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut cookies) = (String::new(), String::new());
    stream.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("cookie") => {
                value.trim().clone_into(&mut cookies);
            }
            Some(_) => {}
            None => break,
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    if path == "/seen" {
        let _ = seen.send(cookies);
    }
    let set = match path {
        "/login" => format!("Set-Cookie: login={secret}; Max-Age=86400\r\n"),
        _ => String::new(),
    };
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n{set}\r\n{PAGE}",
        PAGE.len()
    );
    stream.get_mut().write_all(text.as_bytes()).await?;
    stream.get_mut().shutdown().await
}
