//! The messages of QMP and of the guest agent: both are JSON, one a line.
//!
//! Source: QEMU `docs/interop/qmp-spec.rst`, `docs/interop/qemu-ga-ref.html`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

/// A request as one line.
pub(crate) fn request(command: &str, arguments: Option<Value>, id: Option<u64>) -> Vec<u8> {
    let mut object = json!({ "execute": command });
    if let Some(arguments) = arguments {
        object["arguments"] = arguments;
    }
    if let Some(id) = id {
        object["id"] = id.into();
    }
    let mut line = object.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// What QMP sends.
#[derive(Debug, PartialEq)]
pub(crate) enum QmpMessage {
    /// The first message of a connection.
    Greeting,
    /// The answer to the request with this id.
    Answer { id: u64, result: Result<Value, QmpRefusal> },
    /// Something that happened, and when, in microseconds of QEMU's wall clock.
    Event { name: String, data: Value, at_us: u64 },
}

/// QMP's or the agent's own error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct QmpRefusal {
    pub(crate) class: String,
    pub(crate) desc: String,
}

/// Reads one line of QMP; `None` for what this version does not know.
pub(crate) fn parse_qmp(line: &[u8]) -> Option<QmpMessage> {
    let mut value: Value = serde_json::from_slice(line).ok()?;
    if value.get("QMP").is_some() {
        return Some(QmpMessage::Greeting);
    }
    if let Some(name) = value.get("event").and_then(Value::as_str) {
        let name = name.to_owned();
        let data = value.get_mut("data").map_or(Value::Null, Value::take);
        let part = |part: &str| value["timestamp"][part].as_u64().unwrap_or_default();
        let at_us = part("seconds").saturating_mul(1_000_000).saturating_add(part("microseconds"));
        return Some(QmpMessage::Event { name, data, at_us });
    }
    let id = value.get("id")?.as_u64()?;
    let result = match value.get_mut("error") {
        Some(error) => Err(serde_json::from_value(error.take()).ok()?),
        None => Ok(value.get_mut("return")?.take()),
    };
    Some(QmpMessage::Answer { id, result })
}

/// An answer of the guest agent, which carries no id.
#[derive(Debug, Deserialize)]
pub(crate) struct AgentAnswer<T> {
    #[serde(rename = "return")]
    pub(crate) value: Option<T>,
    pub(crate) error: Option<QmpRefusal>,
}

/// The number that the agent returns in `line`, if that is what it does. Nothing
/// else of the line is kept: a value of a megabyte of brackets takes 30.
pub(crate) fn returned_number(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<AgentAnswer<u64>>(line).ok()?.value
}

/// `guest-exec-status`: the texts borrow from the line, because they can be
/// nearly as long as it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ExecStatus<'a> {
    pub(crate) exited: bool,
    #[serde(rename = "exitcode")]
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    #[serde(borrow)]
    pub(crate) out_data: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) err_data: Option<BorrowedText<'a>>,
    #[serde(default)]
    pub(crate) out_truncated: bool,
    #[serde(default)]
    pub(crate) err_truncated: bool,
}

/// A text that borrows; inside an `Option`, a bare `Cow` would be a copy.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The guest agent's exec request.
pub(crate) fn exec_arguments(
    path: &str,
    arguments: &[String],
    environment: &[String],
    input: Option<String>,
) -> Value {
    let mut object = json!({
        "path": path, "arg": arguments, "env": environment, "capture-output": true,
    });
    if let Some(input) = input {
        object["input-data"] = input.into();
    }
    object
}

#[derive(Deserialize)]
struct StatsResult {
    provider: String,
    stats: Vec<Stat>,
}

#[derive(Deserialize)]
struct Stat {
    name: String,
    value: Value,
}

