//! One request, from its head to its answer.

use super::answer::{AnswerBody, Content, whole};
use super::auth::{Caller, Tokens};
use super::endpoint::{Access, Asked, Call, Reply, Route};
use super::hosts::AllowedHosts;
use super::limits::{RequestLimits, TenantShares};
use super::metrics::{MetricsSettings, ServiceMetrics, shows_token};
use super::operations::{Answered, Operations, Recorded};
use super::parameters::{add_query, decoded};
use super::problem::{Problem, ProblemCode};
use super::routes::directory::OwnDirectory;
use super::routes::health::Readiness;
use super::routes::mcp::{Workspaces, protocol_headers};
use super::routes::stats::CountedTenants;
use super::work::WorkCount;
use super::{openapi, table};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_MATCH, LOCATION, RETRY_AFTER};
use http::header::{WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use serde_json::{Map, Value};
use stasis_engine::host_roots::HostRoots;
use stasis_engine::kind::session::SessionHost;
use stasis_engine::metrics::SampleSink;
use stasis_engine::model::digest::RequestDigest;
use stasis_engine::model::format::request::{IdempotencyKey, RequestMade};
use stasis_engine::model::format::token::BearerToken;
use stasis_engine::model::id::Generation;
use stasis_engine::model::rng::Rng;
use stasis_engine::model::time::Clock;
use stasis_engine::open::Engine;
use stasis_engine::stored::LookingHost;
use std::error::Error as StdError;
use std::str::FromStr as _;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tracing::field::{Empty, display};
use tracing::{Instrument as _, Span};

/// How large a body may be where none is taken.
const NO_BODY_BYTES: usize = 1 << 10;

/// What a request is counted as whose path is none of the table's.
const NO_ROUTE: &str = "none";

/// Whether those who reach the service need a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoTokens {
    /// They do.
    Refused,
    /// They are on this host and do not: everything is allowed to them.
    AllowedOnLoopback,
}

/// What answers requests.
#[derive(Debug)]
pub(crate) struct Service {
    engine: Engine,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    hosts: AllowedHosts,
    limits: RequestLimits,
    tokens: Tokens,
    shares: TenantShares,
    /// Of each path, the routes by their methods: places in the table.
    paths: matchit::Router<Vec<usize>>,
    document: Arc<Value>,
    readiness: Arc<Readiness>,
    counted: Arc<CountedTenants>,
    looking: Arc<LookingHost>,
    metrics: Arc<ServiceMetrics>,
    /// What is being done, also where nobody waits for it any more.
    work: WorkCount,
    /// What of it is written down.
    operations: Arc<Operations>,
    host: Option<SessionHost>,
    workspaces: Arc<Workspaces>,
    roots: Arc<HostRoots>,
    directory: Option<Arc<OwnDirectory>>,
}

/// What a service is made of.
#[derive(Debug)]
pub(crate) struct ServiceParts {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    /// The names that it is called by.
    pub(crate) hosts: AllowedHosts,
    pub(crate) limits: RequestLimits,
    pub(crate) no_tokens: NoTokens,
    /// What looking into snapshots takes of this host.
    pub(crate) looking: LookingHost,
}

/// A route, and the parameters that its path has.
struct Found {
    route: &'static Route,
    parameters: Map<String, Value>,
}

/// What may be done, as soon as its body is there.
struct Admitted {
    route: &'static Route,
    asked: Box<dyn Asked>,
    call: Call,
    /// What makes it the same as another one.
    key: Option<IdempotencyKey>,
    /// What was asked for, apart from the body.
    line: String,
    /// The tenant's room for it.
    permit: Option<OwnedSemaphorePermit>,
    /// How large its body may be.
    most_bytes: usize,
}

impl Service {
    pub(crate) fn new(parts: ServiceParts) -> Self {
        let ServiceParts {
            engine,
            clock,
            rng,
            hosts,
            limits,
            no_tokens,
            looking,
        } = parts;
        let mut by_path: Vec<(&str, Vec<usize>)> = Vec::new();
        for (at, route) in table::routes().iter().enumerate() {
            match by_path.iter_mut().find(|(path, _)| *path == route.path) {
                Some((_, places)) => places.push(at),
                None => by_path.push((route.path, vec![at])),
            }
        }
        let mut paths = matchit::Router::new();
        for (path, places) in by_path {
            let inserted = paths.insert(path, places);
            inserted.expect("the paths of the table do not contradict each other");
        }
        let none_needed = no_tokens == NoTokens::AllowedOnLoopback;
        Self {
            tokens: Tokens::new(engine.clone(), clock.clone(), none_needed),
            shares: TenantShares::new(limits.clone()),
            document: Arc::new(openapi::document()),
            readiness: Arc::new(Readiness::new(clock.clone())),
            counted: Arc::new(CountedTenants::new(clock.clone())),
            looking: Arc::new(looking),
            metrics: Arc::new(ServiceMetrics::new(
                MetricsSettings::default(),
                clock.clone(),
            )),
            work: WorkCount::default(),
            operations: Arc::new(Operations::new(engine.clone())),
            host: None,
            workspaces: Arc::default(),
            roots: Arc::default(),
            directory: None,
            engine,
            clock,
            rng,
            hosts,
            limits,
            paths,
        }
    }

