//! Tests of ownership.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use suite::{SharedThing, Tier, Turn, needs};

use super::*;

const GRACE: Duration = suite::PATIENCE;

/// A child that does not outlive its test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No other test's `vmlab clean` may end what these leave.
fn alone_with_the_dead() -> Turn {
    let turn = needs(Tier::Fast).alone_with(SharedThing::Leftovers).turn();
    turn.expect("the tier fast is always run")
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

/// A process that plays a vmlab; `Owner` is what its children would carry.
fn fake_vmlab(run_id: &str) -> (Guard, Owner) {
    let guard = Guard(sleeper().spawn().expect("sleep starts"));
    let pid = guard.0.id();
    let starttime_ticks = proc::stat(pid).expect("it runs").starttime_ticks;
    (guard, Owner { pid, starttime_ticks, ..Owner::current(run_id).expect("this process") })
}

/// A shell that leads a group of `owner`'s and has run `script` up to `echo ready`.
fn spawn_shell(owner: &Owner, script: &str) -> Guard {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped());
    owner.apply(&mut command);
    let mut guard = Guard(command.spawn().expect("sh starts"));
    let mut line = String::new();
    let stdout = guard.0.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("reads");
    assert_eq!(line, "ready\n");
    guard
}

fn orphans_of(owner: &Owner) -> Vec<Orphan> {
    let mut found = orphans();
    found.retain(|orphan| orphan.owner == *owner);
    found
}

fn kill_and_reap(guard: &mut Guard) {
    guard.0.kill().expect("SIGKILL");
    guard.0.wait().expect("reaped");
}

#[test]
fn marks_are_read_from_environments() {
    let check = |environ: &[u8], expected: Option<(u32, u64, &str, &str)>| {
        let found = parse_mark(environ);
        let found = found
            .as_ref()
            .map(|o| (o.pid, o.starttime_ticks, o.boot_id.as_str(), o.run_id.as_str()));
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(environ));
    };
    let good = Some((12, 3456, "ab-cd", "r 1"));
    check(b"A=b\0VMLAB_RUN=r 1\0VMLAB_OWNER=12:3456:ab-cd\0Z=\0", good);
    check(b"VMLAB_OWNER=12:3456:ab-cd\0VMLAB_RUN=r 1", good);
    check(b"", None);
    check(b"VMLAB_RUN=r\0", None);
    check(b"VMLAB_OWNER=12:3456:ab-cd\0", None);
    check(b"VMLAB_OWNER=12:3456:\0VMLAB_RUN=r\0", None);
    check(b"VMLAB_OWNER=12:3456\0VMLAB_RUN=r\0", None);
    check(b"VMLAB_OWNER=-1:3456:x\0VMLAB_RUN=r\0", None);
    check(b"VMLAB_OWNERS=12:3456:ab-cd\0VMLAB_RUN=r 1\0", None);
    check(b"XVMLAB_OWNER=12:3456:ab-cd\0VMLAB_RUN=r 1\0", None);
}

#[test]
fn mark_round_trips_through_a_process() {
    let owner = Owner::current("a run").expect("this process");
    assert!(owner.is_alive());
    let mut command = sleeper();
    owner.apply(&mut command);
    let child = Guard(command.spawn().expect("sleep starts"));
    assert_eq!(read_mark(child.0.id()), Some(owner.clone()));
    assert_eq!(proc::stat(child.0.id()).map(|stat| stat.pgrp), Some(child.0.id()));
    assert_eq!(orphans_of(&owner), []);
    assert!(matches!(Owner::current("a\0b"), Err(OwnerError::RunId(_))));
}

#[test]
fn owners_that_are_not_this_machines_now() {
    let me = Owner::current("run").expect("this process");
    assert!(!Owner { boot_id: "earlier".to_owned(), ..me.clone() }.is_alive());
    assert!(!Owner { starttime_ticks: me.starttime_ticks + 1, ..me.clone() }.is_alive());
    assert!(!Owner { pid: 4_194_305, ..me.clone() }.is_alive());
    let elsewhere = Owner { pid_namespace: Some(1), pid: 4_194_305, ..me };
    assert!(elsewhere.is_alive(), "its pid means nothing here");
}

#[test]
fn children_of_a_killed_vmlab_are_orphans_and_end() {
    let _turn = alone_with_the_dead();
    let (mut vmlab, owner) = fake_vmlab("killed");
    let mut command = sleeper();
    owner.apply(&mut command);
    let mut child = Guard(command.spawn().expect("sleep starts"));
    assert_eq!(orphans_of(&owner), [], "its owner lives");
    vmlab.0.kill().expect("SIGKILL");
    let pidfd = pidfd_open(raw_pid(owner.pid).expect("pid"), PidfdFlags::empty()).expect("open");
    assert!(wait_exit(&pidfd, Instant::now() + GRACE));
    assert_eq!(orphans_of(&owner).len(), 1, "a zombie owns nothing");
    vmlab.0.wait().expect("reaped");
    let [orphan] = orphans_of(&owner).try_into().expect("one");
    assert_eq!(orphan.pid, child.0.id());
    assert_eq!(orphan.command_line, "sleep 1000");
    assert_eq!(orphan.owner.run_id, "killed");
    assert_eq!(end_orphan(&orphan, GRACE).expect("ended"), OrphanEnd::Terminated);
    child.0.wait().expect("reaped");
    assert_eq!(orphans_of(&owner), []);
    assert_eq!(end_orphan(&orphan, GRACE).expect("ended"), OrphanEnd::AlreadyGone);
}

