//! Who is refused, generated from the table: a route without an entry cannot be written.

mod changes;
mod leases;
mod operations;

use super::endpoint::{Access, Route};
use super::hosts::AllowedHosts;
use super::limits::RequestLimits;
use super::listener::answer_all;
use super::service::{NoTokens, Service, ServiceParts};
use super::{openapi, table};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, IF_MATCH};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use stasis_engine::check::Spawn;
use stasis_engine::kind::container::Docker;
use stasis_engine::kind::project::Host;
use stasis_engine::lease::Acquire;
use stasis_engine::model::format::lease::Holder;
use stasis_engine::model::format::token::{TokenGrant, TokenScope};
use stasis_engine::model::id::{Label, Lineage};
use stasis_engine::model::time::{Clock, Timestamp};
use stasis_engine::open::{AwsSettings, Engine, LocalDirs, Open, StoreLocation};
use stasis_engine::stored::LookingHost;
use stasis_engine::watchdog::HelperCommand;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

const OURS: &str = "127.0.0.1:7070";

/// Goes on when it is told to.
#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl TestClock {
    fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Nothing of it is used where no snapshot is looked into.
fn looking_host() -> LookingHost {
    LookingHost {
        name: Label::nobody(),
        docker: Docker::from_variable(Some(&"unix:///nowhere/docker.sock".to_owned())),
        project: Host {
            variables: BTreeMap::new(),
            check: Spawn {
                program: "/nowhere".into(),
                arguments: Vec::new(),
            },
            watchdog: HelperCommand::this_program(&[]),
        },
        scratch: "/nowhere".into(),
    }
}

/// A service over a store in memory.
struct World {
    service: Service,
    engine: Engine,
    clock: Arc<TestClock>,
}

/// What was answered.
struct Answered {
    status: u16,
    response: Response<()>,
    body: Value,
}

impl World {
    async fn with(limits: RequestLimits, no_tokens: NoTokens) -> Self {
        let clock = Arc::new(TestClock::default());
        let rng = Arc::new(crate::system::SystemRng);
        let open = Open {
            location: StoreLocation::Memory,
            create: true,
            aws: AwsSettings::default(),
            local_dirs: LocalDirs {
                cache: None,
                state: None,
            },
        };
        let engine = Engine::open(open, clock.clone(), rng.clone())
            .await
            .unwrap();
        let hosts = AllowedHosts::new(OURS.parse().unwrap(), &[]);
        let service = Service::new(ServiceParts {
            engine: engine.clone(),
            clock: clock.clone(),
            rng,
            hosts,
            limits,
            no_tokens,
            looking: looking_host(),
        });
        Self {
            service,
            engine,
            clock,
        }
    }

    async fn new() -> Self {
        // Many routes in no time.
        let limits = RequestLimits {
            per_second: 100_000,
            ..RequestLimits::default()
        };
        Self::with(limits, NoTokens::Refused).await
    }

    async fn token(&self, tenant: &str, scope: TokenScope, expires: Option<Duration>) -> String {
        self.grant(tenant, scope, (expires, false)).await
    }

    async fn grant(
        &self,
        tenant: &str,
        scope: TokenScope,
        (expires, host): (Option<Duration>, bool),
    ) -> String {
        let grant = TokenGrant {
            tenant: tenant.parse().unwrap(),
            scope,
            host,
            expires_at: expires.map(|left| self.clock.now().plus(left)),
            description: Label::nobody(),
        };
        let made = self.engine.tokens().create(grant, &Label::nobody()).await;
        made.unwrap().token.reveal().to_owned()
    }