    /// Counts under these names.
    #[must_use = "the service is not changed in place"]
    pub(crate) fn with_metrics(self, settings: MetricsSettings) -> Self {
        let metrics = Arc::new(ServiceMetrics::new(settings, self.clock.clone()));
        let engine = self.engine.clone().with_samples(metrics.sink());
        Self {
            engine,
            metrics,
            ..self
        }
    }

    /// Where whoever works beside it counts what he does.
    pub(crate) fn sample_sink(&self) -> SampleSink {
        self.metrics.sink()
    }

    /// The same for what lies on this host, too.
    #[must_use = "the service is not changed in place"]
    pub(crate) fn on_host(self, host: SessionHost) -> Self {
        Self {
            host: Some(host),
            ..self
        }
    }

    /// The same with workspaces of this host that models may work in.
    #[must_use = "the service is not changed in place"]
    pub(crate) fn with_workspaces(self, workspaces: Workspaces) -> Self {
        Self {
            workspaces: Arc::new(workspaces),
            ..self
        }
    }

    /// Shows this directory to whoever has this token, which no store knows.
    #[must_use = "the service is not changed in place"]
    pub(crate) fn with_directory(self, shown: OwnDirectory, token: &BearerToken) -> Self {
        Self {
            tokens: self.tokens.with_own(token),
            directory: Some(Arc::new(shown)),
            ..self
        }
    }

    /// The same for directories of this host beneath these.
    #[must_use = "the service is not changed in place"]
    pub(crate) fn with_roots(self, roots: HostRoots) -> Self {
        Self {
            roots: Arc::new(roots),
            ..self
        }
    }

    /// Counts the store now and then, until whoever waits for it ends it.
    pub(super) async fn count_store(&self) {
        self.metrics.scan_for_ever(&self.engine).await;
    }

    pub(super) fn operations(&self) -> &Operations {
        &self.operations
    }

