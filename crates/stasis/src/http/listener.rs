//! Connections: who may open one, for how long its requests may take, and how all of them end.

use super::answer::Watched;
use super::service::Service;
use super::tls::{CurrentTls, Tls};
use super::work::WorkCount;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How large the head of a request may be.
const HEAD_BYTES: usize = 64 << 10;
/// How many header fields it may have.
const HEADERS: usize = 64;
/// For how long requests may go on that were being answered when we are asked to end.
const GRACE: Duration = Duration::from_secs(10);
/// How long somebody may take who takes an answer bit by bit.
const LONGEST_ANSWER: Duration = Duration::from_hours(1);
/// How long nobody is let in after the system had no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// An address that is listened at.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    /// How connections are encrypted, if they are.
    tls: Option<Tls>,
}

impl Listener {
    pub(crate) async fn open(address: SocketAddr, tls: Option<Tls>) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            address,
            tls,
        })
    }

    /// The address itself, also where any port was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers requests until `stop` is over; those that are being answered then come to their end, and what they began, too.
pub(crate) async fn serve(listener: Listener, service: Service, stop: impl Future<Output = ()>) {
    let service = Arc::new(service);
    let Listener { socket, tls, .. } = listener;
    let encrypted = tls.as_ref().map(Tls::current);
    let following = tls.map(|tls| tokio::spawn(tls.follow()));
    let room = Arc::new(Semaphore::new(service.limits().connections));
    let (open, stopping) = (WorkCount::default(), watch::Sender::new(false));
    let counting = tokio::spawn({
        let service = service.clone();
        async move { service.count_store().await }
    });
    let mut stop = std::pin::pin!(stop);
    loop {
        // Whoever does not fit waits in the queue of the system.
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            () = &mut stop => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
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
        let (service, stopping) = (service.clone(), stopping.subscribe());
        let (encrypted, held) = (encrypted.clone(), (permit, open.begin()));
        tokio::spawn(async move {
            match encrypted {
                None => answer_all(&service, stream, stopping).await,
                Some(tls) => answer_encrypted(&service, stream, &tls, stopping).await,
            }
            drop(held);
        });
    }
    drop(socket);
    counting.abort();
    stopping.send_replace(true);
    if let Some(following) = following {
        following.abort();
    }
    service.operations().end_streams();
    let ended = async {
        open.idle().await;
        service.work().idle().await;
    };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!("some requests were not answered, or not done, before the end");
    }
}

/// The same over TLS, as soon as both sides agree on it, for which there is as long as for the head of a request.
async fn answer_encrypted(
    service: &Arc<Service>,
    stream: TcpStream,
    tls: &CurrentTls,
    mut stopping: watch::Receiver<bool>,
) {
    let agreed = tokio::select! {
        agreed = tokio::time::timeout(service.limits().read_timeout, agree(stream, tls)) => agreed,
        _ = stopping.wait_for(|stops| *stops) => return,
    };
    match agreed {
        Ok(Ok(stream)) => answer_all(service, stream, stopping).await,
        Ok(Err(error)) => tracing::debug!(%error, "a client and the service agree on no TLS"),
        Err(_) => tracing::debug!("a client took too long to begin with TLS"),
    }
}

/// The handshake, with the certificate that is there now.
async fn agree(stream: TcpStream, tls: &CurrentTls) -> io::Result<TlsStream<TcpStream>> {
    // What TLS sends are small pieces, of which none waits for an answer.
    stream.set_nodelay(true)?;
    let settings = tls.borrow().clone();
    TlsAcceptor::from(settings).accept(stream).await
}

/// Answers what comes over one connection, until it ends. However slow the other side is, it does end: a connection takes requests for
/// only so long, and the last of them has as long as a request may take.
pub(super) async fn answer_all<S>(
    service: &Arc<Service>,
    stream: S,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let limits = service.limits();
    // Its head has to come, it has to be answered, and the answer has to be taken.
    let rest = limits.read_timeout * 2 + limits.answer_timeout;
    let taken = Arc::new(AtomicU64::new(0));
    let mut connection = std::pin::pin!(connection(service, stream, &taken));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stopping.wait_for(|stops| *stops) => None,
        () = tokio::time::sleep(limits.connection_life) => None,
    };
    let ended = if let Some(ended) = ended {
        Ok(ended)
    } else {
        connection.as_mut().graceful_shutdown();
        let ending = async {
            loop {
                let before = taken.load(Ordering::Relaxed);
                let ended = tokio::time::timeout(rest, connection.as_mut()).await;
                if ended.is_ok() || taken.load(Ordering::Relaxed) == before {
                    break ended;
                }
            }
        };
        let ended = tokio::time::timeout(LONGEST_ANSWER, ending).await;
        ended.and_then(std::convert::identity)
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended"),
        Err(_) => tracing::debug!("a connection was cut"),
    }
}

/// What a connection asks.
#[derive(Clone)]
struct Answerer {
    service: Arc<Service>,
    /// Pieces of answers that were taken.
    taken: Arc<AtomicU64>,
}

impl hyper::service::Service<Request<Incoming>> for Answerer {
    type Response = Response<Watched>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { service, taken } = self.clone();
        Box::pin(async move {
            let answer = service.answer(request).await;
            Ok(answer.map(|body| Watched::new(body, taken)))
        })
    }
}

fn connection<S>(
    service: &Arc<Service>,
    stream: S,
    taken: &Arc<AtomicU64>,
) -> http1::Connection<TokioIo<S>, Answerer>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let answerer = Answerer {
        service: service.clone(),
        taken: taken.clone(),
    };
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(service.limits().read_timeout)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answerer)
}
