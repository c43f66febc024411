//! Sessions through a real sshd.

mod sshd;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remote::{
    CopyError, OpenError, Patience, RunError, SILENCE_LIMIT, SshOptions, SshSession, WaitFailure,
};
use sshd::Sshd;
use suite::{PATIENCE, Tier, needs, until};

fn never() -> bool {
    false
}

fn patience() -> Patience<'static> {
    Patience::new(PATIENCE, &never)
}

fn open(
    sshd: &Sshd,
    change: impl FnOnce(&mut remote::Destination),
) -> Result<SshSession, OpenError> {
    let mut destination = sshd.destination();
    change(&mut destination);
    let folder = sshd.path("");
    let options =
        SshOptions { folder: &folder, env: &[], interactive: false, silence_limit: SILENCE_LIMIT };
    SshSession::open(&destination, &options, patience())
}

#[test]
fn commands_run_there_and_failures_are_told_apart() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let session = open(&sshd, |_| ()).unwrap();
    assert_eq!(session.machine(), std::env::consts::ARCH);
    let odd = ["printf", "%s|", "a b", "it's", "$HOME", "back\\slash", "!", ""];
    let output = session.command(odd).run(patience()).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b|it's|$HOME|back\\slash|!||");

    // More than a pipe holds, both ways at once.
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    let output = session.command(["cat"]).input(bytes.clone()).run(patience()).unwrap();
    assert!(output.stdout == bytes);

    let (tell, heard) = std::sync::mpsc::channel();
    let failed = session
        .command(["sh", "-c", "echo first >&2; echo why >&2; exit 3"])
        .on_stderr(move |line| tell.send(line.to_owned()).unwrap())
        .run(patience())
        .unwrap_err();
    assert!(matches!(&failed, RunError::Failed { code: 3, said, .. } if said == "why"), "{failed}");
    assert_eq!(heard.iter().collect::<Vec<_>>(), ["first", "why"]);

    let own = session.command(["sh", "-c", "exit 255"]).run(patience()).unwrap_err();
    assert!(matches!(own, RunError::NoCode { .. }), "{own}");
    let missing = session.command(["no-such-program"]).run(patience()).unwrap_err();
    assert!(matches!(missing, RunError::Failed { code: 127, .. }), "{missing}");

    let endless = session.command(["yes"]).run(patience()).unwrap_err();
    let is_too_much = matches!(&endless, RunError::TooMuch { limit_bytes: 67_108_864, .. });
    assert!(is_too_much, "{endless}");

    let limit = Patience::new(Duration::from_millis(200), &never);
    let late = session.command(["sleep", "1000"]).run(limit).unwrap_err();
    let timed_out = |source| matches!(source, &WaitFailure::TimedOut(_));
    assert!(matches!(&late, RunError::GaveUp { source, .. } if timed_out(source)), "{late}");
    assert!(session.is_open());
}

#[test]
fn a_stream_ends_when_it_is_dropped_and_a_wait_when_it_is_cancelled() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let session = open(&sshd, |_| ()).unwrap();
    let ended = sshd.path("ended");
    let script = format!("cat; echo ended >'{}'", ended.display());
    let mut running = session.command(["sh", "-c", &script]).spawn().unwrap();
    let mut stdin = running.stdin().unwrap();
    stdin.write_all(b"ping\n").unwrap();
    let mut buffer = [0; 64];
    let length = running.read(&mut buffer, patience()).unwrap();
    assert_eq!(&buffer[..length], b"ping\n");

    let cancelled = AtomicBool::new(false);
    let is_cancelled = || cancelled.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| cancelled.store(true, Ordering::SeqCst));
        let error = running.read(&mut buffer, Patience::unlimited(&is_cancelled)).unwrap_err();
        let is_it = matches!(error, RunError::GaveUp { source: WaitFailure::Cancelled, .. });
        assert!(is_it, "{error}");
    });
    drop((stdin, running));
    until("the command there sees its input's end", || ended.exists().then_some(()));
}

#[test]
fn files_go_over_whole() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let session = open(&sshd, |_| ()).unwrap();
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    let here = sshd.path("here");
    fs::write(&here, &bytes).unwrap();
    let there = sshd.path("new folder/it's there").display().to_string();
    session.put(&here, &there, 0o750, patience()).unwrap();
    assert!(fs::read(&there).unwrap() == bytes);
    assert_eq!(fs::metadata(&there).unwrap().permissions().mode() & 0o777, 0o750);
    assert!(session.has_same(&here, &there, patience()).unwrap());
    fs::write(&here, [bytes.as_slice(), b"x"].concat()).unwrap();
    assert!(!session.has_same(&here, &there, patience()).unwrap());
    fs::write(&here, "").unwrap();
    session.put(&here, &there, 0o600, patience()).unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"");

    let refused = session.put(&here, "/proc/no/file", 0o600, patience()).unwrap_err();
    assert!(matches!(refused, CopyError::Remote { .. }), "{refused}");
    let parts = fs::read_dir(sshd.path("new folder")).unwrap().count();
    assert_eq!(parts, 1, "a part is left");
}

#[test]
fn who_cannot_connect_is_told_why() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let (folder, port) = (sshd.path(""), sshd.destination().port.unwrap());
    let at = |name: &str| Some(folder.join(name));
    let error = open(&sshd, |to| to.identity = at("other_key")).unwrap_err();
    assert!(matches!(error, OpenError::Denied { .. }), "{error}");
    let error = open(&sshd, |to| to.known_hosts = at("wrong_hosts")).unwrap_err();
    assert!(matches!(error, OpenError::HostKeyChanged { .. }), "{error}");
    let error = open(&sshd, |to| to.known_hosts = at("no_hosts")).unwrap_err();
    let command = format!("ssh -p {port}");
    assert!(matches!(error, OpenError::HostKeyUnknown { .. }), "{error}");
    assert!(error.to_string().contains(&command), "{error}");
    let error = open(&sshd, |to| to.host = "no-such-host.invalid".to_owned()).unwrap_err();
    assert!(matches!(error, OpenError::NoSuchHost { .. }), "{error}");
    // The first port belongs to tcpmux, which nobody runs.
    let error = open(&sshd, |to| to.port = Some(1)).unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    let path = folder.join("x".repeat(100));
    let options =
        SshOptions { folder: &path, env: &[], interactive: false, silence_limit: SILENCE_LIMIT };
    let error = SshSession::open(&sshd.destination(), &options, patience()).unwrap_err();
    assert!(matches!(error, OpenError::SocketPath { .. }), "{error}");
}

#[test]
fn a_lost_connection_is_no_failed_command() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let session = open(&sshd, |_| ()).unwrap();
    let mut running = session.command(["cat"]).spawn().unwrap();
    sshd.cut();
    assert_eq!(running.read(&mut [0; 8], patience()).unwrap(), 0);
    let error = running.finish(patience()).unwrap_err();
    assert!(matches!(error, RunError::Lost { .. }), "{error}");
    assert!(!session.is_open());
    let error = session.command(["true"]).run(patience()).unwrap_err();
    assert!(matches!(error, RunError::Lost { .. }), "{error}");
}
