//! Studies as people write them, right and wrong.

mod published_numbers;

use record::ProfileSide;

use super::*;

const GOOD: &str = r#"
vmlab = 1
title = "One or two"
baseline = "up"

[budget]
blocks = 3
aa_arm = true

[vm]
memory_mib = 512
pins = ["0"]

[[variant]]
name = "up"

[[variant]]
name = "smp"
vm.vcpus = 2

[[load]]
name = "idle"

[[load]]
name = "busy"
stress = { percent = 50, placement = "off-vm" }
vms = { count = 2, workload = "hackbench" }

[[workload]]
run = "hackbench"
label = "hb"
params = { groups = 2 }
margin_percent = 5

[[workload]]
run = "kernbench"
later = "needs a compiler"

[[published]]
workload = "hb"
variant = "up"
metric = "time"
value = 120.6
unit = "s"
source = "a report"
"#;

#[test]
fn a_good_study_is_read_whole() {
    let study = Study::parse("studies/one-or-two.toml", GOOD).unwrap();
    assert_eq!(study.name, "one-or-two");
    let names: Vec<_> = study.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["up", "smp", "up+aa"]);
    assert_eq!(study.variants[2].aa_of.as_deref(), Some("up"));
    assert_eq!(study.variants[1].vm.memory_mib, Some(512), "the base VM's memory");
    assert_eq!(study.loads[0], HostLoad::idle());
    let busy = &study.loads[1];
    assert_eq!(busy.stress, Some(Stress { percent: 50.0, placement: LoadPlacement::OffVm }));
    let others = busy.vms.as_ref().unwrap();
    assert_eq!(others.count, 2);
    assert!(others.vm.pins.as_ref().is_none_or(|pins| pins.is_empty()), "pins are not inherited");
    assert_eq!(study.workloads[0].label, "hb");
    assert_eq!(study.workloads[0].margin_percent["time"], 5.0);
    assert_eq!(study.later, [("kernbench".to_owned(), "needs a compiler".to_owned())]);
    assert_eq!(study.published[0].load, "idle", "the first load where none is named");
    assert_eq!(study.line_of("smp", "vcpus"), 19);
    assert_eq!(study.line_of("smp", "memory_mib"), 11);
    assert_eq!(study.line_of("up+aa", "memory_mib"), 11);
    assert_eq!(study.line_of_load("busy"), 24);
}

#[test]
fn a_built_in_variant_is_named_in_one_word() {
    let text = "vmlab = 1\ntitle = 't'\n[vm]\nvcpus = 4\n[[variant]]\nuse = 'def'\n[[variant]]\nuse = 'vtune'\n[[workload]]\nrun = 'hackbench'\n";
    let study = Study::parse("x.toml", text).unwrap();
    assert_eq!(study.variants[1].name, "vtune");
    let error = Study::parse("x.toml", &text.replace("vtune", "vtun")).unwrap_err().to_string();
    assert!(error.contains("x.toml:8: ") && error.contains("did you mean \"vtune\""), "{error}");
    let error = Study::parse("x.toml", &text.replace("use = 'vtune'", "")).unwrap_err().to_string();
    assert!(error.contains("x.toml:7: ") && error.contains("needs a name"), "{error}");
}

#[test]
fn what_is_not_written_has_a_default() {
    let text = "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[workload]]\nrun = 'hackbench'\n";
    let study = Study::parse("x.toml", text).unwrap();
    assert_eq!(study.budget.blocks, Some(DEFAULT_BLOCKS));
    assert_eq!(study.budget.minutes, None);
    assert_eq!(study.baseline, "a");
    assert_eq!(study.loads, [HostLoad::idle()]);
    assert_eq!(study.workloads[0].invocations, None);
    assert_eq!(study.seed, None);
}

/// Replaces `from` (which must be there) in the good study and gives the error.
fn error_with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the good study");
    let text = GOOD.replacen(from, to, 1);
    Study::parse("s.toml", &text).expect_err(to).to_string()
}