    /// Asks for what is no document.
    async fn text(&self, request: Request<Full<Bytes>>) -> (http::response::Parts, String) {
        let (head, body) = self.service.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Answered {
        let (head, body) = self.service.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let is_page = head.headers[CONTENT_TYPE].as_bytes().starts_with(b"text/");
        let body: Value = if is_page {
            Value::String(String::from_utf8(bytes.to_vec()).unwrap())
        } else {
            serde_json::from_slice(&bytes).unwrap()
        };
        if !head.status.is_success() {
            assert_eq!(head.headers[CONTENT_TYPE], "application/problem+json");
            assert_eq!(body["status"], head.status.as_u16());
            assert!(
                body["code"].is_string() && body["request_id"].is_string(),
                "{body}"
            );
        }
        Answered {
            status: head.status.as_u16(),
            response: Response::from_parts(head, ()),
            body,
        }
    }

    /// Sends a document.
    async fn post(&self, token: &str, path: &str, body: &Value) -> Answered {
        self.post_with(token, path, &[], body).await
    }

    /// The same with more in its head.
    async fn post_with(
        &self,
        token: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &Value,
    ) -> Answered {
        let mut post = request(&Method::POST, path).map(|_| Full::from(body.to_string()));
        for (name, value) in headers {
            post.headers_mut().insert(*name, value.parse().unwrap());
        }
        self.ask(with_token(post, token)).await
    }

    /// Asks for a route of the table with some value for each part of its path.
    async fn ask_route(&self, route: &Route, shown: &[&str]) -> Answered {
        let mut request = request(&route.method, &filled(route.path));
        for token in shown {
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().append(AUTHORIZATION, value);
        }
        self.ask(request).await
    }
}

fn with_token(mut request: Request<Full<Bytes>>, token: &str) -> Request<Full<Bytes>> {
    let value = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert(AUTHORIZATION, value);
    request
}

fn request(method: &Method, path: &str) -> Request<Full<Bytes>> {
    let built = Request::builder().method(method).uri(path);
    built.header(HOST, OURS).body(Full::default()).unwrap()
}

/// Who may use each route: whoever adds one says it here, too, and whoever changes one sees what it opens.
const ALLOWED: &[(Access, &[&str])] = &[
    (
        Access::Anybody,
        &["healthz", "readyz", "openapi", "page", "page_file"],
    ),
    (
        Access::Token(TokenScope::Read),
        &[
            "scrape_metrics",
            "list_profile_snapshots",
            "show_profile_snapshot",
            "list_subjects",
            "show_subject",
            "list_snapshots",
            "show_snapshot",
            "list_files",
            "read_file",
            "diff_snapshots",
            "list_events",
            "list_leases",
            "list_operations",
            "show_operation",
            "watch_operation",
            "show_stats",
            "show_token",
        ],
    ),
    (
        Access::Token(TokenScope::Write),
        &[
            "rollback_profile",
            "acquire_lease",
            "renew_lease",
            "release_lease",
            "beat_session",
            "roll_back_subject",
            "pin_snapshot",
            "unpin_snapshot",
            "fork_subject",
        ],
    ),
    (
        Access::Token(TokenScope::Admin),
        &[
            "delete_profile_snapshot",
            "force_unlock_profile",
            "list_jobs",
            "delete_subject_snapshot",
            "force_unlock_subject",
        ],
    ),
    (
        Access::HostToken(TokenScope::Write),
        &[
            "wake_session",
            "sleep_session",
            "call_tools",
            "save_subject",
            "restore_snapshot",
            "restore_directory",
            "undo_directory",
        ],
    ),
    (
        Access::HostToken(TokenScope::Read),
        &["show_directory", "diff_directory"],
    ),
];

#[test]
fn every_route_is_open_to_those_who_are_named_here_and_to_nobody_else() {
    for route in table::routes() {
        let mut allowed = ALLOWED.iter();
        let allowed = allowed.find(|(_, names)| names.contains(&route.name));
        let (access, _) = allowed.unwrap_or_else(|| panic!("{} is not in the list", route.name));
        assert_eq!(route.access, *access, "{}", route.name);
    }
    let named: usize = ALLOWED.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(named, table::routes().len());
}

/// A path of the table with a value in each place, and what has to stand behind the question mark.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{tenant_id}" => "acme",
        "{profile_id}" => "alice",
        "{sha_prefix}" | "{snapshot}" => "abcdef",
        "{id}" if path.starts_with("/v1/sessions/") => "42",
        "{id}" if path.starts_with("/v1/operations/") => "0b5c0b5c-0b5c-4b5c-8b5c-0b5c0b5c0b5c",
        "{id}" => "alice@131",
        "{kind}" => "profile",
        "{file}" => "main.js",
        "{workspace}" => "shop",
        part => {
            assert!(!part.starts_with('{'), "`{part}` has no value in this test");
            part
        }
    });
    let whole = parts.collect::<Vec<_>>().join("/");
    match path {
        "/v1/directory/diff" => whole + "?before=cp-0",
        _ => whole,
    }
}