#[test]
fn a_reused_pid_is_not_touched() {
    let _turn = alone_with_the_dead();
    let (mut vmlab, owner) = fake_vmlab("reused");
    let mut command = sleeper();
    owner.apply(&mut command);
    let mut child = Guard(command.spawn().expect("sleep starts"));
    kill_and_reap(&mut vmlab);
    let [orphan] = orphans_of(&owner).try_into().expect("one");
    let earlier = Orphan { starttime_ticks: orphan.starttime_ticks - 1, ..orphan.clone() };
    assert_eq!(end_orphan(&earlier, GRACE).expect("left alone"), OrphanEnd::AlreadyGone);
    let moved = Orphan { process_group: 1, ..orphan };
    assert_eq!(end_orphan(&moved, GRACE).expect("left alone"), OrphanEnd::AlreadyGone);
    assert!(child.0.try_wait().expect("waits").is_none(), "it still runs");
}

#[test]
fn group_members_without_the_mark_are_found() {
    let _turn = alone_with_the_dead();
    let (mut vmlab, owner) = fake_vmlab("group");
    let shell =
        spawn_shell(&owner, "env -i sleep 1000 & env -i setsid sleep 1001 & echo ready; wait");
    kill_and_reap(&mut vmlab);
    // Until env has exec'ed, its process still has the mark of the shell.
    let unmarked = |pid: u32| read_mark(pid).is_none();
    let found = suite::until("the shell and its sleep", || {
        let found = orphans_of(&owner);
        let sleeps = found.iter().any(|orphan| orphan.command_line == "sleep 1000");
        (sleeps && found.len() == 2).then_some(found)
    });
    let inner = found.iter().find(|o| o.command_line == "sleep 1000").expect("found");
    assert!(unmarked(inner.pid) && inner.process_group == shell.0.id());
    let ended = end_orphans(|orphan| orphan.owner == owner, GRACE);
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended.iter().all(|(_, ended)| ended.is_ok()), "{ended:?}");
    assert_eq!(orphans_of(&owner), []);
    // The one that left group and mark is nobody's; the test cleans it up.
    for pid in proc::pids() {
        let mine = proc::stat(pid).is_some_and(|stat| stat.pgrp == pid);
        if mine && command_line(pid) == "sleep 1001" && unmarked(pid) {
            let _ = kill_process_group(raw_pid(pid).expect("pid"), Signal::KILL);
        }
    }
}

#[test]
fn stopped_and_stubborn_orphans_end() {
    let _turn = alone_with_the_dead();
    let (mut vmlab, owner) = fake_vmlab("stubborn");
    let mut command = sleeper();
    owner.apply(&mut command);
    let stopped = Guard(command.spawn().expect("sleep starts"));
    let pid = raw_pid(stopped.0.id()).expect("pid");
    rustix::process::kill_process(pid, Signal::STOP).expect("SIGSTOP");
    let stubborn = spawn_shell(&owner, "trap '' TERM; echo ready; while :; do sleep 1000; done");
    kill_and_reap(&mut vmlab);
    let find = |pid: u32| {
        orphans_of(&owner).into_iter().find(|orphan| orphan.pid == pid).expect("an orphan")
    };
    let ended = end_orphan(&find(stopped.0.id()), GRACE).expect("ended");
    assert_eq!(ended, OrphanEnd::Terminated);
    let ended = end_orphan(&find(stubborn.0.id()), Duration::ZERO).expect("ended");
    assert_eq!(ended, OrphanEnd::Killed);
    let _ = end_orphans(|orphan| orphan.owner == owner, Duration::ZERO);
    assert_eq!(orphans_of(&owner), []);
}

#[test]
fn stop_group_leaves_nobody() {
    let owner = Owner::current("stop").expect("this process");
    let check = |script: &str, grace: Duration| {
        let mut shell = spawn_shell(&owner, script);
        let group = shell.0.id();
        assert!(!group_members(group).is_empty());
        let status = stop_group(&mut shell.0, grace).expect("stopped");
        assert!(!status.success(), "{script}");
        assert!(group_members(group).is_empty(), "{script}");
        assert_eq!(stop_group(&mut shell.0, grace).expect("again"), status);
    };
    check("sleep 1000 & sleep 1000 & echo ready; wait", GRACE);
    check("trap '' TERM; sleep 1000 & echo ready; while :; do wait; done", Duration::ZERO);
    check("(trap '' TERM; sleep 1000; sleep 1000) & echo ready; wait", GRACE);
    check("echo ready; kill -STOP $$", GRACE);
    // The leader is dead already, its group is not.
    check("sleep 1000 & echo ready; kill -KILL $$", GRACE);
}