#[test]
fn errors_name_file_line_value_and_what_was_meant() {
    let check = |from: &str, to: &str, line: usize, words: &[&str]| {
        let error = error_with(from, to);
        assert!(error.starts_with(&format!("s.toml:{line}: ")), "{to}: {error}");
        for word in words {
            assert!(error.contains(word), "{to}: {word:?} is not in {error}");
        }
    };
    check("blocks = 3", "block = 3", 7, &["Unknown key `block`", "did you mean `blocks`"]);
    check("vm.vcpus = 2", "vm.vcpu = 2", 19, &["did you mean `vcpus`"]);
    check("vm.vcpus = 2", "vm.vcpus = 0", 19, &["smp", "vcpus is 0"]);
    check("vm.vcpus = 2", "vm.vcpus = 'two'", 19, &["two"]);
    check("memory_mib = 512", "memory_mib = 0", 11, &["memory_mib is 0"]);
    check("vmlab = 1", "vmlab = 9", 2, &["9", "reads version 1"]);
    check("baseline = \"up\"", "baseline = \"ups\"", 4, &["\"ups\"", "did you mean \"up\""]);
    check("name = \"smp\"", "name = \"up\"", 18, &["used twice"]);
    check("name = \"smp\"", "name = \"s mp\"", 18, &["\"s mp\"", "letters"]);
    check("blocks = 3", "blocks = 0", 7, &["blocks = 0"]);
    check("blocks = 3", "minutes = -1.0", 7, &["minutes = -1"]);
    check("blocks = 3", "until = \"never\"", 7, &["never", "decided"]);
    let check_table = |line: &str, words: &[&str]| {
        check("[budget]", &format!("[stability]\n{line}\n[budget]"), 7, words);
    };
    check_table("steal_percent = -1", &["steal_percent = -1"]);
    check_table("steal = 3", &["Unknown key `steal`"]);
    let check_ground = |line: &str, words: &[&str]| {
        check("[budget]", &format!("[ground]\n{line}\n[budget]"), 7, words);
    };
    check_ground("page_cache_mib = -1", &["-1"]);
    check_ground("drop_caches = 3", &["3", "boolean"]);
    check_ground("cache_mib = 3", &["Unknown key `cache_mib`"]);
    check("percent = 50", "percent = 0", 26, &["percent = 0"]);
    check("\"off-vm\"", "\"off-vms\"", 26, &["off-vms"]);
    check("run = \"hackbench\"", "run = \"hackbensh\"", 30, &["hackbensh", "hackbench"]);
    check("groups = 2", "group = 2", 32, &["\"group\"", "groups"]);
    check("groups = 2", "groups = 0", 32, &["groups", "0"]);
    check("groups = 2", "groups = [1]", 32, &["groups", "array"]);
    check("margin_percent = 5", "margin_percent = 0", 33, &["margin_percent = 0"]);
    check("margin_percent = 5", "margins_percent = { tim = 2 }", 33, &["\"tim\"", "\"time\""]);
    check("workload = \"hb\"", "workload = \"hackbench\"", 40, &["no such workload label"]);
    check("metric = \"time\"", "metric = \"tiem\"", 42, &["did you mean \"time\""]);
    check("unit = \"s\"", "unit = \"ms\"", 44, &["\"ms\"", "\"s\""]);
    check("workload = \"hb\"", "workload = \"kernbench\"", 42, &["better"]);
    check("pins = [\"0\"]", "pins = [\"0-\"]", 12, &["0-"]);
    check("title = \"One or two\"", "", 1, &["title"]);
    check("[[variant]]\nname = \"up\"", "[[variant]\nname = \"up\"", 14, &[]);
}

#[test]
fn all_problems_are_said_at_once() {
    let text = GOOD.replacen("blocks = 3", "blocks = 0", 1).replacen("groups = 2", "groups = 0", 1);
    let error = Study::parse("s.toml", &text).unwrap_err();
    let lines: Vec<_> = error.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [7, 32]);
}

#[test]
fn the_shipped_studies_are_sound() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            Study::parse(&path.to_string_lossy(), &text).unwrap();
            let sizes: toml::Table = toml::from_str(&text).unwrap();
            for scale in sizes.get("scale").and_then(|scale| scale.as_table()).into_iter().flatten()
            {
                Study::parse_scaled(&path.to_string_lossy(), &text, scale.0).unwrap();
            }
            found += 1;
        }
    }
    assert!(found >= 2, "studies/ holds {found} studies");
}

proptest::proptest! {
    #[test]
    fn damaged_studies_never_panic(cut in 0usize..700, byte in 0usize..700, with in 0u8..128) {
        let mut bytes = GOOD.as_bytes().to_vec();
        let place = byte % bytes.len();
        bytes[place] = with;
        bytes.truncate(cut.max(1));
        if let Ok(text) = String::from_utf8(bytes) {
            // Either it is read or it is refused with at least one problem.
            if let Err(error) = Study::parse("s.toml", &text) {
                proptest::prop_assert!(!error.problems.is_empty());
            }
        }
    }
}