fn without_id(mut body: Value) -> Value {
    body["request_id"] = Value::Null;
    body
}

/// Tokens that counted: one is expired, one was revoked.
async fn over(world: &World) -> [String; 2] {
    let end = Duration::from_mins(1);
    let expired = world.token("acme", TokenScope::Admin, Some(end)).await;
    world.clock.advance(end);
    let revoked = world.token("acme", TokenScope::Admin, None).await;
    let id = revoked.split('_').nth(1).unwrap().parse().unwrap();
    world
        .engine
        .tokens()
        .revoke(id, &Label::nobody())
        .await
        .unwrap();
    [expired, revoked]
}

#[tokio::test]
async fn every_route_refuses_whoever_may_not_use_it() {
    let world = World::new().await;
    let [expired, revoked] = over(&world).await;
    let other = world.token("other", TokenScope::Admin, None).await;
    let forged = format!("{}{}", &other[..other.len() - 4], "0000");
    let scopes = [TokenScope::Read, TokenScope::Write, TokenScope::Admin];
    let mut own = Vec::new();
    for scope in scopes {
        own.push((scope, world.grant("acme", scope, (None, true)).await));
    }
    let without_host = world.token("acme", TokenScope::Admin, None).await;

    for route in table::routes() {
        // Of tokens that are not known only so many are looked up in a second.
        world.clock.advance(Duration::from_secs(1));
        let what = format!("{} {}", route.method, route.path);
        let Some(needed) = route.access.scope() else {
            assert_eq!(world.ask_route(route, &[]).await.status, 200, "{what}");
            continue;
        };
        for shown in [
            &[][..],
            &["x"],
            &[&expired],
            &[&revoked],
            &[&forged],
            &[&other, &other],
        ] {
            let refused = world.ask_route(route, shown).await;
            assert_eq!(refused.status, 401, "{what} {shown:?}");
            assert_eq!(refused.response.headers()["www-authenticate"], "Bearer");
        }
        if route.path.contains("{tenant_id}") {
            // What is another tenant's looks like what is not there at all.
            let refused = world.ask_route(route, &[&other]).await;
            let nowhere = request(&Method::GET, "/v1/nowhere");
            let nowhere = world.ask(nowhere).await;
            assert_eq!((refused.status, nowhere.status), (404, 404), "{what}");
            assert_eq!(without_id(refused.body), without_id(nowhere.body), "{what}");
        }
        if route.access.is_of_host() {
            let refused = world.ask_route(route, &[&without_host]).await;
            assert_eq!(refused.status, 403, "{what}: {}", refused.body);
            assert!(refused.body.to_string().contains("--host"), "{what}");
        }
        for (scope, token) in &own {
            let status = world.ask_route(route, &[token]).await.status;
            if *scope < needed {
                assert_eq!(status, 403, "{what} {scope}");
            } else {
                assert!(
                    ![401, 403].contains(&status) && status < 500,
                    "{what}: {status}"
                );
            }
        }
    }
}

