//! Formats are recognised by their content, and every reader gives the same
//! numbers the same labels.

use record::{BetterDirection, Environment, ImportedValue, Labels, Metric, MetricKind, SampleRow};
use record::{RecordSource, Unit};

use super::*;
use crate::data::Dataset;

fn read(text: &str) -> Dataset {
    let mut data = Data::default();
    data.read("in", &mut text.as_bytes(), &ColumnNames::new()).unwrap();
    data.finish()
}

/// Every series as a line: name, labels, metric, values.
fn shown(set: &Dataset) -> String {
    let data = set.data();
    let mut text = String::new();
    for (index, series) in data.series.iter().enumerate() {
        let setting = data.settings[series.setting as usize];
        let metric = &data.metrics[series.metric as usize];
        let labels: Vec<String> = data
            .context_labels(setting.context)
            .iter()
            .map(|(key, value)| format!("{}={}", data.keys.text(*key), data.words.text(*value)))
            .collect();
        let better = match metric.better {
            Some(BetterDirection::Lower) => "lower",
            Some(BetterDirection::Higher) => "higher",
            None => "unknown",
        };
        text.push_str(&format!(
            "{}[{}] {} {} {better} {:?}: {:?}\n",
            data.words.text(setting.name),
            labels.join(" "),
            metric.name,
            metric.unit,
            metric.kind,
            set.values(index)
        ));
    }
    for problem in data.problems() {
        text.push_str(&format!("! {}: {}\n", problem.line, problem.text));
    }
    for (why, count) in data.left_out() {
        text.push_str(&format!("- {count}: {why}\n"));
    }
    text
}

