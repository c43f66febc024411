//! Rules files from their text to findings, levels and examples.

use proptest::prelude::*;

use super::*;
use crate::{Context, Finding, Severity, check_text_by};

const HEAD: &str = "vmlab = 1\n";

fn rule(more: &str) -> String {
    format!("{HEAD}[[rule]]\nid = 'acme-a'\nseverity = 'warning'\ntext = 'T'\nhelp = 'H'\n{more}\n")
}

fn when(condition: &str) -> String {
    rule(&format!("when = '''\n{condition}'''"))
}

fn read(text: &str) -> SiteRules {
    match SiteRules::read("site.toml", text, &[]) {
        Ok(rules) => rules,
        Err(bad) => panic!("{bad:?}\n{text}"),
    }
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let bad = match SiteRules::read("site.toml", text, &[]) {
        Ok(_) => panic!("it was taken:\n{text}"),
        Err(bad) => bad,
    };
    let said: Vec<String> = bad.iter().map(ToString::to_string).collect();
    assert_eq!(said.join("\n"), expected, "{text}");
}

fn findings(condition: &str, each: Option<&str>, text: &str) -> Vec<Finding> {
    let each = each.map_or_else(String::new, |each| format!("each = '{each}'\n"));
    let rules = read(&rule(&format!("{each}when = '''\n{condition}'''")));
    let checked = check_text_by("vm", text, &Context::default(), &[&rules]).unwrap();
    checked.findings.into_iter().filter(|finding| finding.rule == "acme-a").collect()
}

#[track_caller]
fn fires(condition: &str, text: &str, expected: bool) {
    let found = findings(condition, None, text);
    assert!(found.iter().all(|one| one.message == "T"), "{condition}: {found:?}");
    assert_eq!(!found.is_empty(), expected, "{condition}: {text}");
}

const DOMAIN: &str = "<!-- two disks -->
<domain type='kvm'>
  <name>db-1</name>
  <memory unit='GiB'>48</memory>
  <memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>
  <vcpu>4</vcpu>
  <cputune>
    <vcpupin vcpu='0' cpuset='4-7'/>
    <vcpupin vcpu='1' cpuset='2'/>
  </cputune>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source file='/a.img'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe'/>
      <source file='/b.img'/>
      <target dev='vdb' bus='virtio'/>
    </disk>
    <interface type='user'><model type='virtio'/></interface>
  </devices>
</domain>
";

const INSTANCE: &str = "apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: web
  labels:
    owner: team-a
spec:
  template:
    metadata:
      labels: {app: web}
    spec:
      domain:
        cpu: {cores: 2}
        memory: {guest: 4Gi}
        devices: {}
";

#[test]
fn conditions_see_the_vm() {
    for (condition, expected) in [
        ("vm.memory_mib == 49152 && vcpus == 4", true),
        ("vm.topology.cores > 64", false),
        ("has(vm.memory.huge_pages) && vm.memory.huge_pages == '1G'", true),
        ("!has(vm.memory.huge_pages)", false),
        ("'huge_pages' in vm.memory", true),
        ("vm.disks.exists(d, has(d.cache) && d.cache in ['unsafe', 'writeback'])", true),
        ("vm.disks.all(d, d.bus == 'virtio-blk')", true),
        ("size(vm.disks.filter(d, d.format == 'qcow2')) == 1", true),
        ("vm.disks.map(d, d.format).exists_one(f, f == 'qcow2')", true),
        ("vm.pins.vcpus.all(v, vm.pins.vcpus[v].within('2-7'))", true),
        ("vm.pins.vcpus.exists(v, vm.pins.vcpus[v].overlaps('0-3'))", true),
        ("vm.pins.vcpus['0'].count() == 4", true),
        ("vm.disks[1].format == 'qcow2'", true),
        ("name.matches('^(web|app)-[0-9]+$')", false),
        ("name.startsWith('db-') && file == 'vm' && format == 'libvirt'", true),
        ("vm.nics.exists(n, has(n.backend.user))", true),
        ("vm.nics.exists(n, has(n.backend.tap) && n.backend.tap.ifname == 'tap0')", false),
        ("vm.numa.size() > 0 || vm.iothreads > 0", false),
        ("kept.exists(k, k.path == '/domain/devices/video')", false),
        ("vm.memory_mib / 1024 * 2 + 1 - 97 == 0 ? true : false", true),
        ("int('4') == vcpus && string(vcpus) == '4' && double(vcpus) < 4.5", true),
    ] {
        fires(condition, DOMAIN, expected);
    }
}