#[tokio::test]
async fn every_route_is_called_by_our_name_and_with_its_method() {
    let world = World::new().await;
    for route in table::routes() {
        let path = filled(route.path);
        let mut foreign = request(&route.method, &path);
        foreign
            .headers_mut()
            .insert(HOST, "evil.example".parse().unwrap());
        assert_eq!(world.ask(foreign).await.status, 421, "{path}");
        let other = world.ask(request(&Method::PATCH, &path)).await;
        assert_eq!(other.status, 405, "{path}");
        let allow = other.response.headers()["allow"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(allow.contains(route.method.as_str()), "{path}: {allow}");
        assert_eq!(
            allow.contains("GET"),
            allow.contains("HEAD"),
            "{path}: {allow}"
        );
    }
}

#[tokio::test]
async fn a_tenant_sees_its_own_and_nothing_of_others() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Read, None).await;
    let _other = world.token("other", TokenScope::Admin, None).await;
    let ask = async |path: &str| {
        let mut request = request(&Method::GET, path);
        let value = format!("bearer {token}").parse().unwrap();
        request.headers_mut().insert(AUTHORIZATION, value);
        world.ask(request).await
    };

    let events = ask("/v1/events?limit=10").await;

    let items = events.body["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{}", events.body);
    assert_eq!(items[0]["kind"], "token_created");
    let secret = token.rsplit('_').next().unwrap();
    assert!(!events.body.to_string().contains(secret));
    assert_eq!(ask("/v1/subjects").await.body["items"], json!([]));
    for bad in ["?limit=0", "?limit=1&limit=2", "?bogus=1", "?limit=x"] {
        assert_eq!(ask(&format!("/v1/events{bad}")).await.status, 400, "{bad}");
    }
    assert_eq!(ask("/v1/subjects?kind=planet").await.status, 400);
    // A name that no profile can have, and one that leads elsewhere.
    for none in [
        "acme/..%2Fother",
        "acme/%00",
        "acme/-a",
        "acme//x",
        "Acme/alice",
    ] {
        let path = format!("/v1/profile-snapshots/{none}");
        assert_eq!(ask(&path).await.status, 404, "{none}");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_within_ten_seconds() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Read, None).await;
    let route = table::routes().iter().find(|one| one.name == "list_events");
    let route = route.unwrap();
    assert_eq!(world.ask_route(route, &[&token]).await.status, 200);

    let id = token.split('_').nth(1).unwrap().parse().unwrap();
    world
        .engine
        .tokens()
        .revoke(id, &Label::nobody())
        .await
        .unwrap();

    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.ask_route(route, &[&token]).await.status, 401);
}

#[tokio::test]
async fn a_scrape_counts_what_was_asked_in_closed_words() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Read, None).await;
    let scrape = async || {
        let request = with_token(request(&Method::GET, "/metrics"), &token);
        let scraped = world.ask(request).await;
        assert_eq!(scraped.status, 200);
        let media_type = &scraped.response.headers()[CONTENT_TYPE];
        assert_eq!(media_type, "text/plain; version=0.0.4");
        scraped.body.as_str().unwrap().to_owned()
    };
    let path = "/v1/profile-snapshots/acme/secret-name";
    world.ask(request(&Method::GET, path)).await;
    world
        .ask(with_token(request(&Method::GET, path), "x"))
        .await;
    world
        .ask(with_token(request(&Method::GET, path), &token))
        .await;
    let invented = Method::from_bytes(b"SECRET").unwrap();
    world.ask(request(&invented, "/secret/path")).await;

    let text = scrape().await;

    let of = "method=\"GET\",status";
    let template = "/v1/profile-snapshots/{tenant_id}/{profile_id}";
    for line in [
        format!("stasis_http_requests_total{{route=\"{template}\",{of}=\"401\"}} 2"),
        format!("stasis_http_requests_total{{route=\"{template}\",{of}=\"404\"}} 1"),
        "stasis_http_requests_total{route=\"none\",method=\"other\",status=\"404\"} 1".to_owned(),
        format!("stasis_http_request_seconds_count{{route=\"{template}\"}} 3"),
        "stasis_http_refused_logins_total{reason=\"missing\"} 1".to_owned(),
        "stasis_http_refused_logins_total{reason=\"refused\"} 1".to_owned(),
        "stasis_http_requests_in_flight 1".to_owned(),
        "stasis_events_total{kind=\"token_created\",severity=\"info\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
    }
    assert!(
        !text.to_lowercase().contains("secret"),
        "a client names nothing here\n{text}"
    );
    assert!(!text.contains("acme"), "{text}");
    // The store was not counted, and nothing was proven: there is nothing to say of them.
    for absent in ["_store_", "_proof_", "_leases_", "_profile_"] {
        assert!(!text.contains(absent), "{absent} in\n{text}");
    }
}

