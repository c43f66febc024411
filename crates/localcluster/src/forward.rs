//! A way through a socket that was made in another network namespace: who connects there
//! reaches a server here.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Connects everybody who comes to `listener` with `server`, until the process ends.
pub(crate) fn forward(listener: TcpListener, server: SocketAddr) {
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A server that does not answer closes the connection.
            thread::spawn(move || drop(join(&client, server)));
        }
    });
}

fn join(client: &TcpStream, server: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let back = thread::spawn(move || pass(&from_client, &to_server));
    pass(&server, client);
    let _ = back.join();
    Ok(())
}

/// Passes on what comes until its end, and that end.
fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    // Either end may break off: both directions end then.
    if io::copy(&mut from, &mut to).is_err() {
        let _ = from.shutdown(Shutdown::Both);
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn both_directions_reach_their_end() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let entrance = listener.local_addr().unwrap();
        forward(listener, server.local_addr().unwrap());
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
