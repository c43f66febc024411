//! stress-ng: one of its many stressors, by name.
//!
//! Source: stress-ng's manual page, and `stress-ng.c` for what it prints.

use record::{Better, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, ParamKind, Scope};
use crate::params::Params;
use crate::parse::{CommandOutput, OutputLine, ParseError, ParsedOutput};
use crate::roles::RoleCommands;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "stress-ng",
    summary: "One stressor of stress-ng, by name",
    about: "Some 300 stressors, each of which hammers one thing: `stress-ng --stressors` lists \
            those of a guest's version, which also decides whether a name is known. A bogo-op is \
            one turn of the stressor's loop: compare it between variants of a VM with the same \
            stress-ng, and with nothing else. `cpu` cycles through methods of unequal cost, so \
            give it a `method`. Random numbers start from the same seed in every run.",
    measures: "Bogo operations per second: whatever the stressor hammers.",
    needs: &["stress-ng"],
    beside: RoleCommands::NOTHING,
    params: PARAMS,
    metrics: METRICS,
    repeats: "One run prints one rate over all instances, which is the sample; repeat it by the \
              study's number of runs.",
    example: &[
        ("stressor", DefaultValue::Text("cpu")),
        ("method", DefaultValue::Text("matrixprod")),
        ("time_s", DefaultValue::Int(5)),
    ],
    command,
    parse,
    duration_s: |params, facts| params.int("time_s") as f64 + facts.computing_s(0.1),
};

const PARAMS: &[Param] = &[
    Param {
        name: "stressor",
        kind: ParamKind::Name,
        default: DefaultValue::Text("cpu"),
        unit: None,
        help: "The stressor, as `stress-ng --stressors` names it",
    },
    Param {
        name: "method",
        kind: ParamKind::Name,
        default: DefaultValue::Tool,
        unit: None,
        help: "The stressor's method, for those that have some (`--cpu-method`, `--vm-method`, ...)",
    },
    Param {
        name: "instances",
        kind: ParamKind::Int(1, 4096),
        default: DefaultValue::PerVcpu,
        unit: None,
        help: "Instances that run at the same time",
    },
    Param {
        name: "time_s",
        kind: ParamKind::Int(1, 86_400),
        default: DefaultValue::Int(10),
        unit: Some("s"),
        help: "How long it runs",
    },
];

const METRICS: &[MetricDef] = &[
    MetricDef {
        name: "bogo-ops-per-s",
        unit: "1/s",
        better: Better::Higher,
        kind: MetricKind::Rate,
        primary: true,
        scope: Scope::Total,
        optional: false,
        only_with: None,
        help: "Bogo operations of all instances by time on the clock",
    },
    MetricDef {
        name: "bogo-ops-per-vcpu-s",
        unit: "1/s",
        better: Better::Higher,
        kind: MetricKind::Rate,
        primary: false,
        scope: Scope::Total,
        optional: true,
        only_with: None,
        help: "Bogo operations of all instances by the user and system time that they used; \
               absent if they used none that could be measured",
    },
];

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let stressor = params.text("stressor");
    let mut argv = vec![
        "stress-ng".to_owned(),
        format!("--{stressor}"),
        params.int_or_vcpus("instances", facts).to_string(),
    ];
    if let Some(method) = params.text_if_given("method") {
        argv.extend([format!("--{stressor}-method"), method.to_owned()]);
    }
    let time = format!("{}s", params.int("time_s"));
    for argument in ["--timeout", &time, "--no-rand-seed", "--metrics", "--yaml", "/dev/stdout"] {
        argv.push(argument.to_owned());
    }
    argv
}

/// What stress-ng says about one stressor.
struct Row<'a> {
    line: OutputLine<'a>,
    bogo_ops: f64,
    wall_s: f64,
    per_s: f64,
    per_vcpu_s: f64,
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let mut parsed = ParsedOutput::default();
    for line in output.stderr_lines().chain(output.stdout_lines()) {
        let Some((level, message)) = log_message(line.text) else { continue };
        if message.starts_with("unsuccessful run completed") {
            return Err(line.expected("a successful run"));
        }
        if matches!(level, "warn" | "error" | "fail") {
            parsed.warnings.push(format!("stress-ng says: {message}"));
        }
    }
    let stressor = params.text("stressor");
    let row = if output.stdout_lines().any(|line| line.text == "---") {
        yaml_row(output, stressor, &mut parsed.tool_version)?
    } else {
        log_row(output, stressor)?
    };
    let time_s = params.int("time_s");
    if row.wall_s < 0.9 * time_s as f64 {
        let wall_s = row.wall_s;
        return Err(row.line.expected(format!("a run of {time_s} s, not of {wall_s} s")));
    }
    if row.bogo_ops == 0.0 || row.per_s == 0.0 {
        return Err(row.line.expected("a bogo operation in the time given"));
    }
    parsed.push("bogo-ops-per-s", row.per_s);
    if row.per_vcpu_s > 0.0 {
        parsed.push("bogo-ops-per-vcpu-s", row.per_vcpu_s);
    }
    Ok(parsed)
}