    pub(super) fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// What is being done.
    pub(super) fn work(&self) -> &WorkCount {
        &self.work
    }

    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<AnswerBody>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let id = self.rng.op_id().to_string();
        let span = tracing::error_span!("request", id, by = Empty);
        let answering = async {
            let started = self.clock.uptime();
            let (head, body) = request.into_parts();
            let (method, path) = (head.method.clone(), head.uri.path().to_owned());
            let (route, shows_token) = (self.template(&path), shows_token(&head));
            let in_flight = self.metrics.begin();
            let response = match self.within_limit(self.answered(head, body)).await {
                Ok(reply) => rendered(reply),
                Err(problem) => {
                    self.metrics.refused(&problem, shows_token);
                    refused(problem, &id)
                }
            };
            drop(in_flight);
            let took = self.clock.uptime().saturating_sub(started);
            let status = response.status();
            self.metrics.answered((route, &method), status, took);
            let (took_ms, status) = (took.as_millis(), status.as_u16());
            // What stands behind the question mark may be what somebody was looking for.
            tracing::info!(%method, path, status, %took_ms, "answered");
            response
        };
        Box::pin(answering).instrument(span).await
    }

    /// Waits for an answer only so long.
    async fn within_limit<T>(
        &self,
        answered: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let limit = self.limits.answer_timeout;
        let late = |_| {
            let seconds = limit.as_secs();
            let said =
                format!("there was no answer within {seconds} s; a change that was begun goes on");
            Err(Problem::new(ProblemCode::TimedOut, said))
        };
        let answered = tokio::time::timeout(limit, answered).await;
        answered.unwrap_or_else(late)
    }

    async fn answered<B>(&self, head: Parts, body: B) -> Result<Reply<Content>, Problem>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let admitted = self.admitted(&head).await?;
        let body = self.body(body, admitted.most_bytes).await?;
        self.done(admitted, body).await
    }

    /// Everything that can be refused before the body is read.
    async fn admitted(&self, head: &Parts) -> Result<Admitted, Problem> {
        if !self.hosts.allow(&head.headers) {
            let said = "the Host or the Origin of the request is none that this service is called by; `--allow-host` adds one";
            return Err(Problem::new(ProblemCode::MisdirectedRequest, said));
        }
        let Found { route, parameters } = self.found(head)?;
        let (caller, permit) = match route.access {
            Access::Anybody => (Caller::Stranger, None),
            Access::Token(_) | Access::HostToken(_) => {
                let caller = self.tokens.caller(&head.headers).await?;
                Span::current().record("by", display(caller.actor()));
                let permit = self.shares.admit(caller.tenant(), self.clock.uptime())?;
                (caller, Some(permit))
            }
        };
        let asked = read(route, parameters, head.uri.query().unwrap_or_default())?;
        if let Some(tenant) = asked.tenant()
            && !caller.may_see(tenant)
        {
            return Err(Problem::nowhere());
        }
        ensure_allowed(route.access, &caller)?;
        let call = Call {
            engine: self.engine.clone(),
            caller,
            if_match: if_match(&head.headers)?,
            document: self.document.clone(),
            readiness: self.readiness.clone(),
            counted: self.counted.clone(),
            looking: self.looking.clone(),
            metrics: self.metrics.clone(),
            progress: Arc::default(),
            operations: self.operations.clone(),
            host: self.host.clone(),
            workspaces: self.workspaces.clone(),
            protocol: protocol_headers(&head.headers),
            roots: self.roots.clone(),
            directory: self.directory.clone(),
        };
        let most = self.limits.body_bytes;
        Ok(Admitted {
            route,
            asked,
            key: idempotency_key(head)?,
            line: line(head),
            call,
            permit,
            most_bytes: if route.body.is_some() {
                most
            } else {
                most.min(NO_BODY_BYTES)
            },
        })
    }

    /// Does it in a task of its own: whoever asked may hang up or wait no longer, and a change still comes to its end.
    async fn done(&self, admitted: Admitted, body: Vec<u8>) -> Result<Reply<Content>, Problem> {
        let Admitted {
            route,
            asked,
            call,
            key,
            line,
            permit,
            ..
        } = admitted;
        let ready = asked.with_body(&body)?;
        let work = self.work.begin();
        if let Some(scope) = route.access.scope()
            && (key.is_some() || route.answered == Answered::AsOperation)
        {
            let recorded = Recorded {
                key,
                made: RequestMade {
                    tenant: call.tenant()?,
                    route: route.name.parse().map_err(|why| Problem::bug(&why))?,
                    scope,
                    by: call.actor(),
                    request_sha256: RequestDigest::of(&[line.as_bytes(), b"\0", &body].concat()),
                },
                answered: route.answered,
                ready,
                call,
                held: (permit, work),
            };
            return self.operations.done(recorded).await;
        }
        let task = async move {
            let reply = ready(call).await;
            drop((permit, work));
            reply
        };
        let task = tokio::spawn(task.instrument(Span::current()));
        task.await.unwrap_or_else(|why| Err(Problem::bug(&why)))
    }

    /// The path of the table that a path is: what clients write in its place is in no label.
    fn template(&self, path: &str) -> &'static str {
        let found = self.paths.at(path).ok();
        let first = found.and_then(|found| found.value.first().copied());
        first.map_or(NO_ROUTE, |at| table::routes()[at].path)
    }

    fn found(&self, head: &Parts) -> Result<Found, Problem> {
        let path = head.uri.path();
        let found = self.paths.at(path).map_err(|_| Problem::nowhere())?;
        let mut parameters = Map::new();
        for (name, value) in found.params.iter() {
            let value = decoded(value).ok_or_else(Problem::nowhere)?;
            parameters.insert(name.to_owned(), Value::String(value));
        }
        let all = table::routes();
        let routes = || found.value.iter().map(|at| &all[*at]);
        let asked = match &head.method {
            &Method::HEAD => &Method::GET,
            method => method,
        };
        let route = routes().find(|route| route.method == *asked);
        let route = route.ok_or_else(|| {
            let methods = routes().flat_map(|route| match &route.method {
                &Method::GET => vec!["GET", "HEAD"],
                method => vec![method.as_str()],
            });
            let methods = methods.collect::<Vec<_>>().join(", ");
            let said = format!("this path takes {methods}");
            Problem::new(ProblemCode::MethodNotAllowed, said).with("allow", methods)
        })?;
        Ok(Found { route, parameters })
    }

    async fn body<B>(&self, body: B, most: usize) -> Result<Vec<u8>, Problem>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let reading = Limited::new(body, most).collect();
        let read = tokio::time::timeout(self.limits.read_timeout, reading).await;
        let late = |_| Problem::new(ProblemCode::RequestTimeout, "the body did not come in time");
        match read.map_err(late)? {
            Ok(read) => Ok(read.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => {
                let said = format!("a body has at most {most} bytes");
                Err(Problem::new(ProblemCode::TooLarge, said))
            }
            Err(_) => Err(Problem::new(
                ProblemCode::InvalidRequest,
                "the body could not be read to its end",
            )),
        }
    }
}

