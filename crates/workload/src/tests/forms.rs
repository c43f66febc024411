//! Outputs of tools that no run here has made: old forms, and runs that went wrong.

use super::*;

#[test]
fn historic_forms_of_hackbench_are_read() {
    let check_of = |workload: &str, stdout: &str, expected: Result<f64, &str>| {
        let entry = find(workload).unwrap();
        let output = CommandOutput { stdout, stderr: "" };
        let found = entry.parse(output, &resolve(entry, &[]), &FACTS);
        match (found, expected) {
            (Ok(parsed), Ok(value)) => assert_eq!(parsed.samples[0].value, value),
            (Err(error), Err(message)) => assert_eq!(error.to_string(), message),
            (found, _) => panic!("{found:?} for {stdout:?}"),
        }
    };
    let check = |stdout: &str, expected| check_of("hackbench", stdout, expected);
    check("Running with 10*40 (== 400) tasks.\nTime: 3.251\n", Ok(3.251));
    check("Time: 3.251\n", Ok(3.251));
    let perf = "# Running sched/messaging benchmark...\n     Total time: 0.500 [sec]\n";
    check_of("perf-messaging", perf, Ok(0.5));
    check("", Err("stdout ended at line 0 without a result of hackbench; the last line is \"\""));
    // Three decimals are all that it prints, so nothing of them is missing.
    check("Time: 3.251", Ok(3.251));
    check(
        "Time: 3.25",
        Err(
            "stdout line 1: expected what hackbench prints (no time in seconds), found \"Time: 3.25\"",
        ),
    );
    check(
        "Time: 3.251\nTime: 3.250\n",
        Err("stdout line 2: expected one time, not a second one, found \"Time: 3.250\""),
    );
    check(
        "\nTime: -1\n",
        Err("stdout line 2: expected what hackbench prints (below zero), found \"Time: -1\""),
    );
    check(
        "fork(): Resource temporarily unavailable\n",
        Err(
            "stdout ended at line 1 without a result of hackbench; the last line is \"fork(): Resource temporarily unavailable\"",
        ),
    );
}

#[test]
fn a_run_of_pgbench_is_read_if_it_did_what_was_asked() {
    let forms = std::fs::read_to_string(
        testdata().join("../../logs/testdata/pgbench-forms/9.6-and-15.log"),
    )
    .unwrap();
    let whole = &forms[forms.find("pgbench (15.5").unwrap()..];
    let parse = |stdout: &str, clients: i64| {
        let entry = find("pgbench").unwrap();
        let output = CommandOutput { stdout, stderr: "" };
        entry.parse(output, &resolve(entry, &[("clients", int(clients))]), &FACTS)
    };
    let parsed = parse(whole, 10).unwrap();
    let values: Vec<_> = parsed.samples.iter().map(|one| (&*one.metric, one.value)).collect();
    let expected = [
        ("transactions-per-s", 896.967014),
        ("latency-avg", 0.011013),
        ("latency-stddev", 0.007351),
    ];
    assert_eq!((values, parsed.tool_version.as_deref()), (expected.to_vec(), Some("15.5")));
    let refused = |stdout: &str, clients: i64, part: &str| {
        let error = parse(stdout, clients).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(whole, 8, "expected 8 clients");
    let failed = "failed transactions: 3 (";
    let some_failed = whole.replace("failed transactions: 0 (", failed);
    refused(&some_failed, 10, "expected 0 failed transactions");
    refused(&whole.replace("tps = 896.967014", "tps = 0.000000"), 10, "above 0");
    refused(&whole[..whole.find("tps =").unwrap()], 10, "transactions-per-s");
    for at in cuts(whole) {
        let cut = parse(&whole[..at], 10).map(|parsed| parsed.samples);
        assert!(cut.is_err() || cut == Ok(parsed.samples.clone()), "byte {at}: {cut:?}");
    }
}