#[test]
fn every_format_has_the_same_view() {
    let script = "#!/bin/sh\nqemu-system-x86_64 -accel kvm -m 2G -smp 2 -name a\n\
                  qemu-system-x86_64 -accel tcg -m 1G -smp 1 -name b\n";
    let found = findings("vm.accel == 'tcg'", None, script);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].vm.as_str(), found[0].place.line), ("b", 3));
    fires("vcpus == 2 && vm.memory_mib == 4096", INSTANCE, true);
    fires("object.metadata.labels.owner == 'team-a' && format == 'kubevirt'", INSTANCE, true);
    fires("has(object.spec.template.metadata.labels.owner)", INSTANCE, false);
    // A rule that names the object looks at nothing else.
    fires("!has(object.metadata.labels)", DOMAIN, false);
    fires("host.pcpus.size() > 0", DOMAIN, false);
    let two = format!("{INSTANCE}---\n{}", INSTANCE.replace("web", "app"));
    let found = findings("name == 'app'", None, &two);
    assert_eq!(found.iter().map(|one| one.vm.as_str()).collect::<Vec<_>>(), ["app"]);
    let pool = "apiVersion: pool.kubevirt.io/v1beta1\nkind: VirtualMachinePool\nmetadata: {name: p}\n\
                spec:\n  virtualMachineTemplate:\n    spec:\n      template:\n        spec:\n          \
                domain: {cpu: {cores: 3}, devices: {}}\n";
    fires("vcpus == 3", pool, true);
    let domains = format!("<domains>\n{}\n{}</domains>", DOMAIN, DOMAIN.replace("db-1", "db-2"));
    let found = findings("name == 'db-2' && vm.memory_mib > 1", None, &domains);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].place.text.trim(), "<name>db-2</name>");
    // A prefix that the element around declares, and documents in a row.
    let passed = "<qemu:commandline><qemu:arg value='-no-hpet'/></qemu:commandline></domain>";
    let other = DOMAIN.replace("db-1", "db-2").replace("</domain>", passed);
    let wrapped =
        format!("<l xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n{other}</l>");
    for text in [&wrapped, &format!("{DOMAIN}\n{}", DOMAIN.replace("db-1", "db-2"))] {
        let found = findings("name == 'db-2' && vm.memory_mib > 1", None, text);
        assert_eq!(found.len(), 1, "{text}");
        assert_eq!((&*found[0].message, found[0].place.text.trim()), ("T", "<name>db-2</name>"));
    }
}

/// An instance type that another file holds is part of the VM.
#[test]
fn conditions_see_instance_types_of_other_files() {
    let machine = "apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web}
spec:
  instancetype: {name: large}
  template: {spec: {domain: {devices: {}}}}
";
    let kind = |cores: u32, memory: &str| {
        format!(
            "apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata: {{name: large}}
spec: {{cpu: {{guest: {cores}}}, memory: {{guest: {memory}}}}}
"
        )
    };
    let mut context = Context::default();
    context.instancetypes.extend(&crate::instancetypes(&kind(6, "12Gi")).unwrap());
    let rules = read(&when("vcpus == 6 && vm.memory_mib == 12288"));
    let count = |text: &str| {
        let checked = check_text_by("vm", text, &context, &[&rules]).unwrap();
        checked.findings.iter().filter(|finding| finding.rule == "acme-a").count()
    };
    assert_eq!(count(machine), 1);
    // The text's own comes before that of another.
    assert_eq!(count(&format!("{machine}---\n{}", kind(2, "1Gi"))), 0);
    assert!(crate::instancetypes(machine).is_none());
}