/// Adds up the answer to `query-stats` by name, as `<provider>.<name>`:
/// numbers are summed over the vCPUs, yes/no values count as 1 and 0, and
/// histograms are left out.
pub(crate) fn add_stats(answer: Value, sums: &mut BTreeMap<String, f64>) {
    let results: Vec<StatsResult> = serde_json::from_value(answer).unwrap_or_default();
    for result in results {
        for stat in result.stats {
            let value = match stat.value {
                Value::Number(number) => number.as_f64(),
                Value::Bool(yes) => Some(f64::from(u8::from(yes))),
                _ => None,
            };
            if let Some(value) = value {
                *sums.entry(format!("{}.{}", result.provider, stat.name)).or_insert(0.0) += value;
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CpuInfoFast {
    cpu_index: u32,
    thread_id: u32,
}

/// The threads of the answer to `query-cpus-fast`, by vCPU index.
pub(crate) fn vcpu_threads(answer: Value) -> Option<Vec<u32>> {
    let mut vcpus: Vec<CpuInfoFast> = serde_json::from_value(answer).ok()?;
    vcpus.sort_by_key(|vcpu| vcpu.cpu_index);
    Some(vcpus.into_iter().map(|vcpu| vcpu.thread_id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qmp_lines_are_told_apart() {
        let check = |line: &str, expected: Option<QmpMessage>| {
            assert_eq!(parse_qmp(line.as_bytes()), expected, "{line}");
        };
        check(
            r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}"#,
            Some(QmpMessage::Greeting),
        );
        check(
            r#"{"return": {}, "id": 3}"#,
            Some(QmpMessage::Answer { id: 3, result: Ok(json!({})) }),
        );
        check(
            r#"{"id": 4, "error": {"class": "CommandNotFound", "desc": "The command query-stats has not been found"}}"#,
            Some(QmpMessage::Answer {
                id: 4,
                result: Err(QmpRefusal {
                    class: "CommandNotFound".into(),
                    desc: "The command query-stats has not been found".into(),
                }),
            }),
        );
        check(
            r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}"#,
            Some(QmpMessage::Event {
                name: "SHUTDOWN".into(),
                data: json!({"guest": true, "reason": "guest-reset"}),
                at_us: 1_000_002,
            }),
        );
        check("not json", None);
        check(r#"{"something": "else"}"#, None);
    }

    #[test]
    fn stats_are_summed_over_vcpus() {
        // The shape of QEMU's answer for target vcpu, two vCPUs.
        let answer = json!([
            {"provider": "kvm", "qom-path": "/machine/unattached/device[0]", "stats": [
                {"name": "exits", "value": 10}, {"name": "guest_mode", "value": false},
                {"name": "halt_wait_hist", "value": [1, 2]}]},
            {"provider": "kvm", "qom-path": "/machine/unattached/device[1]", "stats": [
                {"name": "exits", "value": 32}, {"name": "guest_mode", "value": true}]},
        ]);
        let mut sums = BTreeMap::new();
        add_stats(answer, &mut sums);
        let expected =
            [("kvm.exits", 42.0), ("kvm.guest_mode", 1.0)].map(|(name, v)| (name.to_owned(), v));
        assert_eq!(sums, BTreeMap::from(expected));
        add_stats(json!([]), &mut sums);
        assert_eq!(sums.len(), 2);
    }

    #[test]
    fn threads_come_by_vcpu_index() {
        let answer = json!([{"cpu-index": 1, "thread-id": 77, "qom-path": "x"},
                            {"cpu-index": 0, "thread-id": 76, "qom-path": "y"}]);
        assert_eq!(vcpu_threads(answer), Some(vec![76, 77]));
        assert_eq!(vcpu_threads(json!({})), None);
    }

    #[test]
    fn a_status_borrows_its_texts() {
        let line = br#"{"return": {"exited": true, "exitcode": 0, "out-data": "aGk=", "out-truncated": true}}"#;
        let answer: AgentAnswer<ExecStatus<'_>> = serde_json::from_slice(line).unwrap();
        let status = answer.value.unwrap();
        assert!(matches!(status.out_data, Some(BorrowedText(Cow::Borrowed("aGk=")))));
        assert!(status.exited && status.out_truncated && !status.err_truncated);
    }
}
