//! A fake QEMU: a process that only sleeps, and a thread that speaks QMP and
//! the agent's protocol on the sockets.

use std::io::{BufRead, BufReader, Write};

use suite::PATIENCE;

use super::*;

const LIMIT: Duration = suite::PATIENCE;

struct Fake {
    folder: tempfile::TempDir,
    launch: Launch,
    /// What the guest writes without end to its console or to the port on which
    /// it tells the end of commands.
    floods: Option<(Way, &'static [u8])>,
    /// What the monitor answers.
    monitor: fn(&str) -> String,
}

/// A way out of the guest on which nobody asks for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Ends,
    Console,
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let channels = Channels {
            qmp_socket: file("qmp"),
            agent_socket: file("agent"),
            done_socket: file("done"),
            console_socket: file("serial"),
            console_log: file("console"),
        };
        let args = vec!["1000".to_owned()];
        let launch = Launch {
            qemu: "/bin/sleep".into(),
            args,
            channels,
            env: Vec::new(),
            start_limit: START_LIMIT,
        };
        Self { folder, launch, floods: None, monitor: qmp }
    }

    /// Starts the VM, with `agent` answering the agent's requests by line; an
    /// empty answer is none.
    fn start(&self, agent: fn(&str) -> String) -> OwnedVm {
        self.try_start(agent).unwrap()
    }

    fn try_start(&self, agent: fn(&str) -> String) -> Result<OwnedVm, GuestFailure> {
        let serve = |path: PathBuf, greeting: &'static str, answer: fn(&str) -> String| {
            std::thread::spawn(move || {
                let mut socket = connect(&path);
                socket.write_all(greeting.as_bytes()).unwrap();
                for line in BufReader::new(socket.try_clone().unwrap()).split(b'\n') {
                    let Ok(line) = line else { return };
                    let line = String::from_utf8_lossy(&line);
                    // The VM may be gone by now.
                    if socket.write_all(answer(&line).as_bytes()).is_err() {
                        return;
                    }
                }
            })
        };
        let channels = &self.launch.channels;
        serve(channels.qmp_socket.clone(), "{\"QMP\": {}}\n", self.monitor);
        serve(channels.agent_socket.clone(), "left over\n", agent);
        let others = [
            (Way::Ends, &channels.done_socket, "hello\n"),
            (Way::Console, &channels.console_socket, ""),
        ];
        for (way, path, greeting) in others {
            match self.floods {
                Some((flooded, piece)) if flooded == way => {
                    let path = path.clone();
                    std::thread::spawn(move || {
                        let mut socket = connect(&path);
                        // Until the VM is gone.
                        while socket.write_all(piece).is_ok() {}
                    });
                }
                _ => drop(serve(path.clone(), greeting, |_| String::new())),
            }
        }
        OwnedVm::start(&self.launch, &Cancel::new())
    }
}

fn connect(path: &Path) -> UnixStream {
    suite::until("a socket to connect to", || UnixStream::connect(path).ok())
}

fn id(line: &str) -> u64 {
    serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap()
}

fn qmp(line: &str) -> String {
    let answer = if line.contains("query-cpus-fast") {
        r#"[{"cpu-index": 0, "thread-id": 42}]"#
    } else if line.contains("query-stats") {
        return format!(
            "{{\"id\": {}, \"error\": {{\"class\": \"CommandNotFound\", \"desc\": \"no\"}}}}\n",
            id(line)
        );
    } else if line.contains("info registers") {
        "\"CPU#0\\r\\nRAX=0\\r\\nRIP=ffffffff81a00000 II=0 CPL=0 HLT=1\\r\\n\""
    } else {
        "{}"
    };
    format!("{{\"event\": \"NOTHING_KNOWN\"}}\n{{\"return\": {answer}, \"id\": {}}}\n", id(line))
}

