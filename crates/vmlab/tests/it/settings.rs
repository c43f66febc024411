//! Host settings on the command line: on a made-up machine of files, and on
//! this one.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use suite::{SharedThing, Tier, needs, until};

use crate::lab::{CommandOutput, Machine, events, said, vmlab};
use crate::running::{Study, results};

const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const KSM: &str = "sys/kernel/mm/ksm/run";

/// A machine of a few files.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write(THP, "always [madvise] never");
        files.write(KSM, "0");
        files.write("proc/sys/vm/swappiness", "60");
        files.write("proc/cmdline", "quiet");
        files.write("sys/devices/system/cpu/online", "0-3");
        files
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.root().join(name)).unwrap().trim().to_owned()
    }

    fn say(&self, args: &[&str]) -> CommandOutput {
        said(&mut self.command(args))
    }

    /// The options go before the command that is run.
    fn command(&self, args: &[&str]) -> std::process::Command {
        let root = self.root().to_str().unwrap();
        let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let (options, rest) = args.split_at(at);
        vmlab([options, &["--sysfs-root", root], rest].concat())
    }

    /// Journals of changed settings.
    fn journals(&self) -> usize {
        let folder = fs::read_dir(self.root().join("var/lib/vmlab/settings"));
        let names = folder.into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".json")).count()
    }
}