#[test]
fn findings_point_at_the_value() {
    let check = |condition: &str, each: Option<&str>, text: &str, expected: (usize, &str)| {
        let found = findings(condition, each, text);
        let [found] = found.as_slice() else { panic!("{condition}: {found:?}") };
        let place = &found.place;
        let marked: String =
            place.text.chars().skip(place.column - 1 - place.cut).take(place.length).collect();
        assert_eq!((place.line, marked.as_str()), expected, "{condition}");
    };
    let unsafe_disk = "has(item.cache) && item.cache == 'unsafe'";
    check(unsafe_disk, Some("vm.disks"), DOMAIN, (18, "unsafe"));
    let exists = "vm.disks.exists(d, has(d.cache) && d.cache == 'unsafe')";
    check(exists, None, DOMAIN, (18, "unsafe"));
    check("!vm.disks.all(d, d.format == 'raw')", None, DOMAIN, (18, "qcow2"));
    check("vm.memory_mib > 32768", None, DOMAIN, (4, "<memory unit='GiB'>48</memory>"));
    check("!name.startsWith('web')", None, DOMAIN, (3, "db-1"));
    check("!vm.pins.vcpus.all(v, vm.pins.vcpus[v].within('4-7'))", None, DOMAIN, (9, "2"));
    check("!vm.pins.vcpus[item].within('4-7')", Some("vm.pins.vcpus"), DOMAIN, (9, "2"));
    check("vcpus > 3", None, DOMAIN, (6, "4"));
    check("object.metadata.labels.owner != 'b'", None, INSTANCE, (6, "team-a"));
    check("!has(object.metadata.labels.cost)", None, INSTANCE, (5, "labels"));
    check("item == 'app'", Some("object.spec.template.metadata.labels"), INSTANCE, (10, "web"));
}

#[test]
fn notes_say_the_values() {
    let found = findings("vm.memory_mib > 32768 && vcpus >= 4", None, DOMAIN);
    assert_eq!(found[0].notes, ["vm.memory_mib is 49152", "vcpus is 4"]);
    assert_eq!((found[0].severity, &*found[0].help), (Severity::Warning, "H"));
}

#[test]
fn bad_rules_are_told_with_their_line() {
    refused("vmlab = 2\n", "site.toml:1: vmlab = 2: this vmlab reads version 1: use a newer vmlab");
    refused(
        "\nrules = 1\n",
        "site.toml:2: Unknown key `rules`, expected one of `vmlab`, `rule`, `level`; did you mean `rule`?",
    );
    refused("", "site.toml:1: missing field `vmlab`: begin the file with `vmlab = 1`");
    refused(
        &rule("when = 'true'\nwhy2 = 'a'"),
        "site.toml:8: Unknown key `why2`, expected one of `id`, `severity`, `text`, `why`, `help`, \
         `each`, `when`, `example`; did you mean `why`?",
    );
    refused(&rule(""), "site.toml:2: missing field `when`");
    refused(
        &when("vm.memory_mib > 1 &&\nvm.memory_mib >"),
        "site.toml:9: rule \"acme-a\": when, line 2, column 16: Syntax error: mismatched input \
         '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
         NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
    );
    let twice = format!("{}{}", when("true"), &when("true")[HEAD.len()..]);
    refused(&twice, "site.toml:10: rule \"acme-a\" is there already: site.toml:3");
    refused(
        &when("true").replace("acme-a", "siblings-split"),
        "site.toml:3: id \"siblings-split\" is that of a built-in rule: change its [[level]] instead",
    );
    refused(
        &when("true").replace("acme-a", "Acme"),
        "site.toml:3: id \"Acme\": write small letters, digits and `-`, up to 64",
    );
    refused(
        &rule("each = 'vm.memory'\nwhen = 'true'"),
        "site.toml:7: rule \"acme-a\": each \"vm.memory\" is no list or map of the view: \
         `vm.disks`, `vm.nics`...",
    );
    refused(
        &rule("when = 'true'\n[[rule.example]]\n"),
        "site.toml:3: rule \"acme-a\": an example has either `bad` or `good`",
    );
    let level = |text: &str| format!("{HEAD}[[level]]\n{text}\n");
    refused(
        &level("rule = 'siblings-splitt'\nlevel = 'deny'"),
        "site.toml:3: No rule has the id \"siblings-splitt\"; did you mean siblings-split?",
    );
    refused(
        &level("rule = 'siblings-split'\nlevel = 'allow'"),
        "site.toml:4: allowing \"siblings-split\" needs a reason",
    );
    refused(
        &level("rule = 'siblings-split'\nlevel = 'off'"),
        "site.toml:4: unknown variant `off`, expected one of `allow`, `warn`, `deny`",
    );
    let other = read(&when("true"));
    let bad = SiteRules::read("b.toml", &when("true"), &[&other]).unwrap_err();
    assert_eq!(bad[0].to_string(), "b.toml:3: rule \"acme-a\" is there already: site.toml:3");
}

