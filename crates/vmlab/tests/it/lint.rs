//! `vmlab lint` from outside: files, folders, standard input, fixes, exit codes.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use suite::{Tier, needs};

use crate::lab::{CommandOutput, said, vmlab};

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

fn lint(folder: &Path, args: &[&str]) -> CommandOutput {
    said(vmlab(["lint"]).args(args).current_dir(folder))
}

const SITE: &str = "\
vmlab = 1
[[rule]]
id = 'acme-pins'
severity = 'warning'
text = 'vCPUs float'
help = 'Pin them'
when = 'vm.pins.vcpus.size() == 0'
[[rule.example]]
bad = '<domain><name>a</name><vcpu>1</vcpu></domain>'
[[level]]
rule = 'io-native-cached'
level = 'allow'
files = ['old/*.xml']
reason = 'goes in May'
";

/// The nearest `.vmlab-lint.toml` holds, up to the top of the repository; `--rules` has
/// the last word.
#[test]
fn rules_of_a_sites_own_are_found_and_named() {
    let folder = folder(&[
        (".vmlab-lint.toml", "vmlab = 1\nthis is wrong\n"),
        ("repo/.git/HEAD", ""),
        ("repo/outside.xml", CACHED),
        ("repo/a/.vmlab-lint.toml", SITE),
        ("repo/a/old/web.xml", CACHED),
        ("repo/a/new/web.xml", CACHED),
        ("deny.toml", "vmlab = 1\n[[level]]\nrule = 'acme-pins'\nlevel = 'deny'\n"),
        ("bare.xml", CACHED),
    ]);
    let lint = |args: &[&str]| lint(folder.path(), args);
    lint(&["bare.xml"]).is_error(&[".vmlab-lint.toml:2:"]);
    lint(&["--no-config", "bare.xml"]).has_code(1);
    let outside = lint(&["-v", "repo/outside.xml"]);
    assert!(outside.stderr.contains("repo/outside.xml: rules files: none"), "{outside:#?}");
    let both = lint(&["-v", "repo/a"]);
    both.has_code(1);
    assert!(both.stderr.contains("old/web.xml: rules files: repo/a/.vmlab-lint.toml"), "{both:#?}");
    assert_eq!(both.stdout.matches("warning[acme-pins]").count(), 2, "{both:#?}");
    assert_eq!(both.stdout.matches("error[io-native-cached]").count(), 1, "{both:#?}");
    assert!(both.stdout.contains("1 more allowed by rules files"), "{both:#?}");
    let json: serde_json::Value =
        serde_json::from_str(&lint(&["--json", "repo/a/old"]).stdout).unwrap();
    assert_eq!(json["suppressed"][0]["reason"], "goes in May");
    assert_eq!(json["suppressed"][0]["rule"], "io-native-cached");
    assert_eq!(json["rules"][0]["file"], "repo/a/.vmlab-lint.toml");
    let sarif: serde_json::Value =
        serde_json::from_str(&lint(&["--sarif", "repo/a/old"]).stdout).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let silenced = results.iter().find(|one| one["ruleId"] == "io-native-cached").unwrap();
    assert_eq!(silenced["suppressions"][0]["kind"], "external");
    let own = results.iter().find(|one| one["ruleId"] == "acme-pins").unwrap();
    let index = usize::try_from(own["ruleIndex"].as_u64().unwrap()).unwrap();
    let driver = &sarif["runs"][0]["tool"]["driver"];
    assert_eq!(driver["rules"][index]["id"], "acme-pins");
    let site = "repo/a/.vmlab-lint.toml";
    let denied = lint(&["--no-config", "--rules", site, "--rules", "deny.toml", "bare.xml"]);
    assert_eq!(denied.stdout.matches("error[acme-pins]").count(), 1, "{denied:#?}");
}

#[test]
fn rules_of_a_sites_own_are_explained_and_checked() {
    let good = "[[rule.example]]\ngood = '<domain><name>a</name></domain>'\n";
    let wrong = SITE.replace("[[level]]", &format!("{good}[[level]]"));
    let folder = folder(&[("site.toml", SITE), ("wrong.toml", &wrong)]);
    let lint = |args: &[&str]| lint(folder.path(), args);
    let checked = lint(&["--check-rules", "site.toml"]);
    assert_eq!(checked.has_code(0).stdout, "site.toml: 1 rule, 1 of 1 example does what it says\n");
    let checked = lint(&["--check-rules", "wrong.toml"]);
    assert!(
        checked.has_code(1).stdout.starts_with("wrong.toml:11: acme-pins: the example is good")
    );
    let told = lint(&["--rules", "site.toml", "--explain", "acme-pins"]);
    assert!(told.has_code(0).stdout.contains("vm.pins.vcpus.size() == 0"), "{told:#?}");
    assert!(lint(&["--rules", "site.toml", "--list"]).stdout.contains("acme-pins"));
    lint(&["--rules", "none.toml", "--list"]).is_error(&["none.toml"]);
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
    let piped = CommandOutput::of(child.wait_with_output().unwrap());
    assert!(piped.has_code(1).stdout.contains("-:6:45 (web)"), "{piped:#?}");
}

