//! A route as a type: its fields are its parameters, and everything that is said of it follows from it.

use super::answer::{Answer, AnswerSchema, Content};
use super::auth::Caller;
use super::metrics::ServiceMetrics;
use super::operations::{Accepted, Answered, Operations};
use super::problem::{Problem, ProblemCode};
use super::routes::directory::OwnDirectory;
use super::routes::health::Readiness;
use super::routes::mcp::Workspaces;
use super::routes::stats::CountedTenants;
use http::{HeaderMap, Method};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stasis_engine::host_roots::HostRoots;
use stasis_engine::kind::session::SessionHost;
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{Generation, Label, TenantId};
use stasis_engine::open::Engine;
use stasis_engine::progress::Progress;
use stasis_engine::stored::LookingHost;
use std::pin::Pin;
use std::sync::Arc;

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Everybody who reaches the service: nothing of a tenant is in the answer.
    Anybody,
    /// Whoever has a token that allows at least this.
    Token(TokenScope),
    /// The same, and the token has to be one for what lies on the server's host.
    HostToken(TokenScope),
}

impl Access {
    /// What a token must allow, if one is needed.
    pub(super) fn scope(self) -> Option<TokenScope> {
        match self {
            Self::Anybody => None,
            Self::Token(scope) | Self::HostToken(scope) => Some(scope),
        }
    }

    /// Whether it is about what lies on the server's host.
    pub(super) fn is_of_host(self) -> bool {
        matches!(self, Self::HostToken(_))
    }
}

/// Whether a request says which generation it has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SeenBefore {
    /// There is none to see.
    Unused,
    /// It may.
    Optional,
    /// It must, where it changes something: else the answer is 428.
    Needed,
}

/// What a request without a body has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoBody {}

/// What is done, and for whom.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) engine: Engine,
    pub(super) caller: Caller,
    /// The generation that the one who asks has seen.
    pub(super) if_match: Option<Generation>,
    /// All routes, for the document that describes them.
    pub(super) document: Arc<Value>,
    /// Whether the store answered last.
    pub(super) readiness: Arc<Readiness>,
    /// What each tenant has.
    pub(super) counted: Arc<CountedTenants>,
    /// What looking into snapshots takes of this host.
    pub(super) looking: Arc<LookingHost>,
    /// What the service counts: whoever does something adds the samples of it.
    pub(super) metrics: Arc<ServiceMetrics>,
    /// How far it has come, for whoever looks.
    pub(super) progress: Arc<Progress>,
    /// Work that outlives its request.
    pub(super) operations: Arc<Operations>,
    /// The host that the server runs on, if it works there.
    pub(super) host: Option<SessionHost>,
    /// The workspaces there that models may work in.
    pub(super) workspaces: Arc<Workspaces>,
    /// What the request says of the protocol that models speak.
    pub(super) protocol: HeaderMap,
    /// Beneath which directories of that host it reads and writes for others.
    pub(super) roots: Arc<HostRoots>,
    /// The one directory of that host that it shows, if it is there for that.
    pub(super) directory: Option<Arc<OwnDirectory>>,
}

impl Call {
    /// Who does it, in the log of events.
    pub(super) fn actor(&self) -> Label {
        self.caller.actor()
    }

    /// Whose subjects are meant where the path does not say it.
    pub(super) fn tenant(&self) -> Result<TenantId, Problem> {
        match &self.caller {
            Caller::Holder(holder) => Ok(holder.tenant.clone()),
            Caller::Loopback => Ok(TenantId::default()),
            Caller::Stranger => Err(Problem::bug(&"a route for everybody asks for a tenant")),
        }
    }

    /// The host, for a route that is about what lies there.
    pub(super) fn host(&self) -> Result<&SessionHost, Problem> {
        let none = "this server works on no host";
        let host = self.host.as_ref();
        host.ok_or_else(|| Problem::new(ProblemCode::NotFound, none))
    }

    /// The generation that was seen; whoever destroys has to say it.
    pub(super) fn seen(&self) -> Result<Generation, Problem> {
        let said = "say which generation you have seen, as If-Match: \"7\"; the plan, which the same request without `confirm` answers, has it as its ETag";
        let missing = || Problem::new(ProblemCode::PreconditionRequired, said);
        self.if_match.ok_or_else(missing)
    }

