//! The server of `rsgen serve`: a listener, connections with limits of time and number, and a graceful
//! shutdown.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Version, header};
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connections::{Connection, Connections, Flag, Stage};
use super::defects::TOO_MANY;
use super::hosts::Rule;
use super::models::Models;
use super::options::ServeOptions;
use super::routes;
use super::served::ServedModel;
use super::socket::Socket;
use super::sse;
use super::state::{Phase, ServerState};
use crate::engine::Interrupt;
use crate::generator::Generator;
use rsgen_core::error::{Error, Result};
use rsgen_core::message;

/// The most bytes and lines of the head of a request.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// The pause after a failed accept, when the system has run out of a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The pause in which a closed connection returns its descriptor.
const CLOSE_PAUSE: Duration = Duration::from_millis(1);
/// The time that requests have for their last event when the grace period is over.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a waiting thread looks for interrupts.
const POLL: Duration = Duration::from_millis(50);
/// The threads that read and write connections. They compute nothing.
const IO_THREADS: usize = 2;

/// A server bound to its port: a taken port is an error before a large model is loaded.
///
/// ```no_run
/// # #[cfg(feature = "bundled")] {
/// use rsgen::serve::{ServeOptions, Server};
///
/// let loading = Server::bind(ServeOptions::default())?.listen()?;
/// let running = loading.start(rsgen::Generator::bundled()?);
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

/// A listening server without a model yet: it answers `/health/live`, and everything else with 503 and the
/// code `loading`. Dropping it closes the port.
#[derive(Debug)]
pub struct Loading(Threads);

/// A server that runs on threads of its own. Dropping it ends all requests.
#[derive(Debug)]
pub struct Running {
    threads: Threads,
    models: Arc<Models>,
}

/// The threads of a server; dropping it ends them.
#[derive(Debug)]
struct Threads {
    runtime: Option<Runtime>,
    state: Arc<ServerState>,
    /// The routes of the model, once it is loaded.
    routes: Arc<OnceLock<Router>>,
    ended: Arc<Ended>,
    url: String,
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
    /// Binds the port.
    ///
    /// # Errors
    /// `Config` when an option breaks its rule, when the address is unknown or taken, or when it can be
    /// reached from other machines and there is no key.
    pub fn bind(options: ServeOptions) -> Result<Self> {
        options.check()?;
        let (host, port) = (options.host.trim_matches(['[', ']']), options.port);
        let unknown = |error: &io::Error| {
            Error::config(format!(
                "must be an address or a name of this machine, but {host:?} is none: {error}"
            ))
            .about("host")
        };
        let addresses: Vec<SocketAddr> =
            (host, port).to_socket_addrs().map_err(|error| unknown(&error))?.collect();
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if !is_local && options.api_keys.is_empty() && !options.insecure_no_auth {
            return Err(Error::config(message!(
                "must be 127.0.0.1 or another address of this machine alone, but is {host:?}, where others \
                 reach it; set " {api_key} ", or " {insecure_no_auth} " if everybody may use the model"
            ))
            .about("host"));
        }
        let listener = TcpListener::bind(&*addresses).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = listener.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::config(format!(
                "{port} of {host} is in use; end the other program, or give another port; 0 takes a \
                 free one"
            ))
            .about("port"),
            io::ErrorKind::PermissionDenied => {
                Error::config(format!("{port} needs more rights than this user has; give one from 1024 on"))
                    .about("port")
            }
            _ => unknown(&error),
        })?;
        let url = match address.ip() {
            ip if ip.is_unspecified() => format!("http://localhost:{}", address.port()),
            _ => format!("http://{address}"),
        };
        let hosts = Rule::of(&options, is_local, Some(&url));
        Ok(Self { listener, options, hosts, url })
    }

    /// The address, such as `http://127.0.0.1:8000`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves a model, on threads of its own: [`Server::listen`] and [`Loading::start`].
    ///
    /// # Errors
    /// As [`Server::listen`].
    pub fn start(self, generator: Generator) -> Result<Running> {
        Ok(self.listen()?.start(generator))
    }

    /// Starts to listen, on threads of its own, before the model is loaded.
    ///
    /// With the feature `otel`, the span of each request goes to the collector that the environment names.
    ///
    /// # Errors
    /// `Capacity` when the system has no more threads; `Config` when the collector's address is none.
    pub fn listen(self) -> Result<Loading> {
        let Self { listener, options, hosts, url } = self;
        let state = ServerState::new(options, hosts);
        #[cfg(feature = "otel")]
        let state = state.observed_by(super::traces::from_environment()?);
        let state = Arc::new(state);
        let no_threads = |error: io::Error| {
            Error::capacity(format!("the server's threads cannot be started; end other programs: {error}"))
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .max_blocking_threads(state.options.max_requests.saturating_mul(4).clamp(64, 4096))
            .thread_name("rsgen-serve")
            .enable_all()
            .build()
            .map_err(no_threads)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(no_threads)?
        };
        let (routes, ended) = (Arc::<OnceLock<Router>>::default(), Arc::<Ended>::default());
        let served = serve(listener, Arc::clone(&state), Arc::clone(&routes));
        let when_done = Arc::clone(&ended);
        runtime.spawn(async move {
            served.await;
            when_done.set();
        });
        Ok(Loading(Threads { runtime: Some(runtime), state, routes, ended, url }))
    }
}

