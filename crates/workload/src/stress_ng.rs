//! stress-ng: one of its many stressors, by name.
//!
//! Source: stress-ng's manual page, and `stress-ng.c` for what it prints.

use record::LogValue;

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, ParamKind, rate};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::one_log_of_either;
use crate::roles::RoleCommands;
use logs::stress_ng_warnings as warnings;

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
    Param::per_vcpu("instances", 4096, "Instances that run at the same time"),
    Param::int("time_s", (1, 86_400), 10, "How long it runs").unit("s"),
];

const METRICS: &[MetricDef] = &[
    rate("bogo-ops-per-s", "Bogo operations of all instances by time on the clock").primary(),
    rate(
        "bogo-ops-per-vcpu-s",
        "Bogo operations of all instances by the user and system time that they used; \
               absent if they used none that could be measured",
    )
    .optional(),
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

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let (stream, log) = one_log_of_either(output, "stress-ng")?;
    let stressor = params.text("stressor");
    let others = |value: &&LogValue| value.labels.get("stressor").is_some_and(|of| of != stressor);
    if let Some(other) = log.values.iter().find(others) {
        let line = output.line(stream, other.line);
        return Err(line.expected(format!("the metrics of {stressor:?} alone")));
    }
    let one = |metric: &str| {
        let mut values = log.values.iter().filter(|value| value.metric == *metric);
        let value = values.next();
        let value = value.ok_or_else(|| output.ended(format!("{metric} of {stressor:?}")))?;
        match values.next() {
            Some(second) => {
                let line = output.line(stream, second.line);
                Err(line.expected(format!("one {metric}, not a second one")))
            }
            None => Ok((value.value, output.line(stream, value.line))),
        }
    };
    let [(ops, line), (per_s, _), (per_vcpu_s, _), (wall_s, wall_line)] =
        [one("bogo-ops")?, one("bogo-ops-per-s")?, one("bogo-ops-per-cpu-s")?, one("real-time")?];
    if !log.ended {
        return Err(output.ended("the end of what stress-ng prints"));
    }
    let time_s = params.int("time_s");
    if wall_s < 0.9 * time_s as f64 {
        return Err(wall_line.expected(format!("a run of {time_s} s, not of {wall_s} s")));
    }
    if ops == 0.0 || per_s == 0.0 {
        return Err(line.expected("a bogo operation in the time given"));
    }
    let mut parsed = ParsedOutput { tool_version: log.version.clone(), ..ParsedOutput::default() };
    parsed.push("bogo-ops-per-s", per_s);
    if per_vcpu_s > 0.0 {
        parsed.push("bogo-ops-per-vcpu-s", per_vcpu_s);
    }
    for warning in warnings(output.stderr).chain(warnings(output.stdout)) {
        parsed.warnings.push(format!("stress-ng says: {warning}"));
    }
    Ok(parsed)
}