/// Reads the YAML of `--yaml`, which ends with `...`.
fn yaml_row<'a>(
    output: CommandOutput<'a>,
    stressor: &str,
    version: &mut Option<String>,
) -> Result<Row<'a>, ParseError> {
    let fields = [
        "bogo-ops:",
        "wall-clock-time:",
        "bogo-ops-per-second-real-time:",
        "bogo-ops-per-second-usr-sys-time:",
    ];
    let mut start = None;
    let mut values = [None; 4];
    let mut ended = false;
    for line in output.stdout_lines() {
        let text = line.text.trim();
        if let Some(rest) = text.strip_prefix("stress-ng-version:") {
            *version = Some(rest.trim().to_owned());
        } else if let Some(name) = text.strip_prefix("- stressor:") {
            if name.trim() != stressor || start.is_some() {
                return Err(line.expected(format!("the metrics of {stressor:?} alone")));
            }
            start = Some(line);
        } else if text == "..." {
            ended = true;
        } else if let Some(index) = fields.iter().position(|field| text.starts_with(field)) {
            let value = text.strip_prefix(fields[index]).unwrap_or_default().trim();
            if values[index].replace(line.number(value, fields[index])?).is_some() {
                return Err(line.expected("this field once"));
            }
        }
    }
    if !ended {
        return Err(output.ended("the YAML's end (...)"));
    }
    let line = start.ok_or_else(|| output.ended(format!("metrics of {stressor:?}")))?;
    let value = |index: usize| {
        values[index].ok_or_else(|| line.expected(format!("{:?} below it", fields[index])))
    };
    let [bogo_ops, wall_s] = [value(0)?, value(1)?];
    Ok(Row { line, bogo_ops, wall_s, per_s: value(2)?, per_vcpu_s: value(3)? })
}

/// Reads the table of `--metrics` or `--metrics-brief` in the log, for logs
/// without YAML. Its rows have been of level `info` and are of level `metrc`
/// since 0.14; `--metrics` has more columns than `--metrics-brief`, at the end.
fn log_row<'a>(output: CommandOutput<'a>, stressor: &str) -> Result<Row<'a>, ParseError> {
    let mut row = None;
    let mut ended = false;
    for line in output.stdout_lines().chain(output.stderr_lines()) {
        let Some((level, message)) = log_message(line.text) else { continue };
        if message.starts_with("successful run completed") {
            ended = true;
        }
        let words: Vec<&str> = message.split_whitespace().collect();
        // Below the table, rows of other metrics start with a name as well;
        // only the table's have nothing but numbers behind it.
        let is_row = matches!(level, "info" | "metrc")
            && words.len() >= 7
            && words[0] == stressor
            && words[1..].iter().all(|word| word.parse::<f64>().is_ok());
        if !is_row {
            continue;
        }
        if row.is_some() {
            return Err(line.expected(format!("one row of {stressor:?}")));
        }
        let number = |index: usize| line.number(words[index], "a row of the metrics table");
        row = Some(Row {
            line,
            bogo_ops: number(1)?,
            wall_s: number(2)?,
            per_s: number(5)?,
            per_vcpu_s: number(6)?,
        });
    }
    let row = row.ok_or_else(|| output.ended(format!("metrics of {stressor:?}")))?;
    if ended { Ok(row) } else { Err(output.ended("\"successful run completed\"")) }
}

/// Level and text of `stress-ng: info:  [123] text`.
fn log_message(line: &str) -> Option<(&str, &str)> {
    let (level, rest) = line.trim_start().strip_prefix("stress-ng: ")?.split_once(':')?;
    let (_, message) = rest.split_once(']')?;
    Some((level.trim(), message.trim()))
}