#[test]
fn a_size_changes_what_it_names() {
    let text = format!(
        "{GOOD}\n[scale.small]\nbudget = {{ blocks = 1, aa_arm = false }}\nvm.memory_mib = 256\ninvocations = 2\n\
         stability.repeat = false\nground.compact = true\nparams.hb = {{ loops = 5 }}\n\
         [ground]\nzram_mib = 0\n"
    );
    let full = Study::parse("s.toml", &text).unwrap();
    assert_eq!((full.budget.blocks, full.workloads[0].invocations), (Some(3), None));
    let small = Study::parse_scaled("s.toml", &text, "small").unwrap();
    assert_eq!((small.budget.blocks, small.workloads[0].invocations), (Some(1), Some(2)));
    assert_eq!((full.budget.aa_arm, small.budget.aa_arm), (true, false));
    assert_eq!(small.stability, StabilityLimits { repeat: false, ..full.stability });
    assert_eq!(full.ground, GroundRules { zram_mib: Some(0), ..GroundRules::default() });
    assert_eq!(small.ground, GroundRules { compact: true, ..full.ground });
    let line_of = |words: &str| text.lines().position(|line| line.starts_with(words)).unwrap() + 1;
    assert_eq!(small.line_of_ground("compact"), line_of("ground.compact"));
    assert_eq!(small.line_of_ground("zram_mib"), line_of("zram_mib"));
    assert_eq!(small.title, "One or two (small size)");
    assert_eq!(small.variants[1].vm.memory_mib, Some(256));
    assert_eq!(small.workloads[0].params["loops"], ParamValue::Int(5));
    assert_eq!(small.workloads[0].params["groups"], ParamValue::Int(2), "the study's own");
    let error = |text: &str, scale: &str| {
        Study::parse_scaled("s.toml", text, scale).unwrap_err().to_string()
    };
    assert!(error(&text, "tiny").contains("there is small"));
    assert!(error(GOOD, "small").contains("one size only"));
    let line = text.lines().position(|line| line == "[scale.small]").unwrap() + 1;
    for (from, to, why) in [
        ("params.hb", "params.hackbench", "hackbench"),
        ("stability.repeat = false", "stability.repeat = 1", "expected a boolean"),
        ("stability.repeat = false", "stability.quiet = 1", "unknown field `quiet`"),
        ("ground.compact = true", "ground.compact = 1", "ground: "),
    ] {
        let said = error(&text.replace(from, to), "small");
        assert!(said.starts_with(&format!("s.toml:{line}: ")) && said.contains(why), "{said}");
    }
}

#[test]
fn a_variant_changes_a_workloads_parameters() {
    let smp = "name = \"smp\"\nvm.vcpus = 2\n";
    let with = |params: &str| GOOD.replace(smp, &format!("{smp}{params}\n"));
    let study = Study::parse("s.toml", &with("params.hb = { groups = 4, loops = 7 }")).unwrap();
    let resolved = |variant: usize| {
        let params = study.workloads[0].resolve_with(&study.variants[variant].params).unwrap();
        let of = |name: &str| params.iter().find(|(known, _)| *known == name).unwrap().1.cloned();
        [of("groups"), of("loops")]
    };
    assert_eq!(resolved(1), [4, 7].map(|value| Some(ParamValue::Int(value))));
    // The study's own, and the catalogue's.
    assert_eq!(resolved(0)[0], Some(ParamValue::Int(2)));
    assert_eq!(resolved(0), resolved(2));
    // Of one that is not run nothing is asked.
    assert!(Study::parse("s.toml", &with("params.kernbench = { jobs = 3 }")).is_ok());
    let line = GOOD.lines().position(|line| line == "vm.vcpus = 2").unwrap() + 2;
    for (params, why) in [
        ("params.hackbench = { groups = 4 }", "hackbench"),
        ("params.hb = { grups = 4 }", "groups"),
        ("params.hb = { groups = -1 }", "groups"),
        ("params.hb = { groups = [1] }", "array"),
    ] {
        let said = Study::parse("s.toml", &with(params)).unwrap_err().to_string();
        assert!(said.starts_with(&format!("s.toml:{line}: ")) && said.contains(why), "{said}");
    }
    // What is compared is one thing.
    let text = with("params.hb = { test = 'udp_stream' }")
        .replace("run = \"hackbench\"\nlabel", "run = \"probe-net\"\nlabel")
        .replace("params = { groups = 2 }", "params = { test = 'tcp_rr' }");
    let said = Study::parse("s.toml", &text).unwrap_err().to_string();
    assert!(said.contains("change which metrics probe-net has"), "{said}");
    // A size that leaves a workload out leaves its parameters out.
    let text = with("params.hb = { groups = 4 }")
        + "\n[[workload]]\nrun = \"cyclictest\"\n[scale.small]\nwithout = [\"hb\"]\n";
    let small = Study::parse_scaled("s.toml", &text, "small").unwrap();
    assert!(small.variants.iter().all(|variant| variant.params.is_empty()));
}