#[tokio::test]
async fn the_log_of_events_is_read_only_now_and_then() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Read, None).await;
    let made = async || {
        let request = with_token(request(&Method::GET, "/metrics"), &token);
        let text = world.ask(request).await.body;
        let text = text.as_str().unwrap().to_owned();
        let is_it = |line: &&str| line.starts_with("stasis_events_total{kind=\"token_created\"");
        let line = text.lines().find(is_it).unwrap().to_owned();
        line.rsplit_once(' ').unwrap().1.to_owned()
    };
    assert_eq!(made().await, "1");

    world.token("acme", TokenScope::Read, None).await;

    assert_eq!(made().await, "1");
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(made().await, "2");
}

#[tokio::test]
async fn what_is_too_much_is_refused() {
    let limits = RequestLimits {
        per_second: 2,
        body_bytes: 64,
        ..RequestLimits::default()
    };
    let world = World::with(limits, NoTokens::Refused).await;
    let token = world.token("acme", TokenScope::Admin, None).await;
    let ask = async |body: String| {
        let path = "/v1/profile-snapshots/acme/alice/rollback";
        let mut request = request(&Method::POST, path).map(|_| Full::from(body));
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(AUTHORIZATION, value);
        world.ask(request).await
    };

    assert_eq!(ask(" ".repeat(65)).await.status, 413);
    assert_eq!(ask("[]".to_owned()).await.status, 400);
    let third = ask("{}".to_owned()).await;
    assert_eq!(third.status, 429);
    assert_eq!(third.response.headers()["retry-after"], "1");
    world.clock.advance(Duration::from_secs(1));
    let twice = r#"{"confirm":true,"confirm":true,"sha_prefix":"ab"}"#;
    let refused = ask(twice.to_owned()).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.body["detail"]
            .as_str()
            .unwrap()
            .contains("duplicate field")
    );
}

#[tokio::test]
async fn a_body_that_is_deeper_than_any_of_ours_is_refused() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Admin, None).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let in_a_field = format!(r#"{{"confirm":true,"reason":{deep},"sha_prefix":"ab"}}"#);

    for body in [deep, in_a_field] {
        let path = "/v1/profile-snapshots/acme/alice/rollback";
        let post = request(&Method::POST, path).map(|_| Full::from(body));
        assert_eq!(world.ask(with_token(post, &token)).await.status, 400);
    }
}

#[tokio::test]
async fn where_no_body_is_taken_only_a_little_of_one_is_read() {
    let world = World::new().await;
    let ask = async |size: usize| {
        let get = request(&Method::GET, "/healthz").map(|_| Full::from(" ".repeat(size)));
        world.ask(get).await.status
    };

    assert_eq!(ask(1025).await, 413);
    let get = request(&Method::GET, "/healthz").map(|_| Full::from("{}"));
    assert_eq!(world.ask(get).await.status, 200);
}