fn good_agent(line: &str) -> String {
    if line.contains("guest-sync-delimited") {
        let line = line.trim_start_matches(char::REPLACEMENT_CHARACTER);
        let request: Value = serde_json::from_str(line).unwrap();
        let id = &request["arguments"]["id"];
        return format!("\u{0}\n{{\"return\": 1}}\n{{\"return\": {id}}}\n");
    }
    if line.contains("guest-exec-status") {
        return "{\"return\": {\"exited\": true, \"exitcode\": 7, \"out-data\": \"b3V0\"}}\n"
            .into();
    }
    if line.contains("no-such") {
        return "{\"error\": {\"class\": \"GenericError\", \"desc\": \"not allowed\"}}\n".into();
    }
    "{\"return\": {\"pid\": 99}}\n".into()
}

#[test]
fn an_agent_that_forgot_the_question_is_asked_again() {
    let fake = Fake::new();
    let mut vm = fake.start(|line| {
        let is_first = line.contains(&SYNC_ID.to_string());
        if is_first { String::new() } else { good_agent(line) }
    });
    let cancel = Cancel::new();
    vm.wait_ready(LIMIT, &cancel).unwrap();
    // No answer to a question before is taken for another one's.
    let output = vm.exec(&GuestCommand::new(["x"], LIMIT), &cancel).unwrap();
    assert_eq!(output.status, ExecStatusCode::Exited(7));
}

#[test]
fn a_vm_is_talked_to() {
    let fake = Fake::new();
    let mut vm = fake.start(good_agent);
    let cancel = Cancel::new();
    assert_eq!(vm.vcpu_tids(), [42]);
    vm.wait_ready(LIMIT, &cancel).unwrap();
    assert!(vm.query_stats(&cancel).unwrap().is_empty());
    let output = vm.exec(&GuestCommand::new(["x"], LIMIT), &cancel).unwrap();
    assert_eq!((output.stdout_text().as_str(), output.status), ("out", ExecStatusCode::Exited(7)));
    let refused = vm.exec(&GuestCommand::new(["no-such"], LIMIT), &cancel).unwrap_err();
    assert!(matches!(&refused, GuestFailure::Agent { detail, .. } if detail == "not allowed"));
    assert!(!refused.is_final());
    let left = std::fs::read_dir(fake.folder.path()).unwrap().count();
    assert_eq!(left, 1, "only the console stays");
}

#[test]
fn a_silent_agent_never_answered_and_a_panic_on_the_console_explains_it() {
    let fake = Fake::new();
    let limit = Duration::from_millis(200);
    let mut vm = fake.start(|_| String::new());
    let error = vm.wait_ready(limit, &Cancel::new()).unwrap_err();
    assert_eq!(error, GuestFailure::NeverAnswered { limit });

    let mut vm = fake.start(|_| String::new());
    let panic = "[    1.0] Kernel panic - not syncing: VFS";
    vm.console.note(panic);
    let panic = &format!("{}{panic}", console::NOTE);
    let error = vm.wait_ready(limit, &Cancel::new()).unwrap_err();
    assert_eq!(error, GuestFailure::Panicked { detail: panic.to_owned() });
    assert!(error.is_final());
}

#[test]
fn a_monitor_that_says_nothing_has_the_limit_that_the_launch_says() {
    let mut fake = Fake::new();
    fake.monitor = |_| String::new();
    fake.launch.start_limit = Duration::from_millis(200);
    let error = fake.try_start(good_agent).unwrap_err();
    let GuestFailure::Died { detail } = error else { panic!("{error}") };
    assert!(detail.contains("did not answer within 0.2 s of its start"), "{detail}");
}

#[test]
fn what_an_agent_says_wrongly_is_its_failure() {
    let fake = Fake::new();
    let mut vm = fake.start(|line| {
        if line.contains("sync") { good_agent(line) } else { "{\"return\": 5}\n".into() }
    });
    let cancel = Cancel::new();
    vm.wait_ready(LIMIT, &cancel).unwrap();
    let error = vm.exec(&GuestCommand::new(["x"], LIMIT), &cancel).unwrap_err();
    assert!(error.to_string().contains("not understood"), "{error}");
}