#[test]
fn a_ratio_or_a_deviation_can_be_all_that_was_published() {
    let study = |published: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[workload]]\nrun = 'hackbench'\n\
             [[published]]\nworkload = 'hackbench'\nvariant = 'a'\nmetric = 'time'\nunit = 's'\n\
             source = 'x'\n{published}\n"
        );
        Study::parse("s.toml", &text)
    };
    let row = &study("ratio = 1.04\nsd = 34.5").unwrap().published[0];
    assert_eq!((row.value, row.ratio, row.sd), (None, Some(1.04), Some(34.5)));
    for (published, said) in [
        ("", "give a value, a range, single runs, a ratio to the baseline, or an sd"),
        ("value = 1\nratio = 1.04", "ratio: it follows from value"),
        ("runs = [1, 2]\nvalue = 1", "runs: it follows from value"),
        ("runs = [1, 0]", "runs = 0: must be greater than 0"),
        ("range = [2, 1]", "range = [2, 1]: the smaller end comes first"),
        ("ratio_range = [0, 1]", "ratio_range = 0: must be greater than 0"),
        ("value = 1\nthan = 'a'", "than: a variant's value has none; it takes variant, metric"),
        ("ratio = 0", "ratio = 0: must be greater than 0"),
        ("sd = -1", "sd = -1: must be greater than 0"),
    ] {
        let error = study(published).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:") && error.contains(said), "{error}");
    }
}

#[test]
fn a_counter_may_come_down_to_nothing() {
    let study = |published: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\n\
             [[workload]]\nrun = 'hackbench'\n[[published]]\nworkload = 'hackbench'\n\
             variant = 'b'\ncounter = 'kvm.halt_exits'\nsource = 'x'\n{published}\n"
        );
        Study::parse("s.toml", &text)
    };
    for (published, ratio) in [("ratio = 0", [0.0; 2]), ("ratio_range = [0, 0.1]", [0.0, 0.1])] {
        let found = study(published).unwrap().published_claims.remove(0).claimed;
        let counter = "kvm.halt_exits".to_owned();
        assert_eq!(found, StudyClaimKind::CounterRatio { counter, ratio });
    }
    let error = study("ratio = -1").unwrap_err().to_string();
    assert!(error.contains("ratio = -1: must be greater than 0"), "{error}");
}

#[test]
fn many_metrics_of_a_variant_are_published_in_one_table() {
    let study = |values: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[workload]]\nrun = 'ab'\n\
             [[workload]]\nrun = 'kernbench'\nlater = 'no compiler'\n\
             [[published]]\nsource = 'x'\nvariant = 'a'\nworkload = 'ab'\n{values}\n"
        );
        Study::parse("s.toml", &text)
    };
    let found = study("values = { request-p50 = 1, connect-max = [0.5, 0.7] }").unwrap();
    let rows: Vec<_> = found
        .published
        .iter()
        .map(|row| (row.metric.as_str(), row.value, row.runs.as_slice(), row.unit.as_str()))
        .collect();
    let runs: &[f64] = &[0.5, 0.7];
    assert_eq!(rows, [("connect-max", None, runs, "s"), ("request-p50", Some(1.0), &[][..], "s")]);
    for (values, said) in [
        ("values = { connect-maxi = 1 }", "did you mean \"connect-max\"?"),
        ("values = { connect-max = 1 }\nunit = 's'", "unit: values by metric has none"),
        ("values = { connect-max = [] }", "give a number, or single runs"),
        ("values = { connect-max = [0] }", "connect-max = 0: must be greater than 0"),
        ("values = { connect-max = inf }", "connect-max = inf: must be a number"),
        ("values = { connect-max = 'x' }", "a number, or a list of single runs' numbers"),
    ] {
        let error = study(values).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:14: ") || error.starts_with("s.toml:15: "), "{error}");
        assert!(error.contains(said), "{error}");
    }
    let error = study(
        "values = { connect-max = 1 }\n[[published]]\nsource = 'x'\nvariant = 'a'\n\
         workload = 'kernbench'\nvalues = { elapsed = 1 }",
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("units are known of workloads that are run, kernbench is not"),
        "{error}"
    );
}