#[test]
fn settings_are_listed_and_explained() {
    let files = Files::new();
    for args in [&["settings", "list"][..], &["host", "--settings"]] {
        let table = files.say(args);
        let table = &table.has_code(0).stdout;
        assert!(table.contains("thp ") && table.contains("madvise"), "{table}");
        assert!(table.contains("no: module kvm_intel or kvm_amd not loaded"), "{table}");
        assert!(table.contains("kernel command line only"), "{table}");
        let all: Value =
            serde_json::from_str(&files.say(&[args, &["--json"]].concat()).has_code(0).stdout)
                .unwrap();
        let all = all.as_array().unwrap();
        assert!(all.len() >= 100, "{}", all.len());
        let row = |id: &str| all.iter().find(|row| row["id"] == id).unwrap();
        assert_eq!(
            (&row("thp")["now"], &row("thp")["settable"]),
            (&"madvise".into(), &true.into())
        );
        assert_eq!(row("numa_balancing")["settable"], false);
        assert!(row("numa_balancing")["why_not"].as_str().unwrap().contains("is not there"));
        for row in all {
            for key in ["what", "values", "needs", "source"] {
                assert!(!row[key].as_str().unwrap().is_empty(), "{row}");
            }
        }
    }
    let one = files.say(&["settings", "explain", "ksm"]);
    let one = one.has_code(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["Same-page merging", "values 0, 1, 2", "now 0", "settable yes", "/sys/kernel/mm/ksm/run"]
    {
        assert!(one.contains(words), "{words}: {one}");
    }
    files.say(&["settings", "explain", "ksmm"]).is_error(&["ksmm", "related: ksm"]);
    vmlab_error(&["settings", "list", "--sysfs-root", "/none"], "/none is not a folder");
}

fn vmlab_error(args: &[&str], words: &str) {
    said(&mut vmlab(args)).is_error(&[words]);
}

#[test]
fn a_command_runs_under_settings_that_are_put_back() {
    let files = Files::new();
    let thp = files.root().join(THP);
    let show = format!("cat {}; exit 7", thp.display());
    let ran = files.say(&["settings", "set", "thp=never", "ksm=1", "--", "sh", "-c", &show]);
    assert_eq!((ran.has_code(7).stdout.trim(), ran.stderr.as_str()), ("never", ""));
    assert_eq!(
        (files.text(THP), files.text(KSM), files.journals()),
        ("madvise".into(), "0".into(), 0)
    );

    let dry = files.say(&["settings", "set", "thp=never", "ksm=off", "-n"]);
    dry.is_error(&["ksm cannot be \"off\"; it takes 0, 1, 2"]);
    let dry = files.say(&["settings", "set", "thp=never", "swappiness=60", "-n"]);
    let plan =
        format!("thp: madvise -> never (/{THP})\nswappiness: stays 60 (/proc/sys/vm/swappiness)\n");
    assert_eq!(dry.has_code(0).stdout, plan);

    // What the command is not run under.
    let refused = |changes: &[&str], words: &[&str]| {
        let marker = files.root().join("ran");
        let args = [&["settings", "set"], changes, &["--", "touch", marker.to_str().unwrap()]];
        files.say(&args.concat()).is_error(words);
        assert!(!marker.exists(), "{changes:?}");
    };
    refused(&["thp=never", "numa_balancing=1"], &["numa_balancing", "is not there"]);
    refused(&["thp"], &["\"thp\" is no setting: write ID=VALUE"]);
    refused(&["thp=never", "thp=always"], &["thp is to become two values"]);
    refused(&["ple_gap=0"], &["Module kvm_intel or kvm_amd is not loaded"]);
    refused(
        &["kvm_arm_wfi_trap_policy=trap"],
        &["boot the host with kvm-arm.wfi_trap_policy=trap"],
    );
    files
        .say(&["settings", "set", "thp=never", "--", "/no/such/program"])
        .is_error(&["/no/such/program"]);
    assert_eq!(files.text(THP), "madvise");
    // Somebody else's change is left alone, and said.
    let change = format!("echo always > {}", thp.display());
    let ran = files.say(&["settings", "set", "thp=never", "--", "sh", "-c", &change]);
    assert!(ran.has_code(0).stderr.contains("thp is always, which vmlab did not set"), "{ran:#?}");
    assert_eq!((files.text(THP), files.journals()), ("always".into(), 0));
}

/// Starts a command that lasts under settings; its pid and vmlab's.
fn lasting(files: &Files) -> (std::process::Child, i32) {
    let pid_file = files.root().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", pid_file.display());
    let mut command =
        files.command(&["settings", "set", "thp=never", "ksm=1", "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = until("the command runs", || fs::read_to_string(&pid_file).ok()?.trim().parse().ok());
    fs::remove_file(&pid_file).unwrap();
    (child, pid)
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn settings_are_put_back_however_vmlab_ends() {
    let files = Files::new();
    for how in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (mut vmlab, _) = lasting(&files);
        assert_eq!(files.text(THP), "never");
        signal(i32::try_from(vmlab.id()).unwrap(), how);
        let code = vmlab.wait().unwrap().code();
        assert_eq!(code, Some(128 + how.as_raw()), "{how:?}");
        assert_eq!((files.text(THP), files.text(KSM)), ("madvise".into(), "0".into()), "{how:?}");
    }
    // Nobody can put back after a kill -9 but the next one.
    let (mut vmlab, command) = lasting(&files);
    signal(i32::try_from(vmlab.id()).unwrap(), Signal::KILL);
    vmlab.wait().unwrap();
    signal(command, Signal::KILL);
    assert_eq!((files.text(THP), files.journals()), ("never".into(), 1));
    files
        .say(&["settings", "set", "thp=always", "--", "true"])
        .is_error(&["thp was left changed by run", "restore it with `vmlab clean`"]);
    let look = files.say(&["clean", "--dry-run"]);
    assert_eq!(look.has_code(0).stdout, "would set ksm back to 0\nwould set thp back to madvise\n");
    files.write(KSM, "2");
    let look = files.say(&["clean", "--dry-run"]);
    let stays = "ksm is 2, which vmlab did not set: left alone (it was 0); --force restores it\n";
    assert!(look.stdout.starts_with(stays), "{look:#?}");
    let cleaned = files.say(&["clean", "--force"]);
    assert_eq!(cleaned.has_code(0).stdout, "ksm is 0 again\nthp is madvise again\n");
    assert_eq!(
        (files.text(THP), files.text(KSM), files.journals()),
        ("madvise".into(), "0".into(), 0)
    );
    assert_eq!(files.say(&["clean"]).has_code(0).stdout, "Nothing was left behind.\n");
}

#[test]
fn what_a_command_leaves_running_on_purpose_stays() {
    let files = Files::new();
    let pid_file = files.root().join("pid");
    let script = format!("setsid sleep 1000 >/dev/null 2>&1 & echo $! > {}", pid_file.display());
    files.say(&["settings", "set", "thp=never", "--", "sh", "-c", &script]).has_code(0);
    let pid: i32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
    // So `vmlab clean` does not take it for a dead run's.
    let found = host::owner::orphans();
    signal(pid, Signal::KILL);
    assert!(!String::from_utf8_lossy(&environ).contains("VMLAB_OWNER"), "{pid} is marked");
    assert!(found.iter().all(|orphan| i32::try_from(orphan.pid) != Ok(pid)), "{found:?}");
}

#[test]
fn an_unreadable_journal_is_told_and_set_aside() {
    let files = Files::new();
    files.say(&["settings", "set", "thp=never", "--", "true"]).has_code(0);
    let folder = walk(files.root()).into_iter().find(|path| path.ends_with("settings.lock"));
    let folder = folder.unwrap().parent().unwrap().to_owned();
    fs::write(folder.join("settings-1-0.json"), "{").unwrap();
    files.say(&["settings", "set", "thp=never", "--", "true"]).is_error(&[
        "settings-1-0.json",
        "EOF",
        "`vmlab clean --force`",
    ]);
    let said = files.say(&["clean"]);
    assert!(said.has_code(2).stdout.contains("EOF"), "{said:#?}");
    assert!(said.stdout.contains("--force sets it aside"), "{said:#?}");
    let said = files.say(&["clean", "--force"]);
    assert!(said.has_code(0).stdout.contains("settings-1-0.unreadable.0"), "{said:#?}");
    assert_eq!(files.say(&["clean"]).has_code(0).stdout, "Nothing was left behind.\n");
    files.say(&["settings", "set", "thp=never", "--", "true"]).has_code(0);
}

/// All files below `folder`.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn drift_is_shown() {
    let files = Files::new();
    let saved = files.root().join("before.json");
    let save =
        || fs::write(&saved, files.say(&["host", "--json"]).has_code(0).stdout.clone()).unwrap();
    save();
    let before = saved.to_str().unwrap();
    let same = files.say(&["host", "--diff", before]);
    assert_eq!(same.has_code(0).stdout, "Nothing differs.\n");
    files.write(THP, "always madvise [never]");
    files.write("proc/cmdline", "quiet nosmt");
    let differs = files.say(&["host", "--diff", before]);
    let lines = "settings.thp_enabled: madvise -> never\ntunables.thp: madvise -> never\n\
                 cmdline: absent -> nosmt\n";
    assert_eq!(differs.has_code(1).stdout, lines);
    let json = files.say(&["host", "--diff", before, "--json"]);
    let json: Value = serde_json::from_str(&json.has_code(1).stdout).unwrap();
    assert_eq!(json[1]["after"], "never");
    let copy = files.root().join("copy.json");
    fs::copy(&saved, &copy).unwrap();
    save();
    let two = said(&mut vmlab(["host", "--diff", copy.to_str().unwrap(), before]));
    assert_eq!(two.has_code(1).stdout, lines);
    vmlab_error(&["host", "--diff", "/none.json"], "Cannot read /none.json");
}

#[test]
fn what_a_run_cannot_have_is_said_when_it_is_planned() {
    let machine = Machine::with_qemu("8.2.0");
    // No machine has all of these.
    let host = "[host]\nhugepages_64k = 1\nhugepages_2m = 1\n\n[[workload]]";
    let study = machine.study(&[
        ("[[workload]]", host),
        ("vm.vcpus = 2", "vm.vcpus = 2\nhost.kvm_arm_mode = 'nvhe'"),
    ]);
    let parts = ["small.toml:21: ", "fixed at boot: boot the host with kvm-arm.mode=nvhe"];
    said(machine.vmlab(["check"]).arg(&study)).is_error(&parts);
    let study = machine.study(&[
        ("[[workload]]", "[host]\nept = 0\nnpt = 0\n\n[[workload]]"),
        ("vm.vcpus = 2", "vm.vcpus = 2\nhost.swappiness = 10\nvm.scheduler.vcpus = 'batch'"),
    ]);
    // It may be looked at, and says what would happen.
    let check = said(machine.vmlab(["check"]).arg(&study));
    // The made-up machine has no chrt either.
    assert!(check.stderr.contains("two: scheduler batch can't be had here: Cannot run chrt"));
    assert!(check.has_code(0).stdout.contains("host setting swappiness = 10, for its trials"));
    let warning = "warning: a run would be refused: Host setting";
    assert!(check.stderr.contains(warning), "{check:#?}");
    let run = said(machine.vmlab(["run"]).arg(&study));
    run.has_code(2);
    assert!(run.stderr.contains("small.toml:25: Host setting ept can't be \"0\" here"), "{run:#?}");
}

#[test]
fn every_setting_is_on_its_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/settings.md")).unwrap();
    for row in host::settings::SETTINGS {
        let begin = format!("| `{}` | {} |", row.id, row.what);
        assert!(page.contains(&begin), "docs/settings.md lacks {begin:?}");
    }
}

#[test]
fn variants_and_loads_have_settings_of_their_own() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Settings).turn() else {
        return;
    };
    let wanted = ["thp", "ksm", "ksm_pages_to_scan", "hugepages_2m"];
    let tree = host::settings::SettingsTree::live();
    let row = |id: &str| host::settings::setting(id).unwrap();
    if let Some(id) = wanted.iter().find(|id| row(id).check_settable(&tree, false).is_err()) {
        suite::skip(format!("host settings of variants: {id} can't be set here"));
        return;
    }
    let values = || wanted.map(|id| row(id).read(&tree).unwrap().value);
    let before = values();
    let study = Study::new(
        1,
        "[host]\nthp = \"never\"\nksm = 1\n\n[[load]]\nname = \"idle\"\nhost.ksm_pages_to_scan = 50\n\n\
         [[variant]]\nname = \"plain\"\n\n\
         [[variant]]\nname = \"huge\"\nhost = { thp = \"always\", hugepages_2m = 8 }\n\
         vm.scheduler.vcpus = \"batch\"\n\n\
         [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n",
    );
    let ended = study.start().wait();
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
    let trials = results(&events(&study.dir()));
    assert_eq!(trials.len(), 2);
    for trial in trials {
        assert!(trial.outcome.is_completed(), "{trial:#?}");
        let had = |id: &str| trial.host_settings.get(id).map(String::as_str);
        assert_eq!((had("ksm"), had("ksm_pages_to_scan")), (Some("1"), Some("50")));
        let own = (had("thp"), had("hugepages_2m"), trial.vcpu_scheduler.join(","));
        match trial.trial.variant.as_str() {
            "plain" => assert_eq!(own, (Some("never"), None, String::new())),
            _ => assert_eq!(own, (Some("always"), Some("8"), "batch".to_owned())),
        }
    }
    assert_eq!(values(), before);
}

