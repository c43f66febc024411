//! Policy over the whole table, and the parts around it.

mod agreement;
mod proxmox;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use expect_test::{expect, expect_file};
use proptest::prelude::*;
use serde_json::Value;

use crate::rules::worlds::{HUGE_ON_NODE_1, NO_SMT, TWO_SOCKETS};
use crate::{
    CheckedText, ConfigFormat, Context, Finding, RULES, Rule, RuleExample, Severity, apply,
    check_fleet, check_text, difference, output,
};

fn findings(document: &str, context: &Context) -> Vec<Finding> {
    let CheckedText { mut findings, vms, .. } = check_text("example", document, context)
        .unwrap_or_else(|error| panic!("{error}\n{document}"));
    findings.extend(check_fleet(&vms, context));
    findings
}

fn fires(rule: &Rule, example: &RuleExample) -> bool {
    let context = example.world.context();
    findings(&example.document(), &context).iter().any(|finding| finding.rule == rule.id)
}

#[test]
fn every_rule_fires_and_keeps_quiet() {
    let mut wrong = Vec::new();
    for rule in RULES {
        for example in rule.fires {
            if !fires(rule, example) {
                wrong.push(format!("{} does not fire on\n{}", rule.id, example.document()));
            }
        }
        for example in rule.quiet() {
            if fires(rule, &example) {
                wrong.push(format!("{} fires on\n{}", rule.id, example.document()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Texts that took minutes or gigabytes where a copy of the file was kept for each
/// VM, and pCPUs were counted one by one.
#[test]
fn large_texts_take_their_own_size() {
    let context = Context::default();
    let check = |text: &str| check_text("large", text, &context).unwrap();

    let domain = "<domain type='kvm'><name>käse</name><vcpu>1</vcpu></domain>";
    for text in [domain.repeat(20_000), format!("<domains>{}</domains>", domain.repeat(20_000))] {
        let checked = check(&text);
        assert_eq!(checked.vms.len(), 20_000);
        let shown: usize = checked.vms.iter().map(|vm| vm.vcpus_place.text.len()).sum();
        assert!(shown <= 20_000 * 2 * 200, "{shown} bytes of {}", text.len());
        let columns: BTreeSet<usize> = checked.vms.iter().map(|vm| vm.vcpus_place.column).collect();
        assert_eq!(columns.len(), 20_000, "each has a place of its own");
    }

    let pin = |vcpu| format!("<vcpupin vcpu='{vcpu}' cpuset='0-65535'/>");
    let pins: String = (0..4096).map(pin).collect();
    let text = format!("<domain><vcpu>4096</vcpu><cputune>{pins}</cputune></domain>");
    for context in [Context::default(), TWO_SOCKETS.context()] {
        assert_eq!(check_text("pins", &text, &context).unwrap().vms.len(), 1);
    }

    let attributes: String = (0..100_000).map(|n| format!(" a{n}='1'")).collect();
    let error = check_text("wide", &format!("<domain{attributes}/>"), &context).unwrap_err();
    assert!(error.to_string().contains("More than 256 attributes"), "{error}");
}

#[test]
fn the_table_is_well_formed() {
    let mut ids = BTreeSet::new();
    for rule in RULES {
        let id = rule.id;
        assert!(ids.insert(id), "{id} is there twice");
        let allowed =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        assert!(id.chars().all(allowed) && id.len() <= 40, "{id}");
        for text in [rule.summary, rule.mend] {
            assert!(!text.is_empty() && !text.ends_with('.'), "{id}: {text}");
        }
        assert!(rule.summary.len() <= 100, "{id}: {}", rule.summary.len());
        assert!(rule.why.ends_with('.'), "{id}: {}", rule.why);
        assert!(!rule.sources.is_empty(), "{id} has no source");
        assert!(!rule.fires.is_empty(), "{id} has no example");
        for text in [rule.summary, rule.why, rule.mend] {
            assert!(!text.contains("  "), "{id}: two spaces in {text:?}");
        }
        // An example that is right in each format that one is wrong in.
        let quiet: BTreeSet<ConfigFormat> = rule.quiet().map(|example| example.format).collect();
        assert_eq!(rule.formats(), Vec::from_iter(quiet), "{id}");
    }
    assert!(RULES.len() >= 40);
}

/// What `--fix` would write must mend it, and must break nothing else.
#[test]
fn fixes_mend() {
    for rule in RULES {
        for example in rule.fires {
            let (context, document) = (example.world.context(), example.document());
            let found = findings(&document, &context);
            let certain = |finding: &&Finding| {
                finding.rule == rule.id && finding.fix.as_ref().is_some_and(|fix| fix.certain)
            };
            let own: Vec<Finding> = found.iter().filter(certain).cloned().collect();
            if own.is_empty() {
                continue;
            }
            let (mended, number) = apply(&document, &own);
            assert_eq!(number, own.len(), "{}", rule.id);
            let after = findings(&mended, &context);
            assert!(after.iter().all(|finding| finding.rule != rule.id), "{}\n{mended}", rule.id);
            let errors = |found: &[Finding]| {
                found.iter().filter(|finding| finding.severity == Severity::Error).count()
            };
            assert!(errors(&after) <= errors(&found), "{}\n{mended}", rule.id);
        }
    }
}

fn good_files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/good");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn good_configurations_are_clean() {
    let files = good_files();
    assert!(files.len() >= 5);
    for (name, text) in files {
        let shown = |context: &Context, least: Severity| {
            let found = findings(&text, context);
            let found = found.into_iter().filter(|finding| finding.severity >= least);
            output::text(&found.collect::<Vec<_>>(), 80, false)
        };
        assert_eq!(shown(&Context::default(), Severity::Hint), "", "{name}");
        // On the host that they were written for, hints may remain.
        assert_eq!(shown(&TWO_SOCKETS.context(), Severity::Warning), "", "{name}");
    }
}

#[test]
fn the_table_is_documented() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lints.md")]
        .assert_eq(&output::markdown());
}

const SPLIT: &str = "\
<domain type='kvm'>
  <name>web</name>
  <vcpu>4</vcpu>
  <!-- two cores of two threads -->
  <cputune>
    <vcpupin vcpu='0' cpuset='1'/>
    <vcpupin vcpu='1' cpuset='2'/>
    <vcpupin vcpu='2' cpuset='17'/>
    <vcpupin vcpu='3' cpuset='18'/>
    <emulatorpin cpuset='0'/>
  </cputune>
  <numatune><memory mode='strict' nodeset='0'/></numatune>
  <cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>
</domain>
";

#[test]
fn a_finding_shows_place_reason_and_fix() {
    let found = findings(SPLIT, &TWO_SOCKETS.context());
    let text = output::text(&found, 80, false);
    expect![[r#"
        warning[siblings-split]: vCPUs 0 and 1 are threads of one guest core, but pCPUs 1-2 are on different host cores
         --> example:6:5 (web)
          |
        6 |     <vcpupin vcpu='0' cpuset='1'/>
          |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          = note: 2 of 2 guest cores are split
          = note: pCPU 1 is a thread of the core 1,17
          = note: pCPU 2 is a thread of the core 2,18
          = why: The guest's scheduler believes that these vCPUs share a core and its
                 caches: it keeps related tasks on them, and spreads load over what it
                 takes for other cores. With the threads on different cores both
                 decisions are wrong; a VM tuned like this was measured slower than one
                 without any tuning.
          = help: Give each guest core a host core; the same pCPUs suffice in another
                  order
        7 +     <vcpupin vcpu='1' cpuset='17'/>
        8 +     <vcpupin vcpu='2' cpuset='2'/>
          = `vmlab lint --fix` writes this

    "#]]
    .assert_eq(&text);
    expect![[r#"
        1 warning in 1 file; `--fix` mends 1
        `vmlab lint --explain ID` shows a rule with an example put right
    "#]]
    .assert_eq(&output::summary(&found, 1, "file"));
    let (mended, number) = apply(SPLIT, &found);
    assert_eq!(number, 1);
    expect![[r"
        --- web.xml
        +++ web.xml
        @@ -4,8 +4,8 @@
           <!-- two cores of two threads -->
           <cputune>
             <vcpupin vcpu='0' cpuset='1'/>
        -    <vcpupin vcpu='1' cpuset='2'/>
        -    <vcpupin vcpu='2' cpuset='17'/>
        +    <vcpupin vcpu='1' cpuset='17'/>
        +    <vcpupin vcpu='2' cpuset='2'/>
             <vcpupin vcpu='3' cpuset='18'/>
             <emulatorpin cpuset='0'/>
           </cputune>
    "]]
    .assert_eq(&difference("web.xml", SPLIT, &mended));
}

/// A command line of many options stays readable: the part that matters.
#[test]
fn long_lines_are_cut() {
    let many = "-device pci-bridge,id=x ".repeat(40);
    for text in [
        format!("qemu-system-x86_64 -accel kvm {many} -cpu kvm64 {many}"),
        format!("qemu-system-x86_64 -accel kvm -cpu kvm64 {many}"),
        format!("qemu-system-x86_64 -accel kvm {many} -cpu kvm64"),
    ] {
        let found = findings(&text, &Context::default());
        let said = output::text(&found, 80, false);
        let lines: Vec<&str> = said.lines().collect();
        let row = lines.iter().position(|line| line.contains("^^^^^")).unwrap();
        let column = lines[row].find('^').unwrap();
        assert_eq!(lines[row - 1].get(column..column + 5), Some("kvm64"), "{said}");
        assert!(lines.iter().all(|line| line.chars().count() <= 84), "{said}");
    }
}

#[test]
fn comments_silence() {
    let context = TWO_SOCKETS.context();
    let quiet = |text: &str| findings(text, &context).iter().all(|f| f.rule != "siblings-split");
    let comment = "<!-- vmlab: allow(siblings-split) -->";
    let at_pin = SPLIT.replace("  <cputune>\n", &format!("  <cputune>\n    {comment}\n"));
    assert!(quiet(&at_pin), "{at_pin}");
    assert!(!quiet(&SPLIT.replace("  <vcpu>", &format!("{comment}\n  <vcpu>"))));
    let whole = "<!-- vmlab: allow-file(numa, siblings-split) -->";
    assert!(quiet(&SPLIT.replace("  <vcpu>", &format!("{whole}\n  <vcpu>"))));
}

/// Places of values, also behind characters of several bytes.
#[test]
fn places_are_those_of_editors() {
    let place = |text: &str, rule: &str| {
        let found = findings(text, &HUGE_ON_NODE_1.context());
        let finding = found.iter().find(|finding| finding.rule == rule);
        let place = &finding.unwrap_or_else(|| panic!("{rule}: {found:?}")).place;
        (place.line, place.column, place.length)
    };
    let yaml = "# Größe\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata:\n  name: \
                'ü'\nspec:\n  domain:\n    ioThreadsPolicy: türbo # no\n    devices: {}\n";
    assert_eq!(place(yaml, "kubevirt-iothreads-policy"), (8, 22, 5));
    let shell = "# ö\nqemu-system-x86_64 -accel kvm \\\n  -cpu 'host,kvm-hint-dedicated=on'\n";
    assert_eq!(place(shell, "hint-dedicated-unpinned"), (3, 33, 2));
    let xml = "<domain type='kvm'><name>ß</name><vcpu>64</vcpu></domain>";
    assert_eq!(place(xml, "more-vcpus-than-pcpus"), (1, 40, 2));
}

#[test]
fn several_documents_are_all_read() {
    let count = |text: &str| check_text("x", text, &Context::default()).unwrap().vms.len();
    let domain = "<domain type='kvm'><name>a</name><vcpu>1</vcpu></domain>\n";
    assert_eq!(count(&format!("{domain}{domain}")), 2);
    assert_eq!(count(&format!("<domains>{domain}{domain}</domains>")), 2);
    let vmi = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nspec:\n  domain: {}\n";
    assert_eq!(count(&format!("{vmi}---\n{vmi}")), 2);
    assert_eq!(count("qemu-system-x86_64 -m 1G &\nqemu-system-aarch64 -m 1G\n"), 2);
    let json = r#"qemu-system-x86_64 -blockdev '{"driver":"raw","node-name":"d","cache":{"direct":true}}'"#;
    assert_eq!(count(json), 1);
}

/// As libvirt starts QEMU: options in JSON, a disk as two nodes.
#[test]
fn options_in_json_are_read() {
    let command = |direct: bool, queues: u32| {
        format!(
            r#"qemu-system-x86_64 -accel kvm -cpu host -m 4096 -smp 4,sockets=1,cores=2,threads=2 \
  -object '{{"qom-type":"iothread","id":"io1"}}' \
  -blockdev '{{"driver":"host_device","filename":"/dev/nvme0n1","aio":"native","node-name":"s","cache":{{"direct":{direct}}}}}' \
  -blockdev '{{"node-name":"f","cache":{{"direct":{direct}}},"driver":"raw","file":"s"}}' \
  -device '{{"driver":"virtio-blk-pci","iothread":"io1","num-queues":{queues},"drive":"f","id":"d"}}'
"#
        )
    };
    let rules = |text: &str| -> Vec<(String, usize)> {
        let found = findings(text, &Context::default());
        found.iter().map(|finding| (finding.rule.to_string(), finding.place.line)).collect()
    };
    let one = |id: &str, line: usize| vec![(id.to_owned(), line)];
    assert_eq!(rules(&command(true, 4)), []);
    assert_eq!(rules(&command(false, 4)), one("io-native-cached", 3));
    assert_eq!(rules(&command(true, 8)), one("queues-exceed-vcpus", 5));
    let found = findings(&command(true, 8), &Context::default());
    assert_eq!(apply(&command(true, 8), &found), (command(true, 4), 1));
}

/// libvirt's status file holds the domain, and what it runs beside it.
#[test]
fn pins_are_read_from_a_status_file() {
    let status = "\
<domstatus state='running' reason='booted' pid='4711'>
  <monitor path='/var/lib/libvirt/qemu/domain-1-web/monitor.sock' type='unix'/>
  <domain type='kvm' id='1'>
    <name>web</name>
    <vcpu>2</vcpu>
    <iothreads>1</iothreads>
    <cputune>
      <vcpupin vcpu='1' cpuset='3'/>
      <emulatorpin cpuset='0-1'/>
      <iothreadpin iothread='1' cpuset='4'/>
    </cputune>
  </domain>
</domstatus>
";
    let said = |(who, set): (crate::ThreadOwner, topology::PcpuSet)| format!("{who}: {set}");
    let found: Vec<String> = crate::asked_pins(status).into_iter().map(said).collect();
    assert_eq!(found, ["vCPU 1: 3", "emulator: 0-1", "iothread iothread1: 4"]);
    assert_eq!(crate::asked_pins("<domstatus/>"), []);
    assert_eq!(crate::asked_pins("x"), []);
}

#[test]
fn what_is_stands_against_what_was_asked_for() {
    let text = "\
# vmlab: running 4711
qemu-system-x86_64 -accel kvm -cpu host -name web -smp 2 -overcommit cpu-pm=on
# is: vCPU 0: pCPU 1
# asked: vCPU 0: pCPUs 3
# is: vCPU 1: pCPU 1
";
    let found = findings(text, &TWO_SOCKETS.context());
    let live = |rule: &str| {
        let finding = found.iter().find(|finding| finding.rule == rule);
        let live = finding.and_then(|finding| finding.live.clone());
        live.map(|live| (live.asked, live.is)).unwrap_or_else(|| panic!("{rule}: {found:#?}"))
    };
    let (asked, is) = live("cpu-pm-shared");
    assert!(asked.ends_with("-overcommit cpu-pm=on"), "{asked}");
    assert_eq!(is, "vCPUs 0-1: pCPU 1");
    assert_eq!(live("vcpus-share-pcpu"), ("nothing".to_owned(), "vCPU 1: pCPU 1".to_owned()));
    let json: Value =
        serde_json::from_str(&output::json(&found, 1, &output::LintNotes::default())).unwrap();
    let first = &json["findings"][0];
    assert!(first["asked"].is_string() && first["is"].is_string(), "{json:#}");
}

/// QEMU tells a topology in one fact, so that its levels have one place.
#[test]
fn values_in_one_place_are_not_mended_twice() {
    let text = "\
# vmlab: running 1
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: topology: sockets=1,dies=1,clusters=1,cores=1,threads=2
";
    let found = findings(text, &NO_SMT.context());
    let exceeds = found.iter().find(|finding| finding.rule == "threads-exceed-host");
    assert_eq!(exceeds.map(|finding| &finding.fix), Some(&None), "{found:#?}");
}

#[test]
fn bad_texts_are_errors_with_places() {
    let check = |text: &str, expected: &str| {
        let error = check_text("f", text, &Context::default()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    check("", "f: holds no VM");
    check("hello", "f: holds no VM");
    check("<domain>\n  <vcpu>1</cpu>\n</domain>", "f:2:");
    check("apiVersion: kubevirt.io/v1\nkind: [", "f:2:");
}

/// The members that SARIF 2.1.0 requires, and the types it gives them.
#[test]
fn sarif_has_what_the_schema_requires() {
    let mut found = findings(SPLIT, &TWO_SOCKETS.context());
    found[0].file = "my files/wéb.xml".to_owned();
    let log: Value =
        serde_json::from_str(&output::sarif(&found, "1.2.3", &output::LintNotes::default()))
            .unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(
        (driver["name"].as_str(), driver["version"].as_str()),
        (Some("vmlab"), Some("1.2.3"))
    );
    let rules = driver["rules"].as_array().unwrap();
    assert_eq!(rules.len(), RULES.len());
    for rule in rules {
        assert!(rule["id"].is_string() && rule["shortDescription"]["text"].is_string());
        let level = rule["defaultConfiguration"]["level"].as_str().unwrap();
        assert!(["none", "note", "warning", "error"].contains(&level));
    }
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], rules[result["ruleIndex"].as_u64().unwrap() as usize]["id"]);
    assert!(result["message"]["text"].is_string());
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "my%20files/w%C3%A9b.xml");
    assert_eq!(place["region"]["startLine"], 6);
    for change in result["fixes"][0]["artifactChanges"].as_array().unwrap() {
        assert!(change["artifactLocation"]["uri"].is_string());
        for replacement in change["replacements"].as_array().unwrap() {
            assert!(replacement["deletedRegion"]["byteOffset"].is_u64());
            assert!(replacement["insertedContent"]["text"].is_string());
        }
    }
}

#[test]
fn annotations_are_lines_of_their_own() {
    let mut found = findings(SPLIT, &TWO_SOCKETS.context());
    found[0].file = "100%, a:b.xml".to_owned();
    found[0].message = "50% of\r\n:: two".to_owned();
    found[0].notes.clear();
    found[0].help = "Do, so.".into();
    let failed = ["c.xml:1:2: no\nXML".to_owned()];
    let beside = output::LintNotes { failed: &failed, ..output::LintNotes::default() };
    let place = &found[0].place;
    let (column, end) = (place.column, place.column + place.length);
    assert_eq!(
        output::github(&found, &beside),
        format!(
            "::warning file=100%25%2C a%3Ab.xml,line=6,col={column},endColumn={end},\
             title=siblings-split::50%25 of%0D%0A:: two. Do, so\n\
             ::error title=vmlab lint::c.xml:1:2: no%0AXML\n"
        )
    );
}

#[test]
fn json_has_counts_and_findings() {
    let found = findings(SPLIT, &TWO_SOCKETS.context());
    let report: Value =
        serde_json::from_str(&output::json(&found, 1, &output::LintNotes::default())).unwrap();
    assert_eq!((report["warnings"].as_u64(), report["errors"].as_u64()), (Some(1), Some(0)));
    assert_eq!(report["findings"][0]["rule"], "siblings-split");
    assert_eq!(report["findings"][0]["place"]["line"], 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is cut out of or put into a text, nothing panics.
    #[test]
    fn damaged_texts_do_not_panic(
        which in 0_usize..1000,
        cut in 0_usize..4000,
        len in 0_usize..40,
        put in "[ -~\u{e9}\n'\"<>{}:&*,=0-9-]{0,8}",
    ) {
        let documents: Vec<String> = RULES
            .iter()
            .flat_map(|rule| rule.fires.iter().map(RuleExample::document))
            .chain(good_files().into_iter().map(|(_, text)| text))
            .collect();
        let text = &documents[which % documents.len()];
        let letters: Vec<char> = text.chars().collect();
        let at = cut % (letters.len() + 1);
        let end = (at + len).min(letters.len());
        let damaged: String =
            letters[..at].iter().copied().chain(put.chars()).chain(letters[end..].iter().copied()).collect();
        for context in [Context::default(), HUGE_ON_NODE_1.context()] {
            if let Ok(checked) = check_text("x", &damaged, &context) {
                let found = checked.findings;
                let _ = output::text(&found, 80, true);
                let (mended, _) = apply(&damaged, &found);
                let _ = difference("x", &damaged, &mended);
            }
        }
    }
}

/// What people quote of a domain says nothing of what they left out.
#[test]
fn a_part_of_a_domain_is_not_taken_for_all_of_it() {
    let queues = "<devices><interface type='bridge'><source bridge='b'/>
        <model type='virtio'/><driver queues='8'/></interface></devices>";
    let pins = "<cputune><vcpupin vcpu='3' cpuset='4'/></cputune>";
    let check = |head: &str, expected: &[&str]| {
        let text = format!("<domain type='kvm'>{head}{pins}{queues}</domain>");
        let found = findings(&text, &Context::default());
        let of = ["queues-exceed-vcpus", "vcpupin-without-vcpu", "pins-partial"];
        let mut found: Vec<&str> =
            found.iter().map(|one| &*one.rule).filter(|rule| of.contains(rule)).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{head}");
    };
    check("", &[]);
    check("<name>a</name>", &[]);
    // In a whole domain nothing said is one vCPU.
    let whole = "<name>a</name><memory>1048576</memory><os><type>hvm</type></os>";
    check(whole, &["queues-exceed-vcpus", "vcpupin-without-vcpu"]);
    check(
        "<cpu><topology sockets='1' cores='2' threads='2'/></cpu>",
        &["pins-partial", "queues-exceed-vcpus"],
    );
}

/// The disks of a command line are known through filters and formats, however
/// they are nested.
#[test]
fn nodes_inside_nodes_are_seen() {
    let node = |cache: bool, aio: &str| {
        format!(
            r#"{{"driver":"throttle","node-name":"d","throttle-group":"t","file":{{"driver":"raw","cache":{{"direct":{cache}}},"file":{{"driver":"host_device","filename":"/dev/vg/d","aio":"{aio}","cache":{{"direct":{cache}}}}}}}}}"#
        )
    };
    let check = |node: &str, expected: bool| {
        let text =
            format!("kvm -cpu host -m 64 -blockdev '{node}' -device virtio-blk-pci,drive=d,id=d");
        let found = findings(&text, &Context::default());
        assert_eq!(found.iter().any(|one| one.rule == "io-native-cached"), expected, "{found:?}");
    };
    check(&node(false, "native"), true);
    check(&node(true, "native"), false);
    check(&node(false, "threads"), false);
}