impl Loading {
    /// The address, such as `http://127.0.0.1:8000`.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Serves a model: requests are accepted from now on.
    pub fn start(self, generator: Generator) -> Running {
        let models = Models::one(Arc::clone(&self.0.state), generator);
        self.serve(models)
    }

    /// Serves several models: requests are accepted from now on, and load those that are not loaded yet. Requests that
    /// name none are for the first.
    ///
    /// # Errors
    /// `Config` when there is none, when two have one name, or when one is larger than `models_memory`.
    pub fn start_models(self, models: Vec<ServedModel>) -> Result<Running> {
        let models = Models::new(Arc::clone(&self.0.state), models)?;
        Ok(self.serve(models))
    }

    fn serve(self, models: Arc<Models>) -> Running {
        let Self(threads) = self;
        threads.routes.get_or_init(|| routes::of_server(&models));
        if let Some(runtime) = &threads.runtime {
            runtime.spawn(Arc::clone(&models).unload_idle());
        }
        Running { threads, models }
    }
}

impl Running {
    /// The address, such as `http://127.0.0.1:8000`.
    pub fn url(&self) -> &str {
        &self.threads.url
    }

    /// The model's name in the API; of several, that of the first.
    pub fn model(&self) -> &str {
        &self.models.names()[0]
    }

    /// Whether its first model is loaded and has an encoder, whose prompts are sources.
    pub fn has_encoder(&self) -> bool {
        let all = self.models.all();
        let app = all.first().and_then(|(_, status)| status.app());
        app.is_some_and(|app| app.generator.has_encoder())
    }

    /// The names of all models in the API.
    pub fn models(&self) -> &[String] {
        self.models.names()
    }

    /// Shuts down gracefully: refuses requests, is no longer ready, and finishes running requests within the
    /// grace period.
    pub fn stop(&self) {
        self.threads.state.enter(Phase::Draining);
    }

    /// Waits for the end of the server, or until `interrupted`, which is polled every 50 milliseconds,
    /// returns true.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; the server goes on. `Internal` when the server has ended itself after
    /// many defects, such as panics: restart the process.
    pub fn wait(&self, interrupted: &mut Interrupt<'_>) -> Result<()> {
        while !self.threads.ended.wait(POLL) {
            if interrupted() {
                return Err(Error::cancelled());
            }
        }
        if self.threads.state.defects.are_too_many() {
            return Err(Error::internal(format!(
                "the server ended itself after {TOO_MANY} defects within a minute; its log says more; start it again"
            )));
        }
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.state.enter(Phase::Ended);
        if let Some(runtime) = self.runtime.take() {
            match Handle::try_current() {
                // An asynchronous task must not block.
                Ok(_) => runtime.shutdown_background(),
                Err(_) => runtime.shutdown_timeout(LAST_WORDS),
            }
        }
    }
}

