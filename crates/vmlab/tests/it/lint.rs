//! `vmlab lint` from outside: files, folders, standard input, fixes, exit codes.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::lab::{Said, said, vmlab};

const CACHED: &str = "\
<domain type='kvm'>
  <name>web</name>
  <vcpu>1</vcpu>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='writeback' io='native'/>
      <target dev='vda' bus='virtio'/>
    </disk>
  </devices>
</domain>
";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn lint(folder: &Path, args: &[&str]) -> Said {
    said(vmlab(["lint"]).args(args).current_dir(folder))
}

#[test]
fn findings_decide_the_exit_code() {
    let hint = "qemu-system-x86_64 -accel kvm -cpu host -nic user,model=virtio-net-pci\n";
    let folder = folder(&[
        ("bad.xml", CACHED),
        ("good.xml", &CACHED.replace("writeback", "none")),
        ("hint.sh", hint),
        ("broken.xml", "<domain>\n  <vcpu>\n</domain>\n"),
        ("other.txt", "nothing\n"),
    ]);
    let lint = |args: &[&str]| lint(folder.path(), args);
    let bad = lint(&["bad.xml"]);
    bad.has_code(1);
    for part in
        ["error[io-native-cached]", "bad.xml:6:45 (web)", "cache='none'", "1 error in 1 file"]
    {
        assert!(bad.stdout.contains(part), "{part}: {bad:#?}");
    }
    assert!(lint(&["good.xml"]).has_code(0).stdout.contains("Nothing found in 1 file"));
    assert!(lint(&["hint.sh"]).has_code(0).stdout.contains("hint[nic-user-mode]"));
    lint(&["--fail-on", "hint", "hint.sh"]).has_code(1);
    assert!(!lint(&["--level", "warning", "hint.sh"]).has_code(0).stdout.contains("hint["));
    lint(&["bad.xml", "broken.xml"]).is_error(&["broken.xml:3:"]);
    lint(&["other.txt"]).is_error(&["other.txt", "holds no VM"]);
    lint(&["none.xml"]).is_error(&["Cannot read none.xml"]);
    lint(&["--host", "none.json", "good.xml"]).is_error(&["none.json"]);
    lint(&["--kubevirt", "new", "good.xml"]).has_code(2);
    lint(&["--kubelet", "fast", "good.xml"]).is_error(&["fast", "full-pcpus-only"]);
    lint(&["--explain", "io-native-cache"]).is_error(&["did you mean io-native-cached?"]);
    assert!(lint(&["--explain", "io-native-cached"]).has_code(0).stdout.contains("O_DIRECT"));
    assert!(lint(&["--list"]).has_code(0).stdout.contains("io-native-cached"));
    lint(&[]).has_code(2);
}

#[test]
fn folders_are_searched_and_standard_input_is_read() {
    let folder = folder(&[
        ("vms/a.xml", CACHED),
        ("vms/deep/b.xml", &CACHED.replace("web", "db")),
        ("vms/notes.xml", "<notes/>"),
        ("vms/.hidden.xml", CACHED),
    ]);
    let all = lint(folder.path(), &["vms"]);
    assert!(all.has_code(1).stdout.contains("2 errors in 2 files"), "{all:#?}");
    let mut command = vmlab(["lint", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(CACHED.as_bytes()).unwrap();
    let piped = Said::of(child.wait_with_output().unwrap());
    assert!(piped.has_code(1).stdout.contains("-:6:45 (web)"), "{piped:#?}");
}

#[test]
fn fixes_are_shown_and_written() {
    let folder = folder(&[("bad.xml", CACHED)]);
    let file = folder.path().join("bad.xml");
    let shown = lint(folder.path(), &["--fix", "--dry-run", "bad.xml"]);
    let change = "+      <driver name='qemu' type='raw' cache='none' io='native'/>";
    assert!(shown.has_code(1).stdout.contains(change), "{shown:#?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), CACHED);
    lint(folder.path(), &["--fix", "bad.xml"]).has_code(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), CACHED.replace("writeback", "none"));
    lint(folder.path(), &["--dry-run", "bad.xml"]).has_code(2);
}

#[test]
fn programs_get_json_and_sarif() {
    let folder = folder(&[("bad.xml", CACHED)]);
    let parse = |flag: &str| -> serde_json::Value {
        serde_json::from_str(&lint(folder.path(), &[flag, "bad.xml"]).has_code(1).stdout).unwrap()
    };
    assert_eq!(parse("--json")["findings"][0]["rule"], "io-native-cached");
    assert_eq!(parse("--sarif")["runs"][0]["results"][0]["ruleId"], "io-native-cached");
    lint(folder.path(), &["--json", "--sarif", "bad.xml"]).has_code(2);
}
