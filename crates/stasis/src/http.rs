//! The service: verbs of the engine over HTTP (ADR 89).
//!
//! A request goes this way, and is refused at the first step that it does not pass:
//!
//! 1. the name of the host and the origin are ones that we are called by   2. there is a route, and it takes the method
//! 3. the token counts   4. the tenant may ask again already   5. the parameters are what the route takes
//! 6. the tenant that they name is the token's own   7. the token allows it   8. `If-Match` is a generation
//! 9. the body is there in time, and not too large   10. the body is what the route takes   11. the engine does it
//!
//! Until the body is there, somebody who hangs up ends it all. Then it is done in a task of its own: a change that was begun comes to its
//! end, whether somebody still waits for it or not, and the end of the service waits for it.
//!
//! *Always true:* routes, what they allow, and the document that describes them come from one table ([`table`]), so that there is no
//! route without a rule. Whatever belongs to another tenant is answered as if it were not there. No answer has a path of this host (but for the
//! tools of models, which name their workspace, and the directory that `stasis ui` shows), or says where the store is.

mod answer;
mod auth;
mod endpoint;
mod hosts;
mod limits;
mod listener;
mod metrics;
mod openapi;
mod operations;
mod parameters;
mod private;
mod problem;
mod routes;
mod service;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod work;

pub(crate) use hosts::AllowedHosts;
pub(crate) use limits::RequestLimits;
pub(crate) use listener::{Listener, serve};
pub(crate) use metrics::MetricsSettings;
pub(crate) use openapi::document as openapi;
pub(crate) use routes::directory::OwnDirectory;
pub(crate) use routes::mcp::Workspaces;
pub(crate) use service::{NoTokens, Service, ServiceParts};
pub(crate) use tls::{Tls, TlsFiles};
