//! Ways from one place to another: through a socket that was made in another network
//! namespace, or through one that is a file, which all namespaces see.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Where somebody comes in.
pub(crate) enum Entrance {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Where a server listens.
#[derive(Clone)]
pub(crate) enum Server {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connection of either kind.
enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Entrance {
    fn accept(&self) -> io::Result<Connection> {
        Ok(match self {
            Self::Tcp(listener) => Connection::of_tcp(listener.accept()?.0)?,
            Self::Unix(listener) => Connection::Unix(listener.accept()?.0),
        })
    }
}

impl Server {
    fn connect(&self) -> io::Result<Connection> {
        Ok(match self {
            Self::Tcp(address) => Connection::of_tcp(TcpStream::connect(address)?)?,
            Self::Unix(path) => Connection::Unix(UnixStream::connect(path)?),
        })
    }
}

impl Connection {
    fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shutdown(&self, how: Shutdown) {
        // Its other end may have done it.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

impl Read for &Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => (&mut &*stream).read(buffer),
            Connection::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => (&mut &*stream).write(bytes),
            Connection::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Between an accept that failed and the next.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// Connects everybody who comes to `entrance` with `server`, until the process ends.
pub(crate) fn forward(entrance: Entrance, server: Server) {
    thread::spawn(move || {
        loop {
            let Ok(client) = entrance.accept() else {
                // Who is gone before it was let in is no reason to let nobody in; nor is it
                // that no file is left, which takes until others end.
                thread::sleep(AFTER_FAILURE);
                continue;
            };
            let server = server.clone();
            // A server that does not answer closes the connection.
            thread::spawn(move || drop(join(&client, &server)));
        }
    });
}

fn join(client: &Connection, server: &Server) -> io::Result<()> {
    let server = server.connect()?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let back = thread::spawn(move || pass(&from_client, &to_server));
    pass(&server, client);
    let _ = back.join();
    Ok(())
}

/// Passes on what comes until its end, and that end.
fn pass(mut from: &Connection, mut to: &Connection) {
    // Either end may break off: both directions end then.
    if io::copy(&mut from, &mut to).is_err() {
        from.shutdown(Shutdown::Both);
    }
    to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_reach_their_end() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let entrance = listener.local_addr().unwrap();
        // Through a file between the two.
        let folder = tempfile::tempdir().unwrap();
        let middle = folder.path().join("sock");
        let second = UnixListener::bind(&middle).unwrap();
        forward(Entrance::Tcp(listener), Server::Unix(middle));
        forward(Entrance::Unix(second), Server::Tcp(server.local_addr().unwrap()));
        let mut client = TcpStream::connect(entrance).unwrap();
        client.write_all(b"asked").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        let mut said = String::new();
        accepted.read_to_string(&mut said).unwrap();
        assert_eq!(said, "asked");
        accepted.write_all(b"told").unwrap();
        drop(accepted);
        said.clear();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "told");
        // Nobody serves any more: the connection ends.
        drop(server);
        let mut client = TcpStream::connect(entrance).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}