#[test]
fn what_was_published_of_two_variants_is_read_and_refused_by_line() {
    let text = |published: &str| {
        format!(
            "vmlab = 1\ntitle = 't'\nbaseline = 'b'\n[[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\n\
             [[variant]]\nname = 'c'\n[[load]]\nname = 'idle'\n[[load]]\nname = 'busy'\n\
             stress.percent = 50\n[[workload]]\nrun = 'hackbench'\n\
             [[workload]]\nrun = 'kernbench'\nlater = 'no compiler'\npublished_of = ['gang']\n\
             [[published]]\nsource = 'x'\n{published}\n[scale.small]\nwithout = ['c']\n"
        )
    };
    let study = |published: &str| Study::parse("s.toml", &text(published));
    let order = "workload = 'hackbench'\nmetric = 'time'\norder = 'a >= b > c'";
    let than = |claim: &StudyClaim| claim.than.clone().unwrap_or_else(|| "alone".to_owned());
    let told = |study: &Study| -> Vec<String> {
        let claims = study.published_claims.iter();
        claims
            .map(|claim| match &claim.claimed {
                StudyClaimKind::Order { relation, .. } => {
                    format!("{}: {} {relation:?} {}", claim.load, claim.variant, than(claim))
                }
                StudyClaimKind::CounterRatio { counter, ratio } => {
                    format!("{}: {} {counter} {} {ratio:?}", claim.load, claim.variant, than(claim))
                }
                StudyClaimKind::FunctionShare { of, ratio, shares_percent } => format!(
                    "{}: {} {} {} {ratio:?} {shares_percent:?}",
                    claim.load,
                    claim.variant,
                    of.function,
                    than(claim)
                ),
            })
            .collect()
    };
    let all = ["idle: a AtLeastAsGood b", "idle: b Better c", "busy: a AtLeastAsGood b"];
    let found = study(order).unwrap();
    assert_eq!(told(&found)[..3], all, "under every load where none is named");
    assert!(found.published.is_empty());
    let small = Study::parse_scaled("s.toml", &text(order), "small").unwrap();
    assert!(told(&small).is_empty(), "c is left out, and what was said of it");
    assert_eq!((small.scale.as_deref(), found.scale), (Some("small"), None));
    let busy = study(&format!("{order}\nload = 'busy'")).unwrap();
    assert_eq!(told(&busy), ["busy: a AtLeastAsGood b", "busy: b Better c"]);
    let counter = "workload = 'hackbench'\ncounter = 'kvm.exits'\nvariant = 'a'";
    let found = study(&format!("{counter}\nratio = 0.8")).unwrap();
    assert_eq!(told(&found), ["idle: a kvm.exits b [0.8, 0.8]"]);
    let found = study(&format!("{counter}\nthan = 'c'\nratio_range = [0.7, 0.8]")).unwrap();
    assert_eq!(told(&found), ["idle: a kvm.exits c [0.7, 0.8]"]);
    let function = "workload = 'hackbench'\nfunction = 'schedule'\nvariant = 'a'";
    let shares = format!("{function}\nshares_percent = [6, 3]");
    let profiled = text(&shares).replacen("'hackbench'", "'hackbench'\nprofile = true", 1);
    let found = Study::parse("s.toml", &profiled).unwrap();
    assert_eq!(told(&found), ["idle: a schedule b [2.0, 2.0] Some([6.0, 3.0])"]);
    let profiled = |of: &str| {
        let one = text(&format!("{function}\n{of}"));
        Study::parse("s.toml", &one.replacen("'hackbench'", "'hackbench'\nprofile = true", 1))
    };
    let found = profiled("share_percent = 82").unwrap();
    assert_eq!(told(&found), ["idle: a schedule alone [0.82, 0.82] None"]);
    let of = "within = 'do_fault'\nside = 'host'\nshare_percent_range = [50, 100]";
    let found = profiled(of).unwrap();
    assert_eq!(told(&found), ["idle: a schedule alone [0.5, 1.0] None"]);
    let StudyClaimKind::FunctionShare { of, .. } = &found.published_claims[0].claimed else {
        unreachable!("told so");
    };
    assert_eq!((of.within.as_deref(), of.side), (Some("do_fault"), Some(ProfileSide::Host)));
    for (of, said) in [
        ("share_percent = 101", "share_percent = 101: no share is more than 100"),
        ("share_percent_range = [1, 101]", "share_percent_range = [1, 101]: no share is more"),
        ("share_percent_range = [2, 1]", "the smaller end comes first"),
        ("share_percent_range = [0, 1]", "share_percent_range = 0: must be greater than 0"),
        ("share_percent = 1\nratio = 2", "share_percent: it follows from ratio"),
        ("share_percent = 1\nthan = 'c'", "share_percent is of one variant alone"),
        ("within = ''\nshare_percent = 1", "within = \"\": give its name"),
        ("side = 'both'\nshare_percent = 1", "unknown variant `both`"),
    ] {
        let error = profiled(of).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let later = "workload = 'kernbench'\nmetric = 'elapsed'\nunit = 's'\norder = 'a > b'";
    let found = study(&format!("{later}\nbetter = 'lower'")).unwrap();
    assert_eq!(told(&found), ["idle: a Better b", "busy: a Better b"]);
    // Nothing is compared there: it may be of what no variant can be made to.
    let elsewhere = "workload = 'kernbench'\nmetric = 'elapsed'\nunit = 's'\nbetter = 'lower'";
    let found = study(&format!("{elsewhere}\norder = 'gang > b'\nload = 'idle'")).unwrap();
    assert_eq!(told(&found), ["idle: gang Better b"]);
    let found = study(&format!("{elsewhere}\nvariant = 'gang'\nvalue = 3")).unwrap();
    assert_eq!(
        (found.published[0].variant.as_str(), found.published[0].value),
        ("gang", Some(3.0))
    );

    let hackbench = |rest: &str| format!("workload = 'hackbench'\nmetric = 'time'\n{rest}");
    for (published, line, said) in [
        (hackbench("order = 'a >'"), 25, "write variants, the best first"),
        (hackbench("order = 'a < b'"), 25, "\"<\" is no sign"),
        (hackbench("order = 'a > b > a'"), 25, "\"a\" stands in it twice"),
        (hackbench("order = 'a > bb'"), 25, "order = \"bb\": no such variant"),
        (hackbench("order = 'a > b'\nvalue = 3"), 26, "value: an order has none"),
        (hackbench("variant = 'a'\nvalue = 3"), 21, "missing field `unit`"),
        (later.to_owned(), 24, "say better = \"lower\" or \"higher\""),
        (format!("{counter}\nratio = 0.8\nsd = 1"), 27, "sd: a counter's ratio has none"),
        (counter.to_owned(), 22, "published nothing"),
        (format!("{counter}\nratio = 1\nthan = 'a'"), 25, "a ratio to itself says nothing"),
        (
            "workload = 'hackbench'\ncounter = 'kvm.exit'\nvariant = 'a'\nratio = 1".to_owned(),
            24,
            "did you mean \"kvm.exits\"?",
        ),
        (function.to_owned(), 22, "published nothing: give shares_percent, a share_percent or"),
        (shares.replace("schedule", " "), 24, "function = \" \": give its name"),
        (shares, 24, "there is no profile of hackbench: write profile = true there"),
        (
            format!("{}\nratio = 2", function.replace("hackbench", "kernbench")),
            24,
            "of kernbench, which is not run",
        ),
        (format!("{function}\nshares_percent = [101, 0]"), 24, "no share is more than 100"),
        (format!("{function}\nshares_percent = [1, 0]"), 24, "must be greater than 0"),
        (format!("{function}\nshares_percent = [1, 2]\nratio = 2"), 24, "give one of them"),
        (
            "workload = 'kernbench'\ncounter = 'kvm.exits'\nvariant = 'a'\nratio = 1".to_owned(),
            24,
            "nothing is counted of kernbench",
        ),
    ] {
        let error = study(&published).unwrap_err().to_string();
        assert!(error.starts_with(&format!("s.toml:{line}: ")) && error.contains(said), "{error}");
    }
}

#[test]
fn a_size_changes_a_background() {
    let text = "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[workload]]\nrun = 'cyclictest'\n\
        background = { run = 'hackbench', params = { groups = 4, loops = 9 } }\n\
        [[workload]]\nrun = 'probe-clock'\n\
        [scale.small]\nbackground.cyclictest = { groups = 1 }\n";
    let study = Study::parse_scaled("s.toml", text, "small").unwrap();
    let params = &study.workloads[0].background.as_ref().unwrap().params;
    assert_eq!((&params["groups"], &params["loops"]), (&ParamValue::Int(1), &ParamValue::Int(9)));
    for (label, why) in [("probe-clock", "which has none"), ("nothing", "no workload's label")] {
        let text = text.replace("background.cyclictest", &format!("background.{label}"));
        let said = Study::parse_scaled("s.toml", &text, "small").unwrap_err().to_string();
        assert!(said.contains(label) && said.contains(why), "{said}");
    }
}

#[test]
fn a_size_shrinks_the_other_vms_and_leaves_parts_out() {
    let text = "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\n\
        [[load]]\nname = 'idle'\n[[load]]\nname = 'others'\n\
        vms = { count = 3, workload = 'hackbench', params = { groups = 4, loops = 9 } }\n\
        [[workload]]\nrun = 'hackbench'\n[[workload]]\nrun = 'probe-clock'\n\
        [scale.small]\nwithout = ['idle', 'b', 'probe-clock']\n\
        vms.others = { count = 1, params = { loops = 2 }, vm = { memory_mib = 256 } }\n";
    let study = Study::parse_scaled("s.toml", text, "small").unwrap();
    let names: Vec<&str> = study.variants.iter().map(|variant| &*variant.name).collect();
    assert_eq!((names, study.workloads.len(), study.loads.len()), (vec!["a"], 1, 1));
    let vms = study.loads[0].vms.as_ref().unwrap();
    assert_eq!((vms.count, vms.vm.memory_mib), (1, Some(256)));
    assert_eq!(
        (&vms.params["groups"], &vms.params["loops"]),
        (&ParamValue::Int(4), &ParamValue::Int(2))
    );
    for (from, to) in [("['idle'", "['iddle'"), ("vms.others", "vms.idle"), ("vms.others", "vms.x")]
    {
        let said = Study::parse_scaled("s.toml", &text.replace(from, to), "small").unwrap_err();
        assert!(said.to_string().contains("[scale.small]"), "{said}");
    }
}

#[test]
fn single_vms_of_a_load_are_named_by_numbers_that_there_are() {
    let study = |vms: &str, scale: Option<&str>| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[load]]\nname = 'others'\n\
             [load.vms]\nworkload = 'hackbench'\n{vms}\n[[workload]]\nrun = 'hackbench'\n\
             [scale.small]\nvms.others = {{ count = 1, each = {{}} }}\n"
        );
        let parsed = match scale {
            Some(scale) => Study::parse_scaled("s.toml", &text, scale),
            None => Study::parse("s.toml", &text),
        };
        parsed.map_err(|problems| problems.to_string())
    };
    let own = "count = 3\nfollow_variant = true\neach.2 = { memory_mib = 512 }";
    let vms = study(own, None).unwrap().loads[0].vms.clone().unwrap();
    assert_eq!(vms.each[&2].memory_mib, Some(512));
    assert_eq!(vms.follows, Some(VmPatch::default()));
    assert!(study(own, None).unwrap().loads[0].describe().contains("with the variant's changes"));
    let vms = study(own, Some("small")).unwrap().loads[0].vms.clone().unwrap();
    assert_eq!((vms.count, vms.each.len()), (1, 0));
    for (wrong, word) in [
        ("count = 3\neach.3 = {}", "s.toml:10: each.3: there is no VM 3 among 3"),
        ("count = 3\neach.0 = { vcpus = 0 }", "s.toml:10: VM 0: "),
        ("count = 3\neach.0.host = { thp = 'never' }", "s.toml:10: "),
    ] {
        let said = study(wrong, None).unwrap_err();
        assert!(said.contains(word), "{wrong}: {said}");
    }
}

