//! The server of `rsgen serve`: a listener, connections with limits of time and number, and an end that waits.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{sleep, timeout};

use super::app::{App, Phase};
use super::connections::{Connection, Connections, Stage};
use super::hosts::Rule;
use super::options::ServeOptions;
use super::routes;
use super::socket::Socket;
use crate::engine::Interrupt;
use crate::error::{Error, Result};
use crate::generator::Generator;

/// The most bytes and lines of the head of a request.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// How long to wait when no connection can be accepted, because the system has no more of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait until a connection that was closed has given its descriptor back.
const CLOSE_PAUSE: Duration = Duration::from_millis(1);
/// How long requests that ran into the end of the grace have for their last event.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a waiting thread looks for interrupts.
const POLL: Duration = Duration::from_millis(50);
/// The threads that read and write connections. They compute nothing.
const IO_THREADS: usize = 2;

/// A server that has its port, and no model yet: a taken port shows before a large model is loaded.
///
/// ```no_run
/// # #[cfg(feature = "bundled")] {
/// use rsgen::serve::{ServeOptions, Server};
///
/// let server = Server::bind(ServeOptions::default())?;
/// let running = server.start(rsgen::Generator::bundled()?)?;
/// println!("{} on {}", running.model(), running.url());
/// running.wait(&mut || false)?;
/// # }
/// # Ok::<(), rsgen::Error>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: ServeOptions,
    hosts: Rule,
    url: String,
}

/// A server that runs on threads of its own. Dropping it ends all requests.
#[derive(Debug)]
pub struct Running {
    runtime: Option<Runtime>,
    app: Arc<App>,
    url: String,
    ended: Arc<Ended>,
}

/// Whether a server has ended, for threads that wait.
#[derive(Debug, Default)]
struct Ended {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    fn set(&self) {
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self, at_most: Duration) -> bool {
        let ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(ended, at_most, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    /// `Config` when an option breaks its rule, when the address is unknown or taken, or when it can be reached from other
    /// machines and there is no key.
    pub fn bind(options: ServeOptions) -> Result<Self> {
        options.check()?;
        let (host, port) = (options.host.trim_matches(['[', ']']), options.port);
        let unknown = |error: &io::Error| {
            Error::config(format!(
                "`host` must be an address or a name of this machine, but {host:?} is none: {error}"
            ))
        };
        let addresses: Vec<SocketAddr> =
            (host, port).to_socket_addrs().map_err(|error| unknown(&error))?.collect();
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if !is_local && options.api_keys.is_empty() && !options.insecure_no_auth {
            return Err(Error::config(format!(
                "`host` must be 127.0.0.1 or another address of this machine alone, but is {host:?}, where others reach it; \
                 set `api_key`, or `insecure_no_auth` if everybody may use the model"
            )));
        }
        let listener = TcpListener::bind(&*addresses).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = listener.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::config(format!(
                "`port` {port} of {host} is in use; end the other program, or give another port; 0 takes a free one"
            )),
            io::ErrorKind::PermissionDenied => {
                Error::config(format!("`port` {port} needs more rights than this user has; give one from 1024 on"))
            }
            _ => unknown(&error),
        })?;
        let url = match address.ip() {
            ip if ip.is_unspecified() => format!("http://localhost:{}", address.port()),
            _ => format!("http://{address}"),
        };
        let hosts = Rule::of(&options, is_local);
        Ok(Self { listener, options, hosts, url })
    }