    /// Refuses what was decided by somebody who saw something else; where there is no generation, nobody can have seen one.
    pub(super) fn ensure_seen(&self, now: Option<Generation>) -> Result<(), Problem> {
        match self.if_match {
            Some(seen) if Some(seen) != now => Err(Problem::moved(now)),
            _ => Ok(()),
        }
    }
}

/// An answer, and the generation of what it is about.
#[derive(Debug)]
pub(super) struct Reply<T> {
    pub(super) answer: T,
    pub(super) generation: Option<Generation>,
}

impl<T> From<T> for Reply<T> {
    fn from(answer: T) -> Self {
        Self {
            answer,
            generation: None,
        }
    }
}

impl<T> Reply<T> {
    /// The same about something that has a generation.
    pub(super) fn of(answer: T, generation: Option<Generation>) -> Self {
        Self { answer, generation }
    }
}

/// A route; the type itself is its parameters, of the path and of the query, and what is not a field of it is refused.
pub(super) trait Endpoint: DeserializeOwned + JsonSchema + Send + 'static {
    const METHOD: Method;
    const PATH: &'static str;
    /// What generated clients call it.
    const NAME: &'static str;
    const SUMMARY: &'static str;
    const ACCESS: Access;
    /// Whether whoever asks waits for the end.
    const ANSWERED: Answered = Answered::AtOnce;
    /// Whether the request says which generation it has seen.
    const SEEN: SeenBefore = SeenBefore::Unused;
    /// What is sent with it.
    type Body: DeserializeOwned + JsonSchema + Send + 'static;
    /// What it answers.
    type Answer: Answer;

    /// Whose data the path names, if it names any.
    fn tenant(&self) -> Option<&TenantId> {
        None
    }

    /// Does it.
    fn serve(
        self,
        body: Self::Body,
        call: &Call,
    ) -> impl Future<Output = Result<Reply<Self::Answer>, Problem>> + Send;
}

/// What was asked for, read and not yet done.
pub(super) trait Asked: Send {
    /// Whose data it is about, if the path says it.
    fn tenant(&self) -> Option<&TenantId>;

    /// Reads the body: nothing is begun that cannot be understood.
    fn with_body(self: Box<Self>, body: &[u8]) -> Result<ReadyWork, Problem>;
}

/// What is done for whoever asked; he may leave while it is.
pub(super) type ReadyWork = Box<dyn FnOnce(Call) -> PendingReply + Send>;

pub(super) type PendingReply =
    Pin<Box<dyn Future<Output = Result<Reply<Content>, Problem>> + Send>>;

/// One row of the table.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) answered: Answered,
    pub(super) seen: SeenBefore,
    /// Reads the parameters, which all are text.
    pub(super) read: fn(Value) -> Result<Box<dyn Asked>, serde_json::Error>,
    /// The parameters, the body if there is one, and the answer, for the document.
    pub(super) parameters: fn(&mut SchemaGenerator) -> Schema,
    pub(super) body: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(super) answer: fn(&mut SchemaGenerator) -> AnswerSchema,
}

struct Read<E>(E);

impl<E: Endpoint> Asked for Read<E> {
    fn tenant(&self) -> Option<&TenantId> {
        self.0.tenant()
    }

    fn with_body(self: Box<Self>, body: &[u8]) -> Result<ReadyWork, Problem> {
        let body = if body.is_empty() { b"{}" } else { body };
        let body: E::Body = serde_json::from_slice(body).map_err(|why| Problem::body(&why))?;
        Ok(Box::new(|call| {
            Box::pin(async move {
                let reply = self.0.serve(body, &call).await?;
                Ok(Reply::of(reply.answer.content()?, reply.generation))
            })
        }))
    }
}

/// The row of a route.
pub(super) fn route<E: Endpoint>() -> Route {
    let has_body = std::any::TypeId::of::<E::Body>() != std::any::TypeId::of::<NoBody>();
    let body: fn(&mut SchemaGenerator) -> Schema = E::Body::json_schema;
    Route {
        method: E::METHOD,
        path: E::PATH,
        name: E::NAME,
        summary: E::SUMMARY,
        access: E::ACCESS,
        answered: E::ANSWERED,
        seen: E::SEEN,
        read: |parameters| {
            let asked: E = serde_json::from_value(parameters)?;
            Ok(Box::new(Read(asked)))
        },
        parameters: E::json_schema,
        body: has_body.then_some(body),
        answer: match E::ANSWERED {
            Answered::AtOnce => E::Answer::described,
            Answered::AsOperation => Accepted::described,
        },
    }
}