#[test]
fn a_variant_on_the_host_has_no_vm_to_configure() {
    let study = |variant: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[vm]\nvcpus = 2\n[[variant]]\nname = 'guest'\n\
             [[variant]]\nname = 'host'\non = 'host'\n{variant}\n[[workload]]\nrun = 'hackbench'\n"
        );
        Study::parse("x.toml", &text)
    };
    let good =
        study("vm.pins = ['2-3', '2-3']\nvm.host.thp = 'never'\ndisk.cache = 'none'").unwrap();
    let seats: Vec<RunsOn> = good.variants.iter().map(|variant| variant.on).collect();
    assert_eq!(seats, [RunsOn::Vm, RunsOn::Host]);
    let check = |variant: &str, line: usize, words: &[&str]| {
        let error = study(variant).unwrap_err();
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(error.problems[0].line, line, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{variant}: {word:?} is not in {error}");
        }
    };
    check("use = 'pin'", 10, &["on = \"host\"", "\"pin\"", "vm.pins"]);
    check("vm.memory_mib = 512", 10, &["vm.memory_mib", "vm.vcpus and vm.pins"]);
    check("network.vhost = false", 10, &["no interface of its own", "bridge"]);
    check("disk = { cache = 'none', queues = 2 }", 10, &["disk.cache alone"]);
    let text = "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\non = 'hots'\n[[workload]]\nrun = 'hackbench'\n";
    let error = Study::parse("x.toml", text).unwrap_err();
    assert!(error.to_string().contains("did you mean `host`"), "{error}");
}

