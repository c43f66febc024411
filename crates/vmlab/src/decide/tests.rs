//! Sessions: what is said for what is sent.

use super::*;

fn json(reply: Option<Reply>) -> Value {
    serde_json::to_value(reply.unwrap()).unwrap()
}

/// Answers every block with `measure(config, iterations)` until the verdict.
fn play(
    session: &mut DecideSession,
    start: &str,
    mut measure: impl FnMut(&str, u64) -> Value,
) -> Value {
    let mut reply = json(session.reply(start));
    for _ in 0..200 {
        let Some(run) = reply.get("run").and_then(Value::as_array) else { return reply };
        let trials: Vec<Value> = run
            .iter()
            .map(|boot| {
                let config = boot["config"].as_str().unwrap();
                let values = measure(config, boot["iterations"].as_u64().unwrap());
                serde_json::json!({"config": config, "boot": 0, "t": 0.0, "values": [values]})
            })
            .collect();
        let data = serde_json::json!({"op": "data", "trials": trials});
        reply = json(session.reply(&data.to_string()));
    }
    panic!("No verdict after 200 blocks");
}

/// Values around `level`; no two alike, and the same in each run of the tests.
fn around(level: f64, iterations: u64, count: &mut u64) -> Value {
    let mut next = || {
        *count += 1;
        let noise = ((*count * 7919) % 101) as f64 / 101.0 - 0.5;
        level * (1.0 + 0.01 * noise)
    };
    (0..iterations).map(|_| next()).collect::<Vec<f64>>().into()
}

const START: &str = r#"{"op":"start","case":7,"meta":{"better":"lower","alpha":0.05,"margin":0.03,"max_blocks":40,"cost":{"boot":8.0,"invocation":1.0,"iteration":1.0}}}"#;

#[test]
fn cases_end_with_the_verdict_that_is_true() {
    let check = |start: &str, b: f64, expected: &str| {
        let mut count = 0;
        let mut session = DecideSession::default();
        let verdict = play(&mut session, start, |config, iterations| {
            around(if config == "A" { 250.0 } else { b }, iterations, &mut count)
        });
        assert_eq!(verdict["verdict"], expected, "{verdict}");
        let [ratio, lo, hi] = ["ratio", "lo", "hi"].map(|key| verdict[key].as_f64().unwrap());
        assert!(lo <= ratio && ratio <= hi, "{verdict}");
        assert!(lo <= b / 250.0 && b / 250.0 <= hi, "{verdict}");
    };
    let higher = &START.replace("lower", "higher");
    check(START, 225.0, "B_better");
    check(START, 275.0, "B_worse");
    check(higher, 225.0, "B_worse");
    check(higher, 275.0, "B_better");
    check(START, 250.0, "equivalent");
    check(r#"{"op":"start"}"#, 250.0, "equivalent");
}

/// A number from -0.5 to 0.5 that is another for each `place`, as if drawn.
fn luck(place: u64) -> f64 {
    // splitmix64.
    let mut bits = place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ (bits >> 31)) as f64 / u64::MAX as f64 - 0.5
}

/// Plays a session against a laboratory with a clock: a boot takes `boot_s`, an
/// invocation 1 s, an iteration 0.1 s, and the invocations of a boot differ by
/// some per cent. Returns the runs that were asked for, and the verdict.
fn play_timed(meta: &Value, boot_s: f64, b: f64) -> (Vec<(u64, u64)>, Value) {
    let mut session = DecideSession::default();
    let start = serde_json::json!({"op": "start", "case": 1, "meta": meta});
    let mut reply = json(session.reply(&start.to_string()));
    let (mut asked, mut now_s, mut count, mut invocation) = (Vec::new(), 0.0, 0, 0);
    while let Some(run) = reply.get("run").and_then(Value::as_array) {
        let trial = |boot: &Value| {
            let [invocations, iterations] =
                ["invocations", "iterations"].map(|key| boot[key].as_u64().unwrap());
            asked.push((invocations, iterations));
            let level = if boot["config"] == "A" { 1.0 } else { b };
            let values: Vec<Value> = (0..invocations)
                .map(|_| {
                    invocation += 1;
                    let luck = luck(invocation);
                    around(level * (1.0 + 0.06 * luck), iterations, &mut count)
                })
                .collect();
            let t = now_s;
            now_s += boot_s + invocations as f64 * (1.0 + 0.1 * iterations as f64);
            serde_json::json!({"config": boot["config"], "t": t, "values": values})
        };
        let trials: Vec<Value> = run.iter().map(trial).collect();
        let data = serde_json::json!({"op": "data", "trials": trials});
        reply = json(session.reply(&data.to_string()));
    }
    let seconds = reply["seconds"].as_f64().unwrap();
    assert!((seconds - now_s).abs() < 0.05 * now_s + 1.0, "{seconds} of {now_s}: {reply}");
    (asked, reply)
}