#[test]
fn files_of_options_are_read_beside_the_script() {
    let disk = "[drive \"root\"]\n  file = \"root.img\"\n  if = \"virtio\"\n  \
        cache = \"writeback\"\n  aio = \"native\"\n";
    let script = "#!/bin/sh\nexec kvm -cpu host -readconfig vm.cfg -readconfig gone.cfg\n";
    let folder = folder(&[("vms/run.sh", script), ("vms/vm.cfg", disk)]);
    let found = lint(folder.path(), &["vms/run.sh"]);
    found.has_code(1);
    for part in ["io-native-cached", "vm.cfg:4:12", "vms/run.sh:2:51", "-readconfig gone.cfg"] {
        assert!(found.stdout.contains(part), "no {part}: {found:#?}");
    }
    let run = folder.path().join("vms/run.sh");
    let converted = said(vmlab(["convert", "--to", "libvirt"]).arg(run));
    converted.has_code(1);
    assert!(converted.stdout.contains("file=root.img"), "{converted:#?}");
    for part in ["/vm.cfg:1: not understood: -drive", "/run.sh:2: not understood: -readconfig"] {
        assert!(converted.stderr.contains(part), "no {part}: {converted:#?}");
    }
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
    lint(folder.path(), &["--json", "--format", "text", "bad.xml"]).has_code(2);
    let annotations = lint(folder.path(), &["--format", "github", "--level", "warning", "bad.xml"]);
    let expected = "::error file=bad.xml,line=6,col=45,endColumn=54,title=io-native-cached::";
    assert!(annotations.has_code(1).stdout.starts_with(expected), "{annotations:#?}");
    // What can't be linted is told to programs, too.
    fs::write(folder.path().join("torn.xml"), "<domain type='kvm'>").unwrap();
    let both = |format: &str| {
        let said = lint(folder.path(), &["--format", format, "bad.xml", "torn.xml"]);
        said.has_code(2).stdout.clone()
    };
    let parse = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    assert!(parse(&both("json"))["failed"][0].as_str().unwrap().starts_with("torn.xml:1:"));
    let run = &parse(&both("sarif"))["runs"][0]["invocations"][0];
    assert_eq!(run["executionSuccessful"], false);
    assert!(run["toolExecutionNotifications"][0]["message"]["text"].is_string());
    assert!(both("github").contains("::error title=vmlab lint::torn.xml:1:"));
}

