//! The same tools over HTTP, for clients that have a token: the transport that the protocol calls streamable, without sessions of its own.
//!
//! *Always true:* nothing is kept between two requests but how many calls of a client run at once. Who may ask is decided before a
//! request comes here.

use super::Server;
use bytes::Bytes;
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What answers one client.
type ForClient = StreamableHttpService<Server, NeverSessionManager>;

/// One workspace for many clients, each of which sends whole requests.
pub(crate) struct OverHttp {
    server: Server,
    clients: Mutex<HashMap<String, ForClient>>,
}

impl fmt::Debug for OverHttp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OverHttp")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl OverHttp {
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            clients: Mutex::default(),
        }
    }

    /// Answers a message of a client, who has so many calls at once for itself.
    pub(crate) async fn answer(
        &self,
        client: &str,
        request: http::Request<Full<Bytes>>,
    ) -> http::Response<BoxBody<Bytes, Infallible>> {
        let service = {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let service = clients.entry(client.to_owned());
            service.or_insert_with(|| self.for_client()).clone()
        };
        service.handle(request).await
    }

    fn for_client(&self) -> ForClient {
        let server = self.server.for_another();
        let mut config = StreamableHttpServerConfig::default().disable_allowed_hosts();
        config.legacy_session_mode = false;
        config.json_response = true;
        StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config)
    }
}
