//! The client's side of a session.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::spec::{ErrorContext as _, ProbeError};

use super::wire::{
    ClientHello, ClientTotals, ServerReport, TestSession, Welcome, read_line, write_line,
};

/// A session that a server agreed to.
pub(crate) struct OpenSession {
    pub(crate) server: SocketAddr,
    pub(crate) session: TestSession,
    control: TcpStream,
}

/// How long an answer may take beyond the test itself.
const PATIENCE: Duration = Duration::from_secs(30);

impl OpenSession {
    /// Finds the server, waiting for it as long as the options say, and tells
    /// it what comes.
    pub(crate) fn new(args: &Args, session: TestSession) -> Result<Self, ProbeError> {
        let (host, port) = (args.text("host"), args.count("port") as u16);
        let what =
            format!("reach the server {host} port {port} (is vmlab-probe net-server there?)");
        let deadline = Instant::now() + Duration::from_secs_f64(args.float("wait"));
        let (mut control, server) = loop {
            let found = (host, port).to_socket_addrs().and_then(|mut addresses| {
                addresses.next().ok_or_else(|| io::Error::other("the name has no address"))
            });
            let connected = found.and_then(|server| {
                TcpStream::connect_timeout(&server, Duration::from_secs(2))
                    .map(|stream| (stream, server))
            });
            match connected {
                Ok(connected) => break connected,
                Err(error) if Instant::now() >= deadline => return Err(error).tried(what),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let patience = PATIENCE + Duration::from_secs_f64(session.seconds);
        control.set_read_timeout(Some(patience)).tried("set a time limit")?;
        write_line(&mut control, &ClientHello::Control(session.clone()))
            .tried("begin a session")?;
        let welcome: Welcome = read_line(&mut control).tried("begin a session with the server")?;
        let own = env!("CARGO_PKG_VERSION");
        if welcome.version != own {
            let theirs = welcome.version;
            let text = format!("The server is version {theirs}, the client {own}");
            return Err(ProbeError::Refused(text));
        }
        Ok(Self { server, session, control })
    }

    /// A connection for the session's data.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write_line(&mut stream, &ClientHello::Data { session: self.session.id })?;
        Ok(stream)
    }

    /// Ends the session; what the server saw of it.
    pub(crate) fn finish(mut self, datagrams: u64) -> Result<ServerReport, ProbeError> {
        write_line(&mut self.control, &ClientTotals { datagrams }).tried("end the session")?;
        read_line(&mut self.control).tried("read what the server saw")
    }
}

/// A number for a session that no other client chose a moment ago.
pub(crate) fn session_id() -> u32 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // Its keys are random.
    std::hash::RandomState::new().build_hasher().finish() as u32
}