/// A saved tree tells what the host does and where its devices are.
#[test]
fn a_saved_host_tells_of_interrupts_and_devices() {
    let node = "sys/devices/system/node";
    let folder = folder(&[
        ("host/sys/devices/system/cpu/online", "0-3\n"),
        ("host/sys/devices/system/cpu/possible", "0-3\n"),
        ("host/sys/devices/system/cpu/present", "0-3\n"),
        ("host/sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
        ("host/sys/devices/system/cpu/cpu1/topology/core_id", "1\n"),
        ("host/sys/devices/system/cpu/cpu2/topology/core_id", "2\n"),
        ("host/sys/devices/system/cpu/cpu3/topology/core_id", "3\n"),
        (&format!("host/{node}/online"), "0-1\n"),
        (&format!("host/{node}/node0/cpulist"), "0-1\n"),
        (&format!("host/{node}/node1/cpulist"), "2-3\n"),
        ("host/sys/bus/pci/devices/0000:af:00.0/numa_node", "1\n"),
        ("host/sys/bus/pci/devices/0000:00:1f.0/numa_node", "-1\n"),
        ("host/proc/interrupts", "     CPU0 CPU1 CPU2 CPU3\n 24: 0 9000000 0 0 PCI-MSI nvme0q1\n"),
        ("host/proc/stat", "cpu1 1000 0 1000 298000 0 0 0 0 0 0\n"),
        (
            "vm.xml",
            "\
<domain type='kvm'>
  <name>web</name>
  <vcpu>1</vcpu>
  <cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
  <devices><hostdev mode='subsystem' type='pci'>
    <source><address domain='0x0000' bus='0xaf' slot='0x00' function='0x0'/></source>
  </hostdev></devices>
</domain>
",
        ),
    ]);
    let said = lint(folder.path(), &["--host", "host", "vm.xml"]);
    let said = said.has_code(1);
    for part in [
        "warning[pin-host-busy]: vCPU 0 is on pCPU 1, which has served 3000 interrupts",
        "warning[device-elsewhere]: 0000:af:00.0 is on node 1, the vCPUs are on node 0",
    ] {
        assert!(said.stdout.contains(part), "{part}: {said:#?}");
    }
}

/// Descriptions of machines that real tools made.
const HOSTS: [&str; 4] = [
    "libvirt-9.0.0/two-sockets.xml",
    "libvirt-9.0.0/test-driver.xml",
    "hwloc-2.9.0/three-nodes.v2.xml",
    "hwloc-2.9.0/clusters.v2.xml",
];

/// Variants that are made for the host; the others are single switches.
const PLACED: [&str; 5] = ["def", "pin_def", "pin", "vtune", "numa"];

/// What vmlab says itself is refused by nobody: no variant on any host has an
/// error, in any format.
#[test]
fn own_configurations_have_no_errors() {
    let described = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology/testdata");
    let listed = said(&mut vmlab(["variants"]));
    let names = listed.stdout.lines().filter_map(|line| line.split_whitespace().next());
    let switches: Vec<&str> = names.filter(|name| !PLACED.contains(name)).collect();
    assert!(switches.len() > 30, "{listed:#?}");
    for (at, host) in HOSTS.iter().enumerate() {
        let host = described.join(host);
        let host = host.to_str().unwrap();
        // One host is enough for what has nothing to do with it.
        let variants = PLACED.iter().chain(switches.iter().filter(|_| at == 0));
        let folder = tempfile::tempdir().unwrap();
        for variant in variants {
            for (format, extension) in [("qemu", "sh"), ("libvirt", "xml"), ("kubevirt-vm", "yaml")]
            {
                let text = said(&mut vmlab([
                    "emit", "--use", variant, "--vcpus", "4", "--host", host, "--to", format,
                ]));
                let name = format!("{variant}.{extension}");
                fs::write(folder.path().join(name), &text.has_code(0).stdout).unwrap();
            }
        }
        let found = lint(folder.path(), &["--json", "--level", "error", "--host", host, "."]);
        let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
        let rules: Vec<&str> = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|finding| finding["rule"].as_str())
            // That a described machine has no pool of huge pages is no fault of
            // the configuration.
            .filter(|rule| *rule != "huge-pages-not-reserved")
            .collect();
        assert!(rules.is_empty(), "{host}: {rules:?}: {found:#?}");
    }
}

/// Packages with the schema of SARIF 2.1.0 and what it is written for.
const SCHEMA_PACKAGE: &str = "@microsoft/jest-sarif@1.0.0-beta.0";

/// Says what is wrong with each file, a line each.
const VALIDATE: &str = r#"
const fs = require("fs");
const Ajv = require("ajv");
const ajv = new Ajv({ schemaId: "id", allErrors: true });
ajv.addMetaSchema(require("ajv/lib/refs/json-schema-draft-04.json"));
const path = "node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json";
const valid = ajv.compile(JSON.parse(fs.readFileSync(path)));
for (const file of process.argv.slice(1)) {
  const ok = valid(JSON.parse(fs.readFileSync(file)));
  console.log(file + ": " + (ok ? "valid" : ajv.errorsText(valid.errors)));
}
"#;

#[test]
fn sarif_holds_the_schema() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        Command::new(program).args(args).current_dir(folder.path()).output()
    };
    let install = ["install", "--prefix", ".", "--ignore-scripts", "--no-audit", SCHEMA_PACKAGE];
    match run("npm", &install) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            suite::skip(format!("npm: {}", String::from_utf8_lossy(&output.stderr)));
            return;
        }
        Err(error) => {
            suite::skip(format!("no npm to get the schema with: {error}"));
            return;
        }
    }
    // Every rule's example, so that every rule has a result; and none at all.
    let examples = folder.path().join("examples");
    fs::create_dir(&examples).unwrap();
    for rule in lint::RULES {
        for (at, example) in rule.fires.iter().enumerate() {
            let name = format!("{} {at}.args", rule.id);
            fs::write(examples.join(name), example.document()).unwrap();
        }
    }
    let all = lint(folder.path(), &["--sarif", "examples"]);
    let log: serde_json::Value = serde_json::from_str(&all.stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(results.len() > lint::RULES.len(), "{} results", results.len());
    let broken = all.stdout.replacen("\"level\": \"warning\"", "\"level\": \"bad\"", 1);
    fs::write(folder.path().join("none.xml"), CACHED.replace("writeback", "none")).unwrap();
    let none = lint(folder.path(), &["--sarif", "none.xml"]);
    for (name, text) in [("all", &all.stdout), ("none", &none.stdout), ("broken", &broken)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let said = run("node", &["-e", VALIDATE, "--", "all", "none", "broken"]).expect("npm's node");
    let said = CommandOutput::of(said);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[..2], ["all: valid", "none: valid"], "{said:#?}");
    assert!(lines[2].contains("level should be equal to one of"), "{said:#?}");
}

