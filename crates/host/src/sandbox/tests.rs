//! A sandbox on this machine: pCPUs that are its own, and what is put back.

use super::*;

/// A sandbox on the first pCPU that is allowed, if this machine lets us.
fn made(scratch: Option<&Scratch>) -> Option<(tempfile::TempDir, Sandbox)> {
    let folder = tempfile::tempdir().expect("temp folder");
    let owner = Owner::current("sandbox-test").expect("this process");
    let own = affinity::thread_affinity(std::process::id()).expect("own affinity");
    let pcpus: PcpuSet = own.iter().take(1).collect();
    let scratch = scratch.map(|scratch| (scratch, false));
    let wanted = SandboxRequest { pcpus: &pcpus, network: None, scratch };
    match Sandbox::new(&wanted, folder.path(), &owner) {
        Ok(sandbox) => Some((folder, sandbox)),
        Err(error) => {
            suite::skip(error);
            None
        }
    }
}

fn run(sandbox: &mut Sandbox, script: &str) -> Result<SandboxOutput, SandboxExecError> {
    let argv = ["sh", "-c", script].map(str::to_owned);
    let command = SandboxCommand {
        argv: &argv,
        env: &[],
        stdin: Some(b"from vmlab\n"),
        limit: suite::PATIENCE,
        max_output_bytes: 1 << 16,
    };
    sandbox.exec(&command, &|| false)
}

fn said(sandbox: &mut Sandbox, script: &str) -> String {
    let output = run(sandbox, script).expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status, &*stderr), (Ok(0), ""), "{script}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn it_is_empty_apart_and_on_its_pcpus() {
    let Some((_folder, mut sandbox)) = made(None) else { return };
    let pcpus = sandbox.pcpus().to_string();
    for (script, expected) in [
        (
            "pwd; ls -A /tmp /run /var/tmp /scratch",
            "/tmp\n/run:\n\n/scratch:\n\n/tmp:\n\n/var/tmp:",
        ),
        ("nproc", "1"),
        ("sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status", pcpus.as_str()),
        ("ls /sys/class/net >/dev/null; ip -o link | cut -d ' ' -f 2", "lo:"),
        ("ip -o link show up | wc -l", "1"),
        ("cat", "from vmlab"),
        ("echo $PATH | cut -d : -f 1; echo $HOME $LC_ALL", "/vmlab/bin\n/root C"),
        ("echo 1 >/dev/null && touch /tmp/a /var/log/b /root/c /dev/shm/d && echo made", "made"),
        // A later command sees what an earlier one made and started.
        ("ls /tmp; sleep 1000 >/dev/null 2>&1 & echo $!", "a\n"),
    ] {
        let text = said(&mut sandbox, script);
        if expected.ends_with('\n') {
            assert!(text.starts_with(expected), "{script}: {text}");
        } else {
            assert_eq!(text, expected, "{script}");
        }
    }
    let processes = said(&mut sandbox, "cat /proc/[0-9]*/comm | sort -u");
    assert!(processes.contains("sleep"), "{processes}");
    assert!(!processes.contains("systemd") && processes.lines().count() < 8, "{processes}");
}