/// Reads the parameters of a route.
fn read(
    route: &Route,
    of_path: Map<String, Value>,
    query: &str,
) -> Result<Box<dyn Asked>, Problem> {
    let mut all = of_path.clone();
    add_query(&mut all, query)?;
    (route.read)(Value::Object(all)).map_err(|why| {
        // Of a name that no subject can have, there is none. What is missing is missing behind the question mark: the path has all of its own.
        let of_path = (route.read)(Value::Object(of_path));
        let is_wrong = |why: &serde_json::Error| !why.to_string().starts_with("missing field");
        if of_path.is_err_and(|why| is_wrong(&why)) {
            Problem::nowhere()
        } else {
            Problem::parameters(&why)
        }
    })
}

/// Refuses a token that does not allow it.
fn ensure_allowed(access: Access, caller: &Caller) -> Result<(), Problem> {
    let refused = |said: String| Err(Problem::new(ProblemCode::Forbidden, said));
    let Some(scope) = access.scope() else {
        return Ok(());
    };
    if !caller.may(scope) {
        return refused(format!("this needs a token with the scope `{scope}`"));
    }
    if access.is_of_host() && !caller.may_on_host() {
        let said = "this acts on the server's own host, and needs a token that was made with `stasis token create --host`";
        return refused(said.to_owned());
    }
    Ok(())
}

/// What a POST is known by, if it is to be done once: `Idempotency-Key`.
fn idempotency_key(head: &Parts) -> Result<Option<IdempotencyKey>, Problem> {
    let mut all = head.headers.get_all("idempotency-key").iter();
    let Some(one) = all.next().filter(|_| head.method == Method::POST) else {
        return Ok(None);
    };
    let key = IdempotencyKey::from_str(one.to_str().unwrap_or_default());
    match (key, all.next()) {
        (Ok(key), None) => Ok(Some(key)),
        (Ok(_), Some(_)) => Err(Problem::parameters(&"there is one Idempotency-Key")),
        (Err(why), _) => Err(Problem::parameters(&format!("Idempotency-Key: {why}"))),
    }
}

/// What was asked for, apart from the body.
fn line(head: &Parts) -> String {
    let seen = head.headers.get(IF_MATCH);
    let seen = seen.and_then(|seen| seen.to_str().ok()).unwrap_or_default();
    format!("{} {} {seen}", head.method, head.uri)
}

/// The generation that the one who asks has seen: `If-Match: "7"`.
fn if_match(headers: &HeaderMap) -> Result<Option<Generation>, Problem> {
    let mut all = headers.get_all(IF_MATCH).iter();
    let Some(one) = all.next() else {
        return Ok(None);
    };
    let text = one.to_str().unwrap_or_default();
    let number = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let number: Option<u64> = number.and_then(|number| number.parse().ok());
    match (number, all.next()) {
        (Some(number), None) => Ok(Some(Generation(number))),
        _ => Err(Problem::parameters(
            &"If-Match has one generation in quotes",
        )),
    }
}

fn rendered(reply: Reply<Content>) -> Response<AnswerBody> {
    let Content {
        status,
        media_type,
        location,
        headers,
        body,
    } = reply.answer;
    let mut response = Response::new(body);
    *response.status_mut() = status;
    common(response.headers_mut(), media_type);
    if let Some(location) = location.and_then(|at| HeaderValue::try_from(at).ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    for (name, value) in headers {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response.headers_mut().insert(name, value);
    }
    let tag = reply.generation.map(|at| format!("\"{at}\""));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::try_from(tag).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn refused(mut problem: Problem, id: &str) -> Response<AnswerBody> {
    problem.request_id = Some(id.to_owned());
    let text = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(whole(text));
    let status = problem.status();
    *response.status_mut() = status;
    let headers = response.headers_mut();
    common(headers, "application/problem+json");
    if problem.is_passing() {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let allow = problem.field("allow").and_then(Value::as_str);
    if let Some(allow) = allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
        headers.insert(ALLOW, allow);
    }
    response
}

fn common(headers: &mut HeaderMap, content: &'static str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