#[test]
fn what_can_not_be_meant_is_refused() {
    let wrong = |condition: &str, expected: &str| {
        refused(&when(condition), &format!("site.toml:8: rule \"acme-a\": when, {expected}"));
    };
    wrong(
        "vm.memroy_mib > 1",
        "column 3: vm has no field \"memroy_mib\": did you mean \"memory_mib\"?",
    );
    wrong(
        "vm.disks.exists(d, d.cach == 'none')",
        "column 21: disks[] has no field \"cach\": did you mean \"cache\"?",
    );
    wrong("vm.vcpus > 2", "column 3: vcpus is a variable of its own, not of vm");
    wrong("vm.memory_mib > '32G'", "column 15: int and string have no order");
    wrong("vm.memory_mib", "column 3: is int, not bool: nothing to decide");
    wrong(
        "vm.memory.huge_pages == '1G'",
        "column 10: not every VM has memory.huge_pages: ask `has()` of it, too",
    );
    wrong("vm.accel == 'xen'", "column 10: it is never \"xen\": there is kvm, tcg");
    wrong(
        "vm.disks.exists(d, d.bus in ['virtio-blk', 'virtio-scsy'])",
        "column 26: it is never \"virtio-scsy\": did you mean \"virtio-scsi\"?",
    );
    wrong("vms.size() > 0", "column 1: there is no \"vms\": did you mean \"vm\"?");
    wrong("item.cache == 'none'", "column 1: there is no item: the rule has no `each`");
    wrong("name.matches('(')", "column 13: \"(\": found open group without closing ')'");
    wrong("name.matches(file)", "column 13: matches() takes a pattern that is written out");
    wrong("name.foo(1)", "column 9: no function foo(string, int)");
    wrong(
        "vm.pins.vcpus['0'].within('3-1')",
        "column 26: Range runs backwards: \"3-1\" (write 1-3)",
    );
    wrong("vm.disks == 3", "column 10: list is never equal to int");
    wrong("!vcpus", "column 1: `!` takes bool, not int");
    wrong("vcpus && true", "column 7: `&&` and `||` take bool, not int");
    wrong("{'a': 1}.a == 1", "column 1: no maps are made in a condition");
    wrong("[1].map(x, [x]).size() == 1", "column 12: no lists are made inside map()");
    wrong("[name].map(x, x + x).size() == 1", "column 17: only numbers are added inside map()");
    wrong(
        "[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))",
        "column 41: more than 3 loops inside each other",
    );
    let deep = format!("{}true{}", "(".repeat(200), ")".repeat(200));
    wrong(&deep, "column 65: nested deeper than 64");
}

/// Chains nest in the tree though not in the text; neither the check nor the evaluation
/// may recurse as deeply.
#[test]
fn long_chains_are_refused_or_decided() {
    let wide = vec!["vcpus > 0"; 300].join(" && ");
    fires(&wide, DOMAIN, true);
    for (join, one) in [(" + ", "1"), (" - ", "1")] {
        let chain = format!("{} > 0", vec![one; 900].join(join));
        let bad = SiteRules::read("s", &when(&chain), &[]).unwrap_err();
        assert!(bad[0].what.contains("deeper") || bad[0].what.contains("ecursion"), "{bad:?}");
    }
    for text in [
        format!("{}true", "!".repeat(3000)),
        format!("{}1 > 0", "-".repeat(3000)),
        "true ? ".repeat(500),
        format!("object{}", ".a".repeat(1500)),
        "[".repeat(4000),
        format!("name == '{}'", "a".repeat(4000)),
    ] {
        let _ = SiteRules::read("s", &when(&text), &[]);
    }
    let long = format!("true {}", " ".repeat(5000));
    refused(&when(&long), "site.toml:8: rule \"acme-a\": when, column 1: longer than 4096 bytes");
}

#[test]
fn what_can_not_be_decided_is_told() {
    let found = findings("object.metadata.labels.cost == 'a'", None, INSTANCE);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message, "The rule could not be decided: No such key: cost");
    assert_eq!((found[0].vm.as_str(), found[0].notes[0].as_str()), ("web", "site.toml:3: T"));
    let found = findings("vm.disks[7].bus == 'ide'", None, DOMAIN);
    assert!(found[0].message.starts_with("The rule could not be decided: "), "{found:?}");
    let found = findings("1 / vm.iothreads > 0", None, DOMAIN);
    assert!(found[0].message.contains("ivision by zero"), "{found:?}");
}