#[test]
fn names_of_what_is_not_run_are_checked() {
    let study = |workload: &str, published: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\nbaseline = 'a'\n[[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\n\
             [[workload]]\nrun = 'hackbench'\n[[workload]]\nlater = 'why'\n{workload}\n\
             [[published]]\nsource = 'x'\nunit = 's'\nbetter = 'lower'\n{published}\n"
        );
        Study::parse("s.toml", &text)
    };
    let value = "workload = 'sap-sd'\nvariant = 'zzz'\nmetric = 'users'\nvalue = 3";
    let meant = study("run = 'sap-sd'\npublished_of = ['zzz']", value).unwrap();
    assert_eq!(meant.published[0].variant, "zzz");
    let kernbench =
        |metric| format!("workload = 'kernbench'\nvariant = 'a'\nmetric = '{metric}'\nvalue = 3");
    study("run = 'kernbench'", &kernbench("elapsed")).unwrap();
    // Under its own name it is something else than the catalogue's.
    let told = "workload = 'told'\nvariant = 'a'\nmetric = 'gain'\nvalue = 3";
    study("run = 'kernbench'\nlabel = 'told'", told).unwrap();
    let order = "workload = 'sap-sd'\norder = 'a > zzz'\nmetric = 'users'";
    for (workload, published, line, said) in [
        ("run = 'sap-sd'", value, 18, "variant = \"zzz\": no such variant; there are a, b; what"),
        ("run = 'sap-sd'", order, 18, "order = \"zzz\": no such variant"),
        ("run = 'kernbench'", &kernbench("elapsd"), 19, "did you mean \"elapsed\"?"),
        ("run = 'kernbensh'", value, 12, "did you mean \"kernbench\"?"),
    ] {
        let error = study(workload, published).unwrap_err().to_string();
        assert!(error.starts_with(&format!("s.toml:{line}: ")) && error.contains(said), "{error}");
    }
    let text = "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[workload]]\nrun = 'hackbench'\n\
                published_of = ['zzz']\n";
    let error = Study::parse("s.toml", text).unwrap_err().to_string();
    assert!(error.contains("s.toml:7: published_of: only a workload with `later`"), "{error}");
}