#[test]
fn the_host_stays_as_it_is() {
    let Some((_folder, mut sandbox)) = made(None) else { return };
    for script in [
        "touch /etc/vmlab-was-here",
        "touch /usr/local/bin/vmlab-was-here",
        "mkdir -p /var/lib/vmlab-was-here",
        "echo 1 >/proc/sys/kernel/printk",
        "echo x >/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let output = run(&mut sandbox, script).expect("it runs");
        assert_ne!(output.status, Ok(0), "{script}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("ead-only") || text.contains("nonexistent"), "{script}: {text}");
    }
    let marker = "/tmp/vmlab-sandbox-marker";
    said(&mut sandbox, &format!("mkdir /elsewhere && touch {marker}"));
    for path in [marker, "/elsewhere", "/scratch/elsewhere", "/vmlab"] {
        assert!(!Path::new(path).exists(), "{path}");
    }
}

#[test]
fn the_scratch_disk_is_the_file_of_the_vms() {
    let scratch = match Scratch::new(64) {
        Ok(scratch) => scratch,
        Err(error) => {
            suite::skip(error);
            return;
        }
    };
    let Some((_folder, mut sandbox)) = made(Some(&scratch)) else { return };
    let mounted = said(&mut sandbox, "grep ' /scratch ' /proc/mounts | cut -d ' ' -f 1,3");
    let (device, kind) = mounted.split_once(' ').expect("two words");
    assert!(device.starts_with("/dev/loop") && kind == "ext4", "{mounted}");
    said(&mut sandbox, "echo text >/scratch/file && sync");
    let device = device.replace("/dev/", "/sys/block/");
    let backing = Path::new(&device).join("loop/backing_file");
    assert!(backing.exists());
    drop(sandbox);
    suite::until("the loop device goes with its last process", || {
        (!backing.exists()).then_some(())
    });
}

#[test]
fn failures_are_told_apart() {
    let Some((_folder, mut sandbox)) = made(None) else { return };
    let status = |sandbox: &mut Sandbox, script: &str| run(sandbox, script).expect("runs").status;
    assert_eq!(status(&mut sandbox, "exit 7"), Ok(7));
    assert_eq!(status(&mut sandbox, "kill -SEGV $$"), Err(11));
    let argv = ["no-such-program".to_owned()];
    let command = |argv, limit_ms, max_output_bytes| SandboxCommand {
        argv,
        env: &[],
        stdin: None,
        limit: Duration::from_millis(limit_ms),
        max_output_bytes,
    };
    let missing = sandbox.exec(&command(&argv, 600_000, 1000), &|| false);
    assert!(matches!(missing, Err(SandboxExecError::ProgramMissing)), "{missing:?}");
    let argv = ["echo", "more than ten bytes"].map(str::to_owned);
    let large = sandbox.exec(&command(&argv, 600_000, 10), &|| false);
    assert!(matches!(large, Err(SandboxExecError::OutputTooLarge)), "{large:?}");
    let argv = ["sh", "-c", "echo begun; sleep 1000 & exec sleep 1000"].map(str::to_owned);
    let long = sandbox.exec(&command(&argv, 5000, 10), &|| false);
    let Err(SandboxExecError::TimeLimit { output }) = long else { panic!("{long:?}") };
    assert_eq!(output.stdout, b"begun\n");
    // All in it was ended.
    let after = run(&mut sandbox, "true");
    assert!(matches!(after, Err(SandboxExecError::Gone { .. })), "{after:?}");
}

#[test]
fn cancelling_ends_it() {
    let Some((_folder, mut sandbox)) = made(None) else { return };
    let argv = ["sleep", "1000"].map(str::to_owned);
    let command = SandboxCommand {
        argv: &argv,
        env: &[],
        stdin: None,
        limit: suite::PATIENCE,
        max_output_bytes: 10,
    };
    let cancelled = sandbox.exec(&command, &|| true);
    assert!(matches!(cancelled, Err(SandboxExecError::Cancelled)), "{cancelled:?}");
}

#[test]
fn all_in_it_ends_with_the_pipe_from_vmlab() {
    let Some((_folder, mut sandbox)) = made(None) else { return };
    let time = format!("10000{}", std::process::id());
    said(&mut sandbox, &format!("setsid sleep {time} >/dev/null 2>&1 & echo started"));
    drop(sandbox.holder.stdin.take());
    assert!(sandbox.holder.wait().expect("it ends").code().is_some());
    let left = crate::proc::pids().into_iter().any(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words == format!("sleep\0{time}\0").as_bytes()
    });
    assert!(!left);
}

#[test]
fn pcpus_that_are_not_there_are_refused() {
    if let Err(error) = check() {
        suite::skip(error);
        return;
    }
    let folder = tempfile::tempdir().expect("temp folder");
    let owner = Owner::current("sandbox-test").expect("this process");
    let pcpus = PcpuSet::from_iter([0, 8000]);
    let wanted = SandboxRequest { pcpus: &pcpus, network: None, scratch: None };
    let error = Sandbox::new(&wanted, folder.path(), &owner).expect_err("8000 pCPUs");
    assert!(error.to_string().contains("8000"), "{error}");
}

#[test]
fn its_first_process_waits_for_all_others() {
    let Some((_folder, mut sandbox)) = made(None) else { return };
    said(&mut sandbox, "setsid sh -c 'while :; do :; done' >/dev/null 2>&1 & echo started");
    assert!(sandbox.end(), "it ended with somebody left, whose time nobody has");
}