/// Loops over loops over a VM with thousands of disks end before they begin.
#[test]
fn a_costly_condition_is_told_instead_of_run() {
    let disk = "<disk type='file' device='disk'><source file='/a'/><target dev='vda' bus='virtio'/></disk>";
    let many = format!(
        "<domain type='kvm'><name>a</name><vcpu>1</vcpu><devices>{}</devices></domain>",
        disk.repeat(2000)
    );
    let nested =
        "vm.disks.all(a, vm.disks.all(b, vm.disks.all(c, a.bus == b.bus && b.bus == c.bus)))";
    let found = findings(nested, None, &many);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("more than 1000000"), "{}", found[0].message);
    assert_eq!(findings("vm.disks.all(a, a.bus == 'virtio-blk')", None, &many).len(), 1);
    assert!(findings(nested, None, DOMAIN).iter().all(|one| one.message == "T"));
    // What is long may be the condition itself.
    let list = format!("[{}]", ["1"; 300].join(","));
    let written = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == b && b == c)))");
    assert!(findings(&written, None, DOMAIN)[0].message.contains("more than 1000000"));
}

#[test]
fn levels_change_by_rule_file_and_vm() {
    let rules = read(&format!(
        "{}[[level]]\nrule = 'acme-a'\nlevel = 'deny'\n\
         [[level]]\nrule = 'cpu-model-generic'\nlevel = 'warn'\nreason = 'we say so'\n\
         [[level]]\nrule = '*'\nlevel = 'allow'\nfiles = ['legacy/*.xml']\nvms = ['db-*']\nreason = 'goes in May'\n",
        when("vcpus == 4")
    ));
    let settled = |path: &str, vm: &str| {
        let text = DOMAIN.replace("db-1", vm);
        let checked = check_text_by("vm", &text, &Context::default(), &[&rules]).unwrap();
        let own = checked.findings.into_iter().find(|one| one.rule == "acme-a").unwrap();
        settle(own, &[(&rules, path)])
    };
    let kept = settled("web.xml", "db-1").unwrap();
    assert_eq!(kept.severity, Severity::Error);
    assert_eq!(kept.notes.last().unwrap(), "level deny by site.toml");
    let gone = settled("legacy/web.xml", "db-1").unwrap_err();
    assert_eq!((gone.by, gone.reason.as_str()), (Suppressor::Level, "goes in May"));
    assert_eq!(settled("legacy/web.xml", "web").unwrap().severity, Severity::Error);
}

#[test]
fn comments_silence_a_sites_rules() {
    let rules = read(&when("vcpus == 4"));
    let check = |comment: &str| {
        let text = DOMAIN.replace("  <vcpu>", &format!("  {comment}\n  <vcpu>"));
        check_text_by("vm", &text, &Context::default(), &[&rules]).unwrap()
    };
    let has = |findings: &[Finding], id: &str| findings.iter().any(|one| one.rule == id);
    for comment in [
        "<!-- vmlab: allow acme-a -->",
        "<!-- vmlab: allow acme-a: four are enough -->",
        "<!-- vmlab: allow nic-user-mode, acme-a -->",
        "<!-- vmlab: allow acme-a-->",
        "<!-- vmlab: allow(acme-a) -->",
        "<!-- vmlab: allow-file acme-a -->",
    ] {
        let checked = check(comment);
        assert!(!has(&checked.findings, "acme-a"), "{comment}");
        assert!(
            !has(&checked.findings, "unknown-allow") || comment.contains("nic-user"),
            "{comment}"
        );
        let silenced = checked.suppressed.iter().find(|one| one.finding.rule == "acme-a").unwrap();
        assert_eq!(silenced.by, Suppressor::Comment);
    }
    for comment in ["<!-- vmlab: allowed acme-a -->", "<!-- vmlab: allow -->"] {
        let checked = check(comment);
        assert!(has(&checked.findings, "acme-a"), "{comment}");
        assert!(!has(&checked.findings, "unknown-allow"), "{comment}");
    }
    assert!(has(&check("<!-- vmlab: allow acme-b -->").findings, "unknown-allow"));
}