#[test]
fn a_program_that_is_no_qemu_is_refused() {
    let fake = Fake::new();
    let check = |program: &str, args: &[&str], expected: &str| {
        let launch = Launch {
            qemu: program.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..fake.launch.clone()
        };
        let error = OwnedVm::start(&launch, &Cancel::new()).unwrap_err();
        let GuestFailure::Refused { detail } = error else { panic!("{error}") };
        assert!(detail.contains(expected), "{detail}");
    };
    check("/bin/sh", &["-c", "echo no such machine >&2; exit 1"], "no such machine");
    check("/bin/false", &[], "status 1");
    check("/no/such/qemu", &[], "/no/such/qemu");
}

#[test]
fn a_start_that_hangs_can_be_cancelled() {
    let fake = Fake::new();
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let canceller = std::thread::spawn(move || flag.cancel());
    let error = OwnedVm::start(&fake.launch, &cancel).unwrap_err();
    canceller.join().unwrap();
    assert_eq!(error, GuestFailure::Cancelled(crate::Cancellation));
}

const NO_END: &[u8] = &[b'x'; 4096];
const LINES: &[u8] = b"done\ndone\ndone\ndone\n";

#[test]
fn a_port_without_end_ends_the_vm_before_its_agent_answers() {
    for piece in [NO_END, LINES] {
        let fake = Fake { floods: Some((Way::Ends, piece)), ..Fake::new() };
        // It may be seen as early as while the monitor is asked.
        let started = fake.try_start(|_| String::new());
        let ready = started.and_then(|mut vm| vm.wait_ready(PATIENCE, &Cancel::new()));
        let error = ready.unwrap_err();
        let limit_bytes = ENDS_BUDGET.total_bytes;
        assert_eq!(error, GuestFailure::Flooded { port: ENDS_PORT.into(), limit_bytes });
        assert!(error.is_final() && error.to_string().contains("65536 bytes to org.vmlab.done.0"));
    }
}

#[test]
fn an_agent_without_end_ends_the_vm() {
    let fake = Fake::new();
    let started = fake.try_start(|_| "lie\n".repeat(1 << 20));
    let ready = started.and_then(|mut vm| vm.wait_ready(PATIENCE, &Cancel::new()));
    let error = ready.unwrap_err();
    let limit_bytes = GREETING_BUDGET.total_bytes;
    assert_eq!(error, GuestFailure::Flooded { port: AGENT_PORT.into(), limit_bytes });

    // More than any agent can say of a command.
    let mut vm = fake
        .start(|line| if line.contains("sync") { good_agent(line) } else { "x".repeat(50 << 20) });
    vm.wait_ready(PATIENCE, &Cancel::new()).unwrap();
    let error = vm.exec(&GuestCommand::new(["x"], PATIENCE), &Cancel::new()).unwrap_err();
    let port = AGENT_PORT.to_owned();
    assert!(matches!(&error, GuestFailure::Flooded { port: flooded, .. } if *flooded == port));
}

#[test]
fn a_monitor_without_end_ends_the_vm() {
    let monitor = |line: &str| match line {
        line if line.contains("query-stats") => {
            let event = json!({ "event": "GUEST_CRASHLOADED", "data": "x".repeat(1 << 20) });
            format!("{event}\n").repeat(65)
        }
        line => qmp(line),
    };
    let fake = Fake { monitor, ..Fake::new() };
    let mut vm = fake.start(good_agent);
    vm.wait_ready(PATIENCE, &Cancel::new()).unwrap();
    let error = vm.query_stats(&Cancel::new()).unwrap_err();
    let flooded = GuestFailure::Flooded { port: MONITOR_PORT.into(), limit_bytes: MAX_QMP_BYTES };
    assert_eq!(error, flooded);
    assert!(error.is_final());
}

