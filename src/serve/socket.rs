//! The socket of a connection, with the time limits that HTTP libraries leave out: for the head of a request,
//! from its first byte, and for a client that reads nothing.
//!
//! A client that sends no more has left, or has shut down one side and waits for its answer. They look alike
//! until something is sent: only the system of one that has left refuses it.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connections::{Connection, Flag, Stage};

/// The bytes that the system buffers beyond what is on its way. With more, a client that reads nothing would
/// seem to read for minutes.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNSENT: u32 = 64 << 10;
/// How often a client that sends no more is looked after.
const LOOK: Duration = Duration::from_millis(10);
/// An interim response: it changes nothing for a client that waits.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A socket with time limits for its client.
pub(super) struct Socket {
    stream: TcpStream,
    connection: Connection,
    /// Runs while the head of a request is incomplete.
    head: Timer,
    /// Runs while the client reads nothing.
    stall: Timer,
    /// Runs once the client sends no more.
    look: Timer,
    /// Whether all of the answers so far is written.
    is_flushed: bool,
    is_half_closed: bool,
}

struct Timer {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    fn new(limit: Duration) -> Self {
        Self { limit, sleep: None }
    }

    /// Fails once the timer has expired.
    fn poll<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        sleep.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }

    fn stop(&mut self) {
        self.sleep = None;
    }
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: Connection, head: Duration, stall: Duration) -> Self {
        // Elsewhere the system's own limit holds.
        #[cfg(any(target_os = "android", target_os = "linux"))]
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        let [head, stall, look] = [head, stall, LOOK].map(Timer::new);
        Self { stream, connection, head, stall, look, is_flushed: true, is_half_closed: false }
    }

    /// Waits for the answer of a client that sends no more, and fails when it has left.
    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_half_closed, true) {
            if self.is_flushed && self.connection.flag(Flag::Interim, false) {
                // An error shows below.
                let _ = self.stream.try_write(INTERIM);
            } else {
                self.connection.flag(Flag::Ping, true);
            }
        }
        loop {
            if let Some(error) = self.stream.take_error()? {
                return Poll::Ready(Err(error));
            }
            if self.look.poll::<()>(context).is_pending() {
                return Poll::Pending;
            }
            self.look.stop();
        }
    }

    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.is_flushed = false;
        if written.is_pending() {
            let stalled = self.stall.poll(context);
            self.connection.flag(Flag::Stalled, stalled.is_ready());
            return stalled;
        }
        self.stall.stop();
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let is_end = matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() == before;
        match this.connection.stage() {
            Stage::Busy | Stage::Answering if is_end => return this.poll_left(context),
            // What has arrived of the body is read first: it may be whole.
            Stage::Reading if is_end && this.look.poll::<()>(context).is_pending() => return Poll::Pending,
            _ => {}
        }
        if read.is_pending() && this.connection.stage() == Stage::Head {
            return this.head.poll(context);
        }
        if this.connection.stage() != Stage::Head {
            this.head.stop();
        }
        if buffer.filled().len() > before {
            this.connection.change(Stage::Idle, Stage::Head);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.written(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // It is called when nothing is left to write.
        this.is_flushed = true;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Instant;

    use tokio::net::TcpListener;
    use tokio::runtime::Runtime;

    use super::super::connections::Connections;
    use super::*;

    /// The error that ends a socket whose client does nothing.
    fn error_of(work: impl AsyncFnOnce(Socket) -> io::Error + Send + 'static) -> ErrorKind {
        let limit = Duration::from_millis(30);
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let connection = Connections::new().connection();
            let begin = Instant::now();
            let error = work(Socket::new(stream, connection, limit, limit)).await;
            assert!(begin.elapsed() >= limit);
            error.kind()
        })
    }

    #[test]
    fn a_client_that_reads_nothing_is_disconnected() {
        let kind = error_of(async |mut socket| {
            let bytes = vec![0; 1 << 20];
            loop {
                if let Err(error) = poll_fn(|context| Pin::new(&mut socket).poll_write(context, &bytes)).await
                {
                    return error;
                }
            }
        });
        assert_eq!(kind, ErrorKind::TimedOut);
    }

    #[test]
    fn a_client_that_sends_nothing_is_disconnected() {
        let kind = error_of(async |mut socket| {
            let mut bytes = [0; 1];
            let mut buffer = ReadBuf::new(&mut bytes);
            poll_fn(|context| Pin::new(&mut socket).poll_read(context, &mut buffer)).await.unwrap_err()
        });
        assert_eq!(kind, ErrorKind::TimedOut);
    }
}