/// Accepts connections until the server drains, then finishes what runs. `routes` are there once the model
/// is.
async fn serve(listener: tokio::net::TcpListener, state: Arc<ServerState>, routes: Arc<OnceLock<Router>>) {
    let (connections, graceful) = (Connections::new(), GracefulShutdown::new());
    let (options, without_model) = (&state.options, routes::while_loading(&state));
    let mut http = http1::Builder::new();
    // The socket has the time limit of heads; this one is for idle connections.
    http.timer(TokioTimer::new()).header_read_timeout(options.idle_timeout);
    // The buffers of a connection are no larger.
    http.max_header_size(MAX_HEAD).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let connected = |http: &http1::Builder, stream: TcpStream, connection: Connection| {
        // Tokens are small, and each is to leave at once.
        let _ = stream.set_nodelay(true);
        let socket = Socket::new(stream, connection.clone(), options.header_timeout, options.write_timeout);
        let (routes, without_model) = (Arc::clone(&routes), without_model.clone());
        let service = service_fn(move |request| {
            let router = routes.get().unwrap_or(&without_model).clone();
            answer(TowerToHyperService::new(router), connection.clone(), request)
        });
        http.serve_connection(TokioIo::new(socket), service)
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = state.reached(Phase::Draining) => break,
            () = state.defects.too_many() => {
                log::error!(
                    target: "rsgen::serve",
                    "{TOO_MANY} defects within a minute: the server finishes what runs, and ends"
                );
                break;
            }
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Most likely the descriptors have run out.
            sleep(if connections.close_oldest() { CLOSE_PAUSE } else { ACCEPT_PAUSE }).await;
            continue;
        };
        if connections.len() >= options.max_connections && !connections.close_oldest() {
            continue;
        }
        connections.spawn(|connection| graceful.watch(connected(&http, stream, connection)));
    }
    state.enter(Phase::Draining);
    connections.close_unheard();
    let (mut finished, end) = (pin!(graceful.shutdown()), Instant::now() + options.grace);
    // Who connects now learns that the server is not ready, and delays nothing.
    http.keep_alive(false);
    loop {
        tokio::select! {
            () = &mut finished => return,
            () = sleep_until(end) => break,
            () = state.reached(Phase::Ended) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < options.max_connections || connections.close_oldest() => {
                    connections.spawn(|connection| connected(&http, stream, connection));
                }
                Ok(_) => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
    state.enter(Phase::Ended);
    let _ = timeout(LAST_WORDS, finished).await;
}

/// Answers a request, and tracks the stage of its connection: from the call on, before the answer is polled.
fn answer(
    router: TowerToHyperService<Router>,
    connection: Connection,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<hyper::Response<Answer>, Infallible>> {
    connection.set(Stage::Reading);
    connection.flag(Flag::Interim, request.version() == Version::HTTP_11);
    request.extensions_mut().insert(connection.clone());
    async move {
        let response = router.call(request).await?;
        connection.flag(Flag::Interim, false);
        connection.change(Stage::Reading, Stage::Answering);
        let kind = response.headers().get(header::CONTENT_TYPE);
        let ping = sse::ping(kind);
        Ok(response.map(|body| Answer { body, connection, ping }))
    }
}

/// The body of an answer. The connection is idle when it is dropped.
struct Answer {
    body: Body,
    connection: Connection,
    /// What keeps it open, if it is a stream.
    ping: Option<&'static [u8]>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending()
            && let Some(ping) = self.ping
            && self.connection.flag(Flag::Ping, false)
        {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(ping)))));
        }
        frame
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

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;
    use rsgen_core::error::ErrorKind;

    #[test]
    fn a_server_ends_itself_after_many_defects_and_says_why() {
        let options = ServeOptions { port: 0, ..ServeOptions::default() };
        let running = Server::bind(options).unwrap().start(Generator::bundled().unwrap()).unwrap();
        let address = running.url().strip_prefix("http://").unwrap().to_owned();
        for _ in 1..TOO_MANY {
            running.threads.state.panicked();
        }
        assert!(!running.threads.ended.wait(POLL), "fewer do not end it");
        running.threads.state.panicked();
        let error = running.wait(&mut || false).unwrap_err();
        assert!(error.kind() == ErrorKind::Internal && error.to_string().contains("10 defects"), "{error}");
        assert!(TcpListener::bind(address).is_ok(), "the port is free");
    }
}