#[test]
fn an_agent_that_falls_silent_ends_the_command_with_its_limit() {
    let fake = Fake::new();
    // The second says something without ever coming to its end.
    for silent in [
        (|line| if line.contains("sync") { good_agent(line) } else { String::new() })
            as fn(&str) -> String,
        |line| if line.contains("sync") { good_agent(line) } else { "{\"return\": ".into() },
    ] {
        let mut vm = fake.start(silent);
        vm.wait_ready(PATIENCE, &Cancel::new()).unwrap();
        let command = GuestCommand::new(["x"], Duration::from_millis(50));
        let error = vm.exec(&command, &Cancel::new()).unwrap_err();
        assert!(matches!(&error, GuestFailure::Hung { command, .. } if command == "guest-exec"));
        drop(vm);
        let kept = std::fs::read_to_string(&fake.launch.channels.console_log).unwrap();
        assert!(kept.contains("vmlab: CPU#0 RIP=ffffffff81a00000 CPL=0 HLT=1"), "{kept}");
    }
}

#[test]
fn a_command_that_never_ends_beside_a_port_without_end_is_ended() {
    let fake = Fake { floods: Some((Way::Ends, LINES)), ..Fake::new() };
    let started = fake.try_start(|line| match line {
        line if line.contains("sync") => good_agent(line),
        line if line.contains("status") => "{\"return\": {\"exited\": false}}\n".into(),
        _ => "{\"return\": {\"pid\": 99}}\n".into(),
    });
    let cancel = Cancel::new();
    // How far it comes before the flood is seen is nobody's promise.
    let ended = started.and_then(|mut vm| {
        vm.wait_ready(PATIENCE, &cancel)?;
        vm.exec(&GuestCommand::new(["x"], PATIENCE), &cancel)
    });
    let error = ended.unwrap_err();
    assert!(matches!(error, GuestFailure::Flooded { .. }), "{error}");
}

#[test]
fn a_console_without_end_costs_its_end_alone() {
    let fake = Fake { floods: Some((Way::Console, NO_END)), ..Fake::new() };
    let mut vm = fake.start(good_agent);
    let cancel = Cancel::new();
    vm.wait_ready(PATIENCE, &cancel).unwrap();
    let log = fake.launch.channels.console_log.clone();
    // Longer than the file ever is has gone through.
    while vm.console.seen_bytes() < 8 << 20 {
        let output = vm.exec(&GuestCommand::new(["x"], PATIENCE), &cancel).unwrap();
        assert_eq!(output.status, ExecStatusCode::Exited(7));
        assert!(std::fs::metadata(&log).unwrap().len() <= 2 << 20);
    }
    assert!(vm.console_tail(3).len() <= 64 << 10);
}

#[test]
fn a_command_that_can_not_be_killed_ran_out_of_its_time() {
    let fake = Fake::new();
    let mut vm = fake.start(|line| match line {
        line if line.contains("guest-exec-status") => "{\"return\": {\"exited\": false}}\n".into(),
        line if line.contains("guest-exec") => "{\"return\": {\"pid\": 7}}\n".into(),
        line => good_agent(line),
    });
    let cancel = Cancel::new();
    vm.wait_ready(PATIENCE, &cancel).unwrap();
    let limit = Duration::from_millis(50);
    let error = vm.exec(&GuestCommand::new(["x"], limit), &cancel).unwrap_err();
    // Its agent answered all the while.
    let expected = GuestFailure::TimeLimit { program: "x".into(), limit, output: Box::new(None) };
    assert_eq!(error, expected);
}

#[test]
fn what_an_agent_says_at_length_is_not_kept_at_length() {
    let fake = Fake::new();
    let mut vm = fake.start(|line| {
        let long = "long ".repeat(1 << 18);
        match line {
            line if line.contains("sync") => good_agent(line),
            line if line.contains("deep") => "[".repeat(1 << 20) + "\n",
            line if line.contains("wide") => {
                format!("{{\"return\": [{}0]}}\n", "0,".repeat(1 << 20))
            }
            _ => format!("{{\"error\": {{\"class\": \"x\", \"desc\": \"{long}\"}}}}\n"),
        }
    });
    let cancel = Cancel::new();
    vm.wait_ready(PATIENCE, &cancel).unwrap();
    for program in ["deep", "wide", "long"] {
        let error = vm.exec(&GuestCommand::new([program], PATIENCE), &cancel).unwrap_err();
        assert!(matches!(error, GuestFailure::Agent { .. }), "{program}: {error}");
        assert!(error.to_string().len() < 2000, "{program}");
    }
}