#[test]
fn a_vm_is_left_out_once() {
    let study = |left_out: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n[[workload]]\nrun = 'hackbench'\n\
             [measured]\nvms = 3\nleft_out = {left_out}\n"
        );
        Study::parse("s.toml", &text)
    };
    study("[2, 1]").unwrap();
    let error = study("[1, 1, 2]").unwrap_err().to_string();
    assert!(error.starts_with("s.toml:9: VM 1 stands there twice"), "{error}");
}

#[test]
fn a_size_changes_variants_by_name() {
    let study = |scale: &str| {
        let text = format!(
            "vmlab = 1\ntitle = 't'\n[vm]\nvcpus = 4\n[[variant]]\nname = 'a'\n\
             vm.topology = {{ sockets = 4, cores = 1, threads = 1 }}\nvm.hints.cpu_pm = true\n\
             [[workload]]\nrun = 'hackbench'\n[scale.small]\nvm.vcpus = 2\n{scale}\n"
        );
        Study::parse_scaled("s.toml", &text, "small")
    };
    let small = study("variants.a.topology = { sockets = 2, cores = 1, threads = 1 }").unwrap();
    let vm = small.base.overlay(&small.variants[0].vm);
    assert_eq!(vm.topology().unwrap().vcpus(), 2);
    assert_eq!(vm.hints.cpu_pm, Some(true), "the rest stays");
    let error = study("variants.aa.vcpus = 2").unwrap_err().to_string();
    assert!(error.contains("[scale.small] names \"aa\", which is no variant"), "{error}");
}