    /// The address, such as `http://127.0.0.1:8000`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves a model, on threads of its own.
    ///
    /// # Errors
    /// `Capacity` when the system has no more threads.
    pub fn start(self, generator: Generator) -> Result<Running> {
        let Self { listener, options, hosts, url } = self;
        let app = Arc::new(App::new(generator, options, hosts));
        let no_threads = |error: io::Error| {
            Error::capacity(format!("the server's threads cannot be started; end other programs: {error}"))
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .max_blocking_threads(app.options.max_requests.saturating_mul(4).clamp(64, 4096))
            .thread_name("rsgen-serve")
            .enable_all()
            .build()
            .map_err(no_threads)?;
        let (shared, ended) = (Arc::clone(&app), Arc::<Ended>::default());
        let when_done = Arc::clone(&ended);
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(no_threads)?
        };
        runtime.spawn(async move {
            serve(listener, shared).await;
            when_done.set();
        });
        Ok(Running { runtime: Some(runtime), app, url, ended })
    }
}

impl Running {
    /// The address, such as `http://127.0.0.1:8000`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The model's name in the API.
    pub fn model(&self) -> &str {
        &self.app.model
    }

    /// Ends the server: it takes no more requests, and finishes those that run within the time of grace.
    pub fn stop(&self) {
        self.app.enter(Phase::Draining);
    }

    /// Waits for the end of the server, or until `interrupted`, which is asked every 50 milliseconds, returns true.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; the server goes on.
    pub fn wait(&self, interrupted: &mut Interrupt<'_>) -> Result<()> {
        while !self.ended.wait(POLL) {
            if interrupted() {
                return Err(Error::cancelled());
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.app.enter(Phase::Ended);
        if let Some(runtime) = self.runtime.take() {
            match Handle::try_current() {
                // An asynchronous task must not wait.
                Ok(_) => runtime.shutdown_background(),
                Err(_) => runtime.shutdown_timeout(LAST_WORDS),
            }
        }
    }
}

/// Accepts connections until the server drains, then finishes what runs.
async fn serve(listener: tokio::net::TcpListener, app: Arc<App>) {
    let (connections, graceful) = (Connections::new(), GracefulShutdown::new());
    let router = routes::of_server(&app);
    let mut http = http1::Builder::new();
    // The socket has the time limit of heads; this one is for idle connections.
    http.timer(TokioTimer::new()).header_read_timeout(app.options.idle_timeout);
    http.max_header_size(MAX_HEAD).max_headers(MAX_HEADERS);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.reached(Phase::Draining) => break,
        };
        let Ok((stream, _)) = accepted else {
            // Most likely there are no more descriptors.
            sleep(if connections.close_oldest() { CLOSE_PAUSE } else { ACCEPT_PAUSE }).await;
            continue;
        };
        if connections.len() >= app.options.max_connections && !connections.close_oldest() {
            continue;
        }
        // Tokens are small, and each is to leave at once.
        let _ = stream.set_nodelay(true);
        let options = &app.options;
        connections.spawn(|connection| {
            let socket =
                Socket::new(stream, connection.clone(), options.header_timeout, options.write_timeout);
            let router = TowerToHyperService::new(router.clone());
            let service = service_fn(move |request| answer(router.clone(), connection.clone(), request));
            graceful.watch(http.serve_connection(TokioIo::new(socket), service))
        });
    }
    drop(listener);
    connections.close_unheard();
    let mut finished = pin!(graceful.shutdown());
    tokio::select! {
        () = &mut finished => return,
        () = sleep(app.options.grace) => {}
        () = app.reached(Phase::Ended) => {}
    }
    app.enter(Phase::Ended);
    let _ = timeout(LAST_WORDS, finished).await;
}

/// Answers a request, and keeps track of what its connection does.
async fn answer(
    router: TowerToHyperService<Router>,
    connection: Connection,
    mut request: Request<Incoming>,
) -> Result<hyper::Response<Answer>, Infallible> {
    connection.set(Stage::Reading);
    request.extensions_mut().insert(connection.clone());
    let response = router.call(request).await?;
    connection.change(Stage::Reading, Stage::Answering);
    Ok(response.map(|body| Answer { body, connection }))
}

/// The body of an answer. The connection is idle when it is dropped.
struct Answer {
    body: Body,
    connection: Connection,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.set(Stage::Idle);
    }
}