/// What the host can do, from files and from the QEMU that is installed.
#[test]
fn what_the_host_offers_is_held_against() {
    let domain = |machine: &str| {
        format!(
            "<domain type='qemu'>\n<name>a</name>\n<os><type arch='x86_64' machine='{machine}'>hvm\
             </type></os>\n<vcpu>1</vcpu>\n</domain>\n"
        )
    };
    let capabilities = "<capabilities><guest><arch name='x86_64'>\
                        <machine maxCpus='255'>pc-i440fx-7.2</machine></arch></guest></capabilities>";
    let folder = folder(&[
        ("gone.xml", &domain("pc-i440fx-1.0")),
        ("here.xml", &domain("pc-i440fx-7.2")),
        ("capabilities.xml", capabilities),
        ("broken.xml", "<capabilities>\n<guest></capabilities>\n"),
    ]);
    let lint = |args: &[&str]| lint(folder.path(), args);
    let gone = lint(&["--capabilities", "capabilities.xml", "gone.xml"]);
    gone.has_code(1);
    assert!(gone.stdout.contains("error[machine-not-offered]"), "{gone:#?}");
    assert!(gone.stdout.contains("gone.xml:3:34 (a)"), "{gone:#?}");
    let here = lint(&["--capabilities", "capabilities.xml", "here.xml"]);
    assert!(!here.stdout.contains("error["), "{here:#?}");
    assert!(!lint(&["gone.xml"]).stdout.contains("error["));
    lint(&["--capabilities", "broken.xml", "here.xml"]).is_error(&["broken.xml:2: Not XML"]);
    lint(&["--capabilities", "none.xml", "here.xml"]).is_error(&["Cannot read none.xml"]);
    lint(&["--qemu", "/nowhere/qemu", "here.xml"]).is_error(&["Cannot run /nowhere/qemu"]);
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let asked = lint(&["--qemu", "qemu-system-x86_64", "gone.xml"]);
    assert!(asked.has_code(1).stdout.contains("error[machine-not-offered]"), "{asked:#?}");
}

/// A cluster's KubeVirt object beside tells its version and which feature gates are on.
#[test]
fn a_cluster_decides_what_needs_a_feature_gate() {
    let vm = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      autoattachVSOCK: yes
      video: {type: virtio}
";
    let cluster = |gates: &str, version: &str| {
        format!(
            "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {{name: kubevirt}}\nspec:\n  \
             configuration: {{developerConfiguration: {{featureGates: [{gates}]}}}}\nstatus: \
             {{observedKubeVirtVersion: v{version}}}\n"
        )
    };
    let folder = folder(&[
        ("vm.yaml", vm),
        ("on.yaml", &cluster("VSOCK", "1.9.0")),
        ("old.yaml", &cluster("VSOCK", "1.7.1")),
        ("off.yaml", &cluster("", "1.9.0")),
    ]);
    let check = |args: &[&str], code: u8, hints: usize, errors: &[&str]| {
        let said = lint(folder.path(), &[args, &["vm.yaml"]].concat());
        said.has_code(code.into());
        let found = said.stdout.matches("hint[kubevirt-feature-gate]").count();
        assert_eq!(found, hints, "{args:?} {said:#?}");
        let off = said.stdout.matches("error[kubevirt-feature-gate-off]").count();
        assert_eq!(off, errors.len(), "{args:?} {said:#?}");
        let told = |gate: &&&str| said.stdout.contains(&format!("needs the feature gate {gate}"));
        assert_eq!(errors.iter().filter(told).count(), errors.len(), "{args:?} {said:#?}");
    };
    check(&[], 0, 1, &[]);
    check(&["on.yaml"], 0, 0, &[]);
    check(&["off.yaml"], 1, 0, &["VSOCK"]);
    // What is GA in 1.9 needed its gate before.
    check(&["old.yaml"], 1, 0, &["VideoConfig"]);
    check(&["--kubevirt", "1.9.0", "old.yaml"], 0, 0, &[]);
    check(&["--feature-gates", "VSOCK,VideoConfig", "old.yaml"], 0, 0, &[]);
    check(&["--feature-gates", ""], 1, 0, &["VSOCK"]);
}