#[test]
fn benchfmt_with_all_that_it_knows() {
    let text = "goos: linux\npkg: a.b/c\nUnit frobs better=higher assume=exact\nUnit ns/op better=lower\n\
        Unit frobs better=lower\nUnit\nUnit x nonsense\n\
        BenchmarkA/k=v-8   100   12.5 ns/op  3 frobs  2 MB/s\r\n\
        BenchmarkA/k=v-8   100   0 ns/op\n\
        BenchmarkB\n\
        BenchmarkB 1x 2 ns/op\nBenchmarkB 1\nBenchmarkB 1 2\nBenchmarkB 1 2,5 ns/op\nBenchmarkB\n\
        PASS\nok  \ta.b/c\t1.5s\npkg:\nBenchmarkB\u{a0}1 7 allocs/op\nNote: capital\nx y: z\nempty:\n";
    expect_test::expect![[r#"
        A/k=v-8[goos=linux pkg=a.b/c] sec/op s lower Time: [1.2500000000000001e-8]
        A/k=v-8[goos=linux pkg=a.b/c] frobs frobs higher Time: [3.0]
        A/k=v-8[goos=linux pkg=a.b/c] B/s B/s higher Rate: [2000000.0]
        A/k=v-8[goos=linux pkg=a.b/c] sec/op s lower Time: [0.0]
        B[goos=linux] allocs/op count lower Count: [7.0]
        ! 5: metadata better of unit frobs already set to higher
        ! 6: missing unit
        ! 7: expected key=value
        ! 11: parsing iteration count: invalid syntax
        ! 12: missing measurements
        ! 13: missing units
        ! 14: parsing measurement: invalid syntax
    "#]]
    .assert_eq(&shown(&read(text)));
}

#[test]
fn csv_with_units_that_are_converted() {
    let text = "variant;block;metric;value;unit\na;1;latency p99;1.5;ms\na;2;latency p99;x;ms\n\
        b;1;rate;3;KiB/s\n\"b;c\";;rate;4;KiB/s\n";
    expect_test::expect![[r#"
        [variant=a block=1] latency p99 s lower Quantile: [0.0015]
        [variant=b block=1] rate B/s higher Rate: [3072.0]
        [variant=b;c] rate B/s higher Rate: [4096.0]
        ! 3: "x" is no number
    "#]]
    .assert_eq(&shown(&read(text)));
}

#[test]
fn a_column_of_values_may_have_any_name() {
    let read = |text: &str, columns: &[(TableColumn, &str)]| {
        let columns = columns.iter().map(|(what, name)| (*what, (*name).to_owned())).collect();
        let mut data = Data::default();
        data.read("in", &mut text.as_bytes(), &columns).map(|()| shown(&data.finish()))
    };
    let found = read(
        "kernel,t_ms,u\n6.1,5,ms\n",
        &[(TableColumn::Value, "t_ms"), (TableColumn::Unit, "u")],
    );
    assert_eq!(found.unwrap(), "[kernel=6.1] t_ms s lower Time: [0.005]\n");
    let missing = read("kernel,t_ms\n6.1,5\n", &[(TableColumn::Value, "t")]).unwrap_err();
    assert_eq!(missing.to_string(), "in:1: no column is called \"t\"; there are: kernel, t_ms");
    let unknown = read("kernel,t_ms\n6.1,5\n", &[]).unwrap_err();
    assert!(matches!(unknown, TableError::Unknown { .. }));
}

#[test]
fn hyperfine_keeps_parameters_and_drops_failures() {
    let text = r#"{"results": [{"command": "sleep 1", "mean": 1.0, "times": [1.0, 1.1, 0.9],
        "exit_codes": [0, 1, 0], "parameters": {"n": "4"}}]}"#;
    expect_test::expect![[r#"
        [command=sleep 1 n=4] time s lower Time: [1.0, 0.9]
        - 1: the command failed
    "#]]
    .assert_eq(&shown(&read(text)));
}

#[test]
fn lines_of_json_are_objects_with_a_value() {
    let value = ImportedValue {
        metric: "lat".into(),
        value: 2.0,
        unit: "s".into(),
        better: None,
        kind: MetricKind::Quantile,
        labels: Labels::from_iter([("op", "read")]),
        line: 7,
    };
    let mut text = serde_json::to_string(&value).unwrap();
    text.push_str("\n{\"value\": 3, \"variant\": \"x\", \"ok\": true}\n");
    expect_test::expect![[r#"
        [op=read] lat s lower Quantile: [2.0]
        [ok=true variant=x] value count unknown Count: [3.0]
    "#]]
    .assert_eq(&shown(&read(&text)));
    let mut data = Data::default();
    data.add_imported("in", &[value.into()]);
    assert_eq!(shown(&data.finish()), "[op=read] lat s lower Quantile: [2.0]\n");
}

fn record(counted: bool) -> SampleRow {
    SampleRow {
        study: "s".to_owned(),
        load: "idle".to_owned(),
        workload: "hackbench".to_owned(),
        variant: "v".to_owned(),
        block: 3,
        attempt: 1,
        counted,
        trial: "t".to_owned(),
        order: 7,
        run: 0,
        sample: 2,
        metric: Metric {
            name: "time".to_owned(),
            unit: Unit::from("s"),
            better: BetterDirection::Lower,
            kind: MetricKind::Time,
        },
        value: 0.5,
        environment: Environment::Tcg,
        source: RecordSource { tool: "hackbench".to_owned(), version: None },
        started_unix_s: 1.0,
    }
}

#[test]
fn records_are_read_from_json_in_all_its_forms() {
    let expected = expect_test::expect![[r#"
        [study=s workload=hackbench load=idle variant=v block=3 trial=t environment=tcg tool=hackbench] time s lower Time: [0.5]
        - 1: their block was not completed or was done again
    "#]];
    let records = [record(true), record(false)];
    let json = serde_json::to_string(&records).unwrap();
    expected.assert_eq(&shown(&read(&format!(
        "{{\"format\": \"vmlab-records\", \"records\": {json}}}"
    ))));
    let lines: Vec<String> =
        records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    expected.assert_eq(&shown(&read(&lines.join("\n"))));
    let mut data = Data::default();
    data.add_records("in", &records);
    expected.assert_eq(&shown(&data.finish()));
}

/// The same results folder twice, a copy of it, its samples beside it: no input makes a
/// boot count twice, and what the second one has more is taken.
#[test]
fn a_trial_counts_once_whatever_repeats_it() {
    let mut data = Data::default();
    data.add_records("folder", &[record(true), record(true)]);
    let later = SampleRow { started_unix_s: 2.0, value: 0.7, ..record(true) };
    data.add_records("copy, gone on with", &[record(true), record(true), later]);
    let csv = "variant,trial,started_unix_s,metric,value\nv,t,1,time,0.5\nv,t,3,time,0.9\n\
        v,,1,time,0.4\nv,,1,time,0.4\n";
    data.read("samples.csv", &mut csv.as_bytes(), &ColumnNames::new()).unwrap();
    let shown = shown(&data.finish());
    for part in ["[0.5, 0.5]\n", "[0.7]\n", "[0.9]\n", "[0.4, 0.4]\n", "- 3: their trial was read"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn what_is_no_format_is_handed_back() {
    let check = |text: &str, expected: &str| {
        let error =
            Data::default().read("in", &mut text.as_bytes(), &ColumnNames::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("Running in process mode\nTime: 1.0\n", "no format that is known");
    check("", "no format that is known");
    check("{\"value\": }", "in:1: expected value");
    check("{\"a\": 1}", "no value in it");
    check(r#"{"format": "vmlab-records", "version": 2, "records": []}"#, "records of format 2");
}

proptest::proptest! {
    /// Whatever bytes: no panic, and reading in pieces changes nothing.
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        kind in 0..4_usize,
    ) {
        let starts: [&[u8]; 4] = [b"Benchmark", b"a,value\n", b"{\"value\":", b""];
        let mut text = starts[kind].to_vec();
        text.extend(bytes);
        let mut data = Data::default();
        drop(data.read("in", &mut &text[..], &ColumnNames::new()));
        let mut data = Data::default();
        drop(data.read_benchfmt("in", &mut &text[..]));
        drop(data.finish());
    }
}