#[tokio::test]
async fn a_change_comes_to_its_end_although_whoever_asked_hung_up() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Admin, None).await;
    let subject: Lineage = "acme/alice@131".parse().unwrap();
    let acquire = Acquire {
        lineage: subject.clone(),
        holder: Holder {
            run_id: "nightly".parse().unwrap(),
            host: Label::nobody(),
            host_run_id: Label::nobody(),
        },
        ttl: None,
    };
    world
        .engine
        .leases()
        .acquire(acquire.clone())
        .await
        .unwrap();
    // The token is known, so that nothing is waited for before the change.
    let known = with_token(request(&Method::GET, "/v1/events"), &token);
    assert_eq!(world.ask(known).await.status, 200);
    let path = "/v1/profile-snapshots/acme/alice/force-unlock?chrome_major=131";
    let body = r#"{"confirm":true,"reason":"the host is gone"}"#;
    let post = request(&Method::POST, path).map(|_| Full::from(body));

    let asked_once = tokio::select! {
        biased;
        _ = world.service.answer(with_token(post, &token)) => false,
        () = std::future::ready(()) => true,
    };

    assert!(asked_once, "it was answered before anybody could hang up");
    world.service.work().idle().await;
    let events = with_token(request(&Method::GET, "/v1/events"), &token);
    let events = world.ask(events).await.body.to_string();
    assert!(events.contains("the host is gone"), "{events}");
    world.engine.leases().acquire(acquire).await.unwrap();
}

#[tokio::test]
async fn whoever_never_takes_an_answer_is_cut_off() {
    let short = Duration::from_millis(100);
    let limits = RequestLimits {
        read_timeout: short,
        // Long enough for an answer on a host that is busy.
        answer_timeout: Duration::from_secs(2),
        connection_life: short,
        ..RequestLimits::default()
    };
    let service = Arc::new(World::with(limits, NoTokens::Refused).await.service);
    let (mut client, server) = tokio::io::duplex(1 << 10);
    let get = format!("GET /v1/openapi.json HTTP/1.1\r\nHost: {OURS}\r\n\r\n");
    client.write_all(get.as_bytes()).await.unwrap();
    let (_stopping, told) = watch::channel(false);

    let answering = answer_all(&service, server, told);
    let ended = tokio::time::timeout(Duration::from_mins(1), answering).await;

    assert!(ended.is_ok(), "it waits for ever");
    let mut taken = String::new();
    client.read_to_string(&mut taken).await.unwrap();
    assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
}

#[tokio::test]
async fn a_token_that_counted_is_read_again_however_many_strangers_guess() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Read, None).await;
    let route = table::routes().iter().find(|one| one.name == "list_events");
    let route = route.unwrap();
    assert_eq!(world.ask_route(route, &[&token]).await.status, 200);
    world.clock.advance(Duration::from_secs(10));
    let forged = format!("{}{}", &token[..token.len() - 4], "0000");
    let mut statuses = BTreeSet::new();
    for _ in 0..60 {
        statuses.insert(world.ask_route(route, &[&forged]).await.status);
    }
    assert_eq!(statuses, BTreeSet::from([401, 429]));

    assert_eq!(world.ask_route(route, &[&token]).await.status, 200);
    world.clock.advance(Duration::from_mins(10));
    assert_eq!(world.ask_route(route, &[&token]).await.status, 200);
}

#[tokio::test]
async fn tokens_that_nobody_made_are_looked_up_only_so_often() {
    let world = World::new().await;
    let route = table::routes().iter().find(|one| one.name == "list_events");
    let route = route.unwrap();
    let mut statuses = BTreeSet::new();

    for number in 0..60 {
        let guess = format!("stasis_{number:016x}_{}", "0".repeat(64));
        statuses.insert(world.ask_route(route, &[&guess]).await.status);
    }

    assert_eq!(statuses, BTreeSet::from([401, 429]));
}

