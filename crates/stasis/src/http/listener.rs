//! Connections: who may open one, for how long its requests may take, and how all of them end.

use super::service::Service;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How large the head of a request may be.
const HEAD_BYTES: usize = 64 << 10;
/// How many header fields it may have.
const HEADERS: usize = 64;
/// For how long requests may go on that were being answered when we are asked to end.
const GRACE: Duration = Duration::from_secs(10);
/// How long nobody is let in after the system had no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// An address that is listened at.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// The address itself, also where any port was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers requests until `stop` is over; those that are being answered then come to their end.
pub(crate) async fn serve(listener: Listener, service: Service, stop: impl Future<Output = ()>) {
    let service = Arc::new(service);
    let room = Arc::new(Semaphore::new(service.limits().connections));
    let open = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        // Whoever does not fit waits in the queue of the system.
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            () = &mut stop => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let connection = open.watch(connection(&service, stream));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, open.shutdown()).await.is_err() {
        tracing::warn!("some requests were not answered before the end");
    }
}

/// What a connection asks.
#[derive(Clone)]
struct Answerer(Arc<Service>);

impl hyper::service::Service<Request<Incoming>> for Answerer {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

fn connection(
    service: &Arc<Service>,
    stream: TcpStream,
) -> http1::Connection<TokioIo<TcpStream>, Answerer> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(service.limits().read_timeout)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), Answerer(service.clone()))
}