#[test]
fn dear_boots_are_used_for_several_invocations() {
    let meta = |boot: f64| {
        let cost = serde_json::json!({"boot": boot, "invocation": 1.0, "iteration": 0.1});
        serde_json::json!({"margin": 0.03, "cost": cost})
    };
    let most = |asked: &[(u64, u64)]| asked.iter().map(|asked| asked.0).max();
    let (dear, verdict) = play_timed(&meta(60.0), 60.0, 1.0);
    assert_eq!(verdict["verdict"], "equivalent", "{verdict}");
    assert!(dear[0].0 == 2 && most(&dear) > Some(2), "{dear:?}");
    let (cheap, _) = play_timed(&meta(2.0), 2.0, 1.0);
    assert_eq!(most(&cheap), Some(1));
}

#[test]
fn a_case_ends_within_its_seconds() {
    let meta = |max_seconds: f64| {
        let cost = serde_json::json!({"boot": 8.0, "invocation": 1.0, "iteration": 0.1});
        serde_json::json!({"max_seconds": max_seconds, "cost": cost})
    };
    // A difference that needs more blocks than there is time for.
    let (_, free) = play_timed(&meta(1e6), 8.0, 1.02);
    let needed = free["seconds"].as_f64().unwrap();
    assert!(needed > 100.0, "{free}");
    let (asked, verdict) = play_timed(&meta(60.0), 8.0, 1.02);
    assert!(verdict["seconds"].as_f64().unwrap() <= 60.0 && !asked.is_empty(), "{verdict}");
    assert_eq!(verdict["verdict"], "inconclusive", "{verdict}");
    // Boots that take ten times as long as was said leave time for fewer.
    let (slow, verdict) = play_timed(&meta(400.0), 80.0, 1.02);
    assert!(verdict["seconds"].as_f64().unwrap() <= 400.0 && slow.len() <= 4, "{verdict}");
    assert_eq!(verdict["why"], "no time is left for another block");
}

#[test]
fn odd_values_end_in_a_verdict_too() {
    let play = |start: &str, values: &str| {
        let value: Value = serde_json::from_str(values).unwrap();
        play(&mut DecideSession::default(), start, |_, _| value.clone())["verdict"].clone()
    };
    assert_eq!(play(START, "[3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]"), "equivalent");
    assert_eq!(play(START, "[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]"), "equivalent");
    assert_eq!(play(START, "[0.0, 1.0, 2.0, 1.0]"), "inconclusive");
    assert_eq!(play(START, "[null, null]"), "inconclusive");
    assert_eq!(play(START, "[]"), "inconclusive");
    assert_eq!(play(START, "[-1.0, -2.0, -1.0, -3.0]"), "inconclusive");
    assert_eq!(play(START, "[5.0]"), "equivalent");
    for blocks in ["1", "2", "3", "5", "1e99", "2.5"] {
        let start = START.replace(":40", &format!(":{blocks}"));
        let _ = play(&start, "[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]");
    }
}

#[test]
fn bad_lines_are_answered_and_change_nothing() {
    let mut session = DecideSession::default();
    let error = |session: &mut DecideSession, line: &str, expected: &str| {
        let reply = json(session.reply(line));
        let text = reply["error"].as_str().unwrap_or_else(|| panic!("{line}: {reply}"));
        assert!(text.contains(expected), "{line}: {text}");
    };
    error(&mut session, r#"{"op":"data","trials":[]}"#, "No case is open");
    error(&mut session, "nonsense", "Not a message");
    error(&mut session, r#"{"op":"dance"}"#, "unknown variant `dance`");
    error(&mut session, r#"{"op":"start","meta":{"alpha":2}}"#, "Rate of false claims 2");
    error(&mut session, r#"{"op":"start","meta":{"margin":-1}}"#, "Margin -1");
    error(&mut session, r#"{"op":"start","meta":{"max_blocks":0}}"#, "0 blocks");
    error(&mut session, r#"{"op":"start","meta":{"max_seconds":0}}"#, "Time of 0 s");
    error(&mut session, r#"{"op":"start","meta":{"cost":{"boot":-1}}}"#, "Cost of boot -1");
    assert!(json(session.reply(START)).get("run").is_some());
    error(&mut session, r#"{"op":"data","trials":[{"config":"C"}]}"#, "unknown variant `C`");
    error(&mut session, r#"{"op":"data"}"#, "missing field `trials`");
    // The case is still open, and a block without B is asked for again.
    let half = r#"{"op":"data","trials":[{"config":"A","values":[[1.0, NaN, Infinity]]}]}"#;
    assert!(json(session.reply(half)).get("run").is_some());
    assert!(session.reply(r#"{"op":"quit"}"#).is_none());
}

#[test]
fn the_same_case_is_planned_the_same_way() {
    let first = |start: &str| json(DecideSession::default().reply(start)).to_string();
    assert_eq!(first(START), first(START));
    let orders: std::collections::BTreeSet<String> =
        (0..20).map(|case| first(&START.replace(":7", &format!(":{case}")))).collect();
    assert_eq!(orders.len(), 2, "{orders:?}");
}