/// A process with 64 MiB of memory that is all alike and may be merged.
struct Mergeable(std::process::Child);

impl Mergeable {
    fn start() -> Option<Self> {
        let qemu = std::process::Command::new("qemu-system-x86_64")
            .args(["-nodefaults", "-display", "none", "-S", "-accel", "tcg", "-m", "64"])
            .args(["-machine", "pc,mem-merge=on", "-mem-prealloc"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        qemu.ok().map(Self)
    }

    fn merged_pages(&self) -> Option<u64> {
        let path = format!("/proc/{}/ksm_merging_pages", self.0.id());
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Drop for Mergeable {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn what_an_earlier_trial_merged_is_taken_apart_before_the_next() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).alone_with(SharedThing::Settings).turn() else {
        return;
    };
    let tree = host::settings::SettingsTree::live();
    let ksm = host::settings::setting("ksm").unwrap();
    if ksm.check_settable(&tree, false).is_err() {
        suite::skip("same-page merging: ksm can't be set here");
        return;
    }
    let Some(process) = Mergeable::start() else {
        suite::skip("same-page merging: qemu-system-x86_64 is not here");
        return;
    };
    if process.merged_pages().is_none() {
        suite::skip("same-page merging: the kernel does not say what a process has merged");
        return;
    }
    let before = ksm.read(&tree).unwrap().value;
    // What a trial with merging leaves behind: stopping does not undo it.
    let merge = ["ksm=1", "ksm_pages_to_scan=20000", "ksm_sleep_ms=1"];
    let set = [&["settings", "set"], &merge[..], &["--", "cat"]].concat();
    let mut merging = vmlab(set).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    until("pages are merged", || process.merged_pages().filter(|pages| *pages > 0));
    // cat ends with its input.
    drop(merging.stdin.take());
    assert!(merging.wait().unwrap().success());
    assert!(process.merged_pages() > Some(0), "{:?}", process.merged_pages());
    assert_eq!(ksm.read(&tree).unwrap().value, before);

    let study = Study::new(
        1,
        "[[variant]]\nname = \"alone\"\nhost.ksm = 0\n\n\
         [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n",
    );
    let ended = study.start().wait();
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
    let trials = results(&events(&study.dir()));
    let [trial] = trials.as_slice() else { panic!("one trial: {trials:#?}") };
    assert!(trial.outcome.is_completed(), "{trial:#?}");
    assert_eq!(trial.host_settings["ksm"], "2");
    assert_eq!(trial.ground.as_ref().and_then(|ground| ground.merged_bytes), Some(0));
    assert_eq!(process.merged_pages(), Some(0));
    assert_eq!(ksm.read(&tree).unwrap().value, before);
}

#[test]
fn a_trial_begins_on_the_ground_that_its_study_says_or_fails() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Settings).turn() else {
        return;
    };
    let cleared = "\n[ground]\ndrop_caches = true\ncompact = true\n";
    let hackbench = "[[variant]]\nname = \"alone\"\n\n\
                     [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n";
    let study = Study::new(1, &format!("{hackbench}{cleared}"));
    let is_writable =
        |file: &&str| fs::File::options().write(true).open(format!("/proc/sys/vm/{file}")).is_ok();
    if let Some(file) = ["drop_caches", "compact_memory"].iter().find(|file| !is_writable(file)) {
        let refused = study.start().wait();
        assert_eq!(refused.code, Some(2), "{refused:#?}");
        for words in ["ground.", &format!("{file} can't be written")] {
            assert!(refused.stderr.contains(words), "{words}: {refused:#?}");
        }
        return;
    }
    let check = said(vmlab(["check"]).arg(study.folder().join("study.toml")));
    let ground = "Ground       drop_caches, compact, before each trial";
    assert!(check.has_code(0).stdout.contains(ground), "{check:#?}");
    // A file that is cached, and that nobody else reads.
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::io::Write::write_all(&mut file, &vec![1; 8 << 20]).unwrap();
    let cached_pages = || {
        let mut fincore = std::process::Command::new("fincore");
        let output = fincore.args(["-n", "-o", "PAGES"]).arg(file.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    assert!(cached_pages() > 0);
    let trial_of = |study: &Study| {
        let ended = study.start().wait();
        assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
        results(&events(&study.dir())).swap_remove(0)
    };
    let trial = trial_of(&study);
    assert!(trial.outcome.is_completed(), "{trial:#?}");
    assert_eq!(cached_pages(), 0);

    // More is cached than nothing, whatever was dropped.
    let study = Study::new(1, &format!("{hackbench}{cleared}page_cache_mib = 0\n"));
    let trial = trial_of(&study);
    let record::Outcome::Failed(failure) = &trial.outcome else { panic!("{trial:#?}") };
    assert_eq!(failure.kind, record::FailureKind::NotAsClaimed, "{failure:?}");
    assert!(failure.detail.contains("ground.page_cache_mib is"), "{failure:?}");
    assert!(trial.ground.is_some_and(|ground| ground.page_cache_bytes > Some(0)));
    assert_eq!(trial.boot_s, None, "no VM was started on it");
}

#[test]
fn the_machine_itself_is_set_and_put_back() {
    let Some(_turn) = needs(Tier::Test)
        .pcpus(1)
        .alone_with(SharedThing::Leftovers)
        .alone_with(SharedThing::Settings)
        .turn()
    else {
        return;
    };
    let thp = || fs::read_to_string(format!("/{THP}")).unwrap_or_default();
    if fs::File::options().write(true).open(format!("/{THP}")).is_err() {
        suite::skip(format!("host settings of this machine: /{THP} can't be written"));
        return;
    }
    let before = thp();
    let word = if before.contains("[never]") { "always" } else { "never" };
    let change = format!("thp={word}");
    let script = format!("cat /{THP}");
    let ran = said(&mut vmlab(["settings", "set", &change, "--", "sh", "-c", &script]));
    assert!(ran.has_code(0).stdout.contains(&format!("[{word}]")), "{ran:#?}");
    assert_eq!(thp(), before);
    // Killed, it is put back by the next one.
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", pid_file.display());
    let mut running = vmlab(["settings", "set", &change, "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let command =
        until("the command runs", || fs::read_to_string(&pid_file).ok()?.trim().parse().ok());
    running.kill().unwrap();
    running.wait().unwrap();
    signal(command, Signal::KILL);
    assert_ne!(thp(), before);
    // Processes that other tests left are none of this one's business.
    let cleaned = said(&mut vmlab(["clean", "--sysfs-root", "/"]));
    assert!(cleaned.has_code(0).stdout.contains("thp is"), "{cleaned:#?}");
    assert_eq!(thp(), before);
}
