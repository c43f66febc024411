//! A variant on the host itself, beside its guest; and how it ends.

use record::{Environment, Outcome};
use runner::study::RunsOn;
use rustix::process::Signal;
use suite::{SharedThing, Tier, needs, until};

use crate::lab::{said, vmlab};
use crate::running::{RunningVmlab, Study, assert_complete, owned_by, results};

const HOST: &str = "[[variant]]\nname = \"host\"\non = \"host\"\n\n";

/// Why no workload can run on this host.
fn no_seat() -> Option<String> {
    let missing = || Some("hackbench is not installed".to_owned());
    match host::sandbox::check() {
        Err(error) => Some(error.to_string()),
        Ok(()) if !host::sandbox::has_program("hackbench") => missing(),
        Ok(()) => None,
    }
}

#[test]
fn the_host_and_its_guest_run_the_same_workload() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Some(why) = no_seat() {
        suite::skip(why);
        return;
    }
    let study = Study::new(
        1,
        &format!(
            "{HOST}[[variant]]\nname = \"guest\"\n\n\
             [[workload]]\nrun = \"hackbench\"\nparams = {{ groups = 1, loops = 100 }}\n\n\
             [[workload]]\nrun = \"fio\"\nparams = {{ size_mib = 16, time_s = 1 }}\n"
        ),
    );
    let running = study.start();
    let owner = running.pid();
    let ended = running.wait();
    // One block decides nothing, which is an answer.
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(owned_by(owner).is_empty());
    let contents = assert_complete(&study.dir());
    let [host, guest] = contents.plan.variants.as_slice() else { panic!("two variants") };
    assert_eq!((host.on, host.environment), (RunsOn::Host, Environment::Host));
    assert_eq!((guest.on, guest.environment), (RunsOn::Vm, Environment::Tcg));
    let all = results(&contents.events);
    assert_eq!(all.len(), 4);
    for result in all {
        assert_eq!(result.outcome, Outcome::Completed, "{result:#?}");
        let on_host = result.trial.variant == "host";
        assert_eq!(result.qemu_args.is_empty(), on_host);
        assert_eq!(result.boot_s.is_none(), on_host);
        let run = &result.runs[0];
        assert!(run.samples.iter().any(|sample| sample.value > 0.0), "{run:#?}");
        assert!(run.blobs.contains_key("stdout"));
        assert!(run.counters.get("guest.idle_s").is_some(), "{run:#?}");
        assert_eq!(run.counters.get("vcpu.run_s").is_none(), on_host);
        assert_eq!(run.counters.get("guest.context_switches").is_none(), on_host);
    }
    let commands = |variant: &str| {
        let all = results(&contents.events).into_iter();
        let mut of: Vec<Vec<String>> = all
            .filter(|result| result.trial.variant == variant)
            .map(|result| result.runs[0].command.clone())
            .collect();
        of.sort();
        of
    };
    assert_eq!(commands("host"), commands("guest"));
    let report = said(&mut vmlab(["report".as_ref(), study.dir().as_os_str()]));
    let text = report.stdout.replace('\n', " ");
    assert!(text.contains("host ran on the host itself"), "{text}");
    assert!(text.contains("their ratio is not a speed-up"), "{text}");
}

#[test]
fn a_run_on_the_host_leaves_nothing_however_it_ends() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    if let Some(why) = no_seat() {
        suite::skip(why);
        return;
    }
    let study = Study::new(
        1,
        &format!(
            "{HOST}[[workload]]\nrun = \"hackbench\"\nlimit_s = 600\n\
             params = {{ groups = 1, loops = 100000000 }}\n"
        ),
    );
    let until_benchmark = |running: &mut RunningVmlab| {
        running.until("the benchmark's senders and receivers", |running| {
            let owned = owned_by(running.pid());
            let of_it = owned.iter().filter(|one| one.command_line.starts_with("hackbench"));
            (of_it.count() > 20).then_some(())
        });
    };
    let mut running = study.start_in(&study.folder().join("killed"));
    until_benchmark(&mut running);
    let owner = running.kill();
    // Without anybody who would clean up.
    until("the end of all in it", || owned_by(owner).is_empty().then_some(()));

    let mut running = study.start_in(&study.folder().join("interrupted"));
    until_benchmark(&mut running);
    running.interrupt(Signal::INT);
    assert!(said(&mut vmlab(["clean"])).code == Some(0));
}
