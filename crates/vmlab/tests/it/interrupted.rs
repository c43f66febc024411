//! A run that is killed or interrupted: nothing acknowledged is lost, nothing
//! is left running, nothing of anybody else's is touched.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use suite::{SharedThing, Tier, needs};

use crate::lab::{events, said, vmlab};
use crate::running::{OwnedProcess, Study, assert_complete, owned_by, results, two_variants};

/// Processes that are none of vmlab's business.
struct Bystanders(Vec<Child>);

impl Bystanders {
    fn start(folder: &Path) -> Self {
        // By its name a QEMU, and with the mark of an owner that lives.
        let qemu = folder.join("qemu-system-x86_64");
        let sleep =
            ["/bin/sleep", "/usr/bin/sleep"].into_iter().find(|path| Path::new(path).exists());
        fs::copy(sleep.expect("there is a sleep"), &qemu).unwrap();
        let own = host::owner::Owner::current("a run that lives").unwrap();
        let start =
            |command: &mut Command| command.arg("1000").stdin(Stdio::null()).spawn().unwrap();
        Self(vec![
            start(&mut Command::new("sleep")),
            start(&mut Command::new(&qemu)),
            start(Command::new(&qemu).envs(own.env())),
        ])
    }

    fn are_alive(&mut self) -> bool {
        self.0.iter_mut().all(|child| child.try_wait().unwrap().is_none())
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn a_killed_run_is_resumed_without_loss() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    let study = Study::new(2, &two_variants(2));
    let dir = study.dir();
    let mut bystanders = Bystanders::start(study.folder());
    let mut acknowledged = Vec::new();
    let mut left = Vec::new();
    // Whatever a session finds, it keeps, and adds to.
    let mut keeps = |dir: &Path| {
        let now = events(dir);
        assert!(now.starts_with(&acknowledged), "{acknowledged:#?}\nis no beginning of\n{now:#?}");
        acknowledged = now;
    };

    let mut running = study.start();
    let qemu = running.until_boot();
    left.push((running.kill(), qemu));
    keeps(&dir);

    let mut running = study.resume();
    running.until_trials_ended(1);
    let qemu = running.until_benchmark();
    left.push((running.kill(), qemu));
    keeps(&dir);

    let mut running = study.resume();
    // The first block's two, and the one that was lost with its block.
    running.until_trials_ended(3);
    let owner = running.kill();
    keeps(&dir);

    // What the journal's last write may look like after a crash.
    let mut torn = fs::read(dir.join("journal.jsonl")).unwrap();
    torn.extend_from_slice(b"{\"event\":\"trial-en");
    fs::write(dir.join("journal.jsonl"), torn).unwrap();
    let ended = study.resume().wait();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stderr.contains("a write was cut off"), "{ended:#?}");
    keeps(&dir);

    let contents = assert_complete(&dir);
    assert!(results(&contents.events).len() > 4, "blocks were done again");
    for (owner, qemu) in left {
        assert!(owned_by(owner).is_empty() && !qemu.is_alive(), "{qemu:?}");
    }
    assert!(owned_by(owner).is_empty());
    assert!(bystanders.are_alive());
}

#[test]
fn clean_ends_what_a_dead_run_left_and_nothing_else() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    let study = Study::new(2, &two_variants(2));
    let mut bystanders = Bystanders::start(study.folder());
    let mut dead = study.start_in(&study.folder().join("dead"));
    let orphan = dead.until_boot();
    let owner = dead.kill();
    assert!(orphan.is_alive(), "a killed vmlab's QEMU goes on");

    let mut living = study.start();
    let spared = living.until_boot();
    let shown = said(&mut vmlab(["clean", "--dry-run"]));
    let pid = format!("process {} ", orphan.pid);
    assert!(shown.has_code(0).stdout.contains(&pid), "{shown:#?}");
    assert!(orphan.is_alive(), "shown only");
    let cleaned = said(&mut vmlab(["clean"]));
    assert!(cleaned.has_code(0).stdout.contains(&pid), "{cleaned:#?}");
    assert!(!cleaned.stdout.contains(&format!("process {} ", spared.pid)), "{cleaned:#?}");
    assert!(owned_by(owner).is_empty() && !orphan.is_alive());
    assert!(spared.is_alive() && bystanders.are_alive());
    assert!(living.dir.join("plan.json").exists());

    // One folder, one run.
    let second = study.resume().wait();
    second.is_error(&["in use by another vmlab", "process"]);
    assert!(spared.is_alive());

    // And the living one ends in order, whenever it is asked to.
    let interrupted = living.interrupt(Signal::INT);
    assert!(interrupted.stderr.contains("--resume"), "{interrupted:#?}");
    let mut running = study.resume();
    running.until_trials_ended(1);
    running.until_benchmark();
    running.interrupt(Signal::TERM);
    let runtime = host::owner::stale_runtime_dirs();
    assert!(runtime.is_empty(), "{runtime:?}");
    let ended = study.resume().wait();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_complete(&study.dir());
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The value in brackets.
fn thp() -> Option<String> {
    let text = fs::read_to_string(THP).ok()?;
    Some(text.split('[').nth(1)?.split(']').next()?.to_owned())
}

#[test]
fn host_settings_are_put_back_however_a_run_ends() {
    let Some(_turn) = needs(Tier::Test)
        .pcpus(1)
        .alone_with(SharedThing::Leftovers)
        .alone_with(SharedThing::Settings)
        .turn()
    else {
        return;
    };
    let Some(before) = thp().filter(|_| fs::File::options().write(true).open(THP).is_ok()) else {
        suite::skip(format!("host settings: {THP} can't be written"));
        return;
    };
    let during = if before == "never" { "always" } else { "never" };
    let study = Study::new(
        1,
        &format!(
            "[host]\nthp = \"{during}\"\n\n[[variant]]\nname = \"one\"\n\n\
             [[workload]]\nrun = \"hackbench\"\nparams = {{ groups = 1, loops = 20 }}\n"
        ),
    );
    let is = |value: &str| assert_eq!(thp().as_deref(), Some(value));

    let mut running = study.start();
    running.until_boot();
    is(during);
    running.interrupt(Signal::INT);
    is(&before);

    // A run that begins beside this test puts back what a dead one left, too, so that who
    // does it, and tells, may be another.
    let mut running = study.resume();
    let qemu: OwnedProcess = running.until_boot();
    let owner = running.kill();
    said(&mut vmlab(["clean"])).has_code(0);
    is(&before);
    assert!(owned_by(owner).is_empty() && !qemu.is_alive());

    // The next run does it, too, and does not take the changed for the own.
    let mut running = study.resume();
    running.until_boot();
    running.kill();
    let ended = study.resume().wait();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    is(&before);
    assert_complete(&study.dir());
    let nothing = said(&mut vmlab(["clean"]));
    assert_eq!(nothing.has_code(0).stdout, "Nothing was left behind.\n");
}
