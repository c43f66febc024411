//! A real sshd on loopback, with keys of its own and for this user alone.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use remote::Destination;
use rustix::process::{Pid, Signal, kill_process_group};

/// Accepts connections and gives each an `sshd -i`.
pub(crate) struct Sshd {
    folder: tempfile::TempDir,
    port: u16,
    connections: Arc<Mutex<Vec<Child>>>,
}

impl Sshd {
    /// None where there is no sshd.
    pub(crate) fn start() -> Option<Self> {
        let program = ["/usr/sbin/sshd", "/usr/bin/sshd"].map(Path::new);
        let Some(program) = program.into_iter().find(|path| path.exists()) else {
            suite::skip("there is no sshd (Debian's openssh-server)");
            return None;
        };
        if rustix::process::geteuid().is_root() {
            // Where it puts its unprivileged half; the service's unit makes it.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for key in ["host_key", "user_key", "other_key"] {
            keygen(&path(key));
        }
        fs::copy(path("user_key.pub"), path("authorized_keys")).unwrap();
        // Users have a home of their own there, and share the guest images.
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let images = cache.expect("tests run with a home").join("vmlab/images");
        fs::create_dir_all(path("home/.cache/vmlab")).unwrap();
        std::os::unix::fs::symlink(images, path("home/.cache/vmlab/images")).unwrap();
        let config = format!(
            "HostKey {0}/host_key\nAuthorizedKeysFile {0}/authorized_keys\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             SetEnv HOME={0}/home XDG_CACHE_HOME={0}/home/.cache\n",
            folder.path().display()
        );
        fs::write(path("sshd_config"), config).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let host_key = fs::read_to_string(path("host_key.pub")).unwrap();
        let other_key = fs::read_to_string(path("other_key.pub")).unwrap();
        fs::write(path("known_hosts"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
        fs::write(path("wrong_hosts"), format!("[127.0.0.1]:{port} {other_key}")).unwrap();
        fs::write(path("no_hosts"), "").unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let config = path("sshd_config");
        let accepted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = OwnedFd::from(stream.unwrap());
                let child = serve(program, &config, stream).unwrap();
                accepted.lock().unwrap_or_else(PoisonError::into_inner).push(child);
            }
        });
        Some(Self { folder, port, connections })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where it is, for one that has the right keys.
    pub(crate) fn destination(&self) -> Destination {
        Destination {
            user: None,
            host: "127.0.0.1".to_owned(),
            port: Some(self.port),
            identity: Some(self.path("user_key")),
            known_hosts: Some(self.path("known_hosts")),
        }
    }

    /// Ends all connections, as a machine does that dies. An ordinary user's sshd has two
    /// processes, and the second one has the connection.
    pub(crate) fn cut(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for mut child in connections.drain(..) {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.cut();
    }
}

fn keygen(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path);
    assert!(command.status().unwrap().success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn serve(program: &Path, config: &Path, stream: OwnedFd) -> io::Result<Child> {
    Command::new(program)
        .arg("-i")
        .arg("-f")
        .arg(config)
        .stdin(stream.try_clone()?)
        .stdout(stream)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}