#[tokio::test]
async fn on_loopback_nobody_needs_a_token_where_that_was_said_and_a_wrong_one_is_refused() {
    let world = World::with(RequestLimits::default(), NoTokens::AllowedOnLoopback).await;
    let route = table::routes().iter().find(|one| one.name == "list_events");
    let route = route.unwrap();

    assert_eq!(world.ask_route(route, &[]).await.status, 200);
    assert_eq!(world.ask_route(route, &["wrong"]).await.status, 401);
    let mut seen = request(&Method::GET, "/v1/events");
    seen.headers_mut().insert(IF_MATCH, "7".parse().unwrap());
    assert_eq!(world.ask(seen).await.status, 400);
}

#[tokio::test]
async fn the_page_is_all_there_and_nothing_from_elsewhere_may_run_in_it() {
    let world = World::new().await;
    let get = async |path: &str| world.ask(request(&Method::GET, path)).await;
    let mut wanted = vec!["/".to_owned()];
    let mut seen = BTreeSet::new();

    while let Some(path) = wanted.pop() {
        let answered = get(&path).await;
        assert_eq!(answered.status, 200, "{path}");
        let policy = answered.response.headers()["content-security-policy"].to_str();
        let policy = policy.unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        assert!(!policy.contains("unsafe"), "{policy}");
        let text = answered.body.as_str().unwrap();
        for bad in [
            "http://",
            "https://",
            "innerHTML",
            "<style",
            " style=",
            " onclick=",
        ] {
            // The name of a dialect of XML is no address that is asked.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(bad), "{path} has `{bad}`");
        }
        // What it loads is there, too: `/page/main.js`, `./api.js`.
        for quoted in text.split('"').skip(1).step_by(2) {
            let name = quoted.strip_prefix("/page/").or(quoted.strip_prefix("./"));
            wanted.extend(name.map(|name| format!("/page/{name}")));
        }
        seen.insert(path);
        wanted.retain(|path| !seen.contains(path));
    }

    assert!(seen.len() > 10, "{seen:?}");
    for none in ["/page/x.js", "/page/..%2Ftable.rs", "/page/"] {
        assert_eq!(get(none).await.status, 404, "{none}");
    }
}

#[tokio::test]
async fn a_token_is_told_what_it_may_do() {
    let world = World::new().await;
    for scope in [TokenScope::Read, TokenScope::Write, TokenScope::Admin] {
        let token = world.token("acme", scope, None).await;
        let asked = with_token(request(&Method::GET, "/v1/token"), &token);
        let said = world.ask(asked).await.body;
        assert_eq!(
            (&said["tenant"], &said["scope"]),
            (&json!("acme"), &json!(scope))
        );
        let secret = token.rsplit('_').next().unwrap();
        assert!(!said.to_string().contains(secret));
    }
}

#[test]
fn the_document_describes_every_route_and_refers_to_what_it_has() {
    let document = openapi::document();
    let mut names = BTreeSet::new();
    for route in table::routes() {
        let method = route.method.as_str().to_ascii_lowercase();
        let operation = &document["paths"][route.path][&method];
        assert_eq!(operation["operationId"], route.name, "{}", route.path);
        assert!(names.insert(route.name), "{} stands twice", route.name);
        let parameters = operation["parameters"].as_array().unwrap();
        let is_null = |one: &Value| one["schema"].get("default").is_some_and(Value::is_null);
        assert!(!parameters.iter().any(is_null), "{}", route.path);
        let words = |one: &Value| {
            one["schema"]["enum"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let mut words = parameters.iter().flat_map(words);
        assert!(!words.any(|word| word.is_null()), "{}", route.path);
        let of_path = |one: &&Value| one["in"] == "path" && one["required"] == true;
        let in_path = route.path.matches('{').count();
        assert_eq!(
            parameters.iter().filter(of_path).count(),
            in_path,
            "{}",
            route.path
        );
        let needs_token = route.access.scope().is_some();
        assert_eq!(
            operation["security"].is_array(),
            needs_token,
            "{}",
            route.path
        );
    }
    let text = document.to_string();
    let refers = text.split("\"$ref\":\"#").skip(1);
    let mut count = 0;
    for reference in refers {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        count += 1;
    }
    assert!(count > table::routes().len());
}