#[test]
fn rules_are_held_to_their_examples() {
    let text = format!(
        "{}\n[[rule.example]]\nbad = '''\n{DOMAIN}'''\n[[rule.example]]\ngood = '''{INSTANCE}'''\n\
         [[rule.example]]\ngood = '''{DOMAIN}'''\n[[rule.example]]\nbad = 'nothing'\n",
        when("vcpus == 4")
    );
    let tried = try_examples(&read(&text), &Context::default());
    let said: Vec<Option<&str>> = tried.iter().map(|one| one.wrong.as_deref()).collect();
    assert_eq!(said[..2], [None, None]);
    assert_eq!(said[2], Some("is good, and the rule fires on its line 6: <vcpu>4</vcpu>"));
    assert!(said[3].unwrap().contains("holds no VM"), "{said:?}");
    assert_eq!(tried[0].line, 12);
}

#[test]
fn a_rule_is_explained_as_built_in_ones_are() {
    let rules = read(&rule("why = 'W.'\neach = 'vm.disks'\nwhen = 'item.readonly'"));
    assert_eq!(
        explain(&rules.rules[0]),
        "## acme-a\n\nWarning: T.\n\nW.\n\nWhat to do: H.\n\nFor each item of `vm.disks`, it fires \
         when\n\n```cel\nitem.readonly\n```\n\nSource: site.toml:3.\n"
    );
    assert_eq!(list(&[&rules]), "acme-a  warning  T (site.toml)\n");
}

/// The page has the table of fields as it is, and its example of a file can be read.
#[test]
fn the_page_is_right() {
    let page =
        expect_test::expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/site-rules.md")];
    let text = page.data();
    let (begin, end) = ("<!-- fields: begin -->\n", "<!-- fields: end -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    page.assert_eq(&format!("{before}{begin}{}{end}{after}", view::markdown()));
    let (_, example) = text.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let rules = read(example);
    let tried = try_examples(&rules, &Context::default());
    assert_eq!(tried.len(), 2);
    assert!(tried.iter().all(|one| one.wrong.is_none()), "{tried:?}");
}

/// Every rule of the page's file does what its examples say, a bad and a good one each.
#[test]
fn the_rules_of_the_page_hold() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/site-rules");
    let text = std::fs::read_to_string(format!("{folder}/site.toml")).unwrap();
    let rules = read(&text);
    let tried = try_examples(&rules, &Context::default());
    assert!(tried.iter().all(|one| one.wrong.is_none()), "{tried:#?}");
    for rule in &rules.rules {
        let kinds: Vec<bool> = rule.examples.iter().map(|example| example.bad).collect();
        assert!(kinds.contains(&true) && kinds.contains(&false), "{}", rule.id);
    }
}

/// Words that make conditions, some of them right.
const WORDS: &[&str] = &[
    "vm",
    ".",
    "disks",
    "cache",
    "exists(d,",
    "all(a,",
    "map(x,",
    "filter(x,",
    "d",
    "x",
    "a",
    "has(",
    "(",
    ")",
    "[",
    "]",
    "'none'",
    "'0-3'",
    "1",
    "-",
    "!",
    "&&",
    "||",
    "==",
    "<",
    "+",
    "/",
    "%",
    "?",
    ":",
    ",",
    "in",
    "item",
    "object",
    "memory_mib",
    "pins",
    "vcpus",
    "within(",
    "matches(",
    "size(",
    "null",
    "{",
    "}",
    "1.5",
    "9223372036854775807",
    "'",
    "\"",
    "\\",
    "b'a'",
    "int(",
    "string(",
    " ",
];

proptest! {
    /// Any text is refused or taken; what is taken can be asked.
    #[test]
    fn any_condition_is_refused_or_decided(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..24),
        each in proptest::option::of(proptest::sample::select(&["vm.disks", "vm.pins.vcpus", "object.spec"][..])),
    ) {
        let each = each.map_or_else(String::new, |each| format!("each = '{each}'\n"));
        let condition = toml::Value::String(words.concat()).to_string();
        let text = rule(&format!("{each}when = {condition}"));
        if let Ok(rules) = SiteRules::read("site.toml", &text, &[]) {
            for document in [DOMAIN, INSTANCE] {
                check_text_by("vm", document, &Context::default(), &[&rules]).unwrap();
            }
        }
    }

    #[test]
    fn any_file_is_read_or_refused(text in "[\\[\\]a-z='\"\\n{}.0-9]{0,200}") {
        if let Err(bad) = SiteRules::read("site.toml", &format!("{HEAD}{text}"), &[]) {
            let lines = text.lines().count() + 2;
            prop_assert!(bad.iter().all(|one| (1..=lines).contains(&one.line)), "{bad:?}");
        }
    }
}
