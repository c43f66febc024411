//! All samples in long form: one row a sample, every setting beside it.

use record::{RECORD_FORMAT_VERSION, SampleRow};
use schemars::JsonSchema;
use serde::Serialize;

/// The header of `samples.csv`; the order of the columns is part of the
/// format.
const COLUMNS: [&str; 20] = [
    "study",
    "load",
    "workload",
    "variant",
    "block",
    "attempt",
    "counted",
    "trial",
    "order",
    "run",
    "sample",
    "metric",
    "unit",
    "better",
    "kind",
    "value",
    "environment",
    "tool",
    "tool_version",
    "started_unix_s",
];

/// `records` as comma-separated values (RFC 4180) with a header; values in
/// base units, written so that reading them gives the very same number.
#[must_use]
pub fn csv(records: &[SampleRow]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |row: &[String]| {
        writer.write_record(row).expect("rows have one length and memory takes them");
    };
    write(&COLUMNS.map(str::to_owned));
    for record in records {
        write(&row(record));
    }
    let bytes = writer.into_inner().expect("memory takes all bytes");
    String::from_utf8(bytes).expect("all cells are strings")
}

fn row(record: &SampleRow) -> [String; COLUMNS.len()] {
    [
        record.study.clone(),
        record.load.clone(),
        record.workload.clone(),
        record.variant.clone(),
        record.block.to_string(),
        record.attempt.to_string(),
        record.counted.to_string(),
        record.trial.clone(),
        record.order.to_string(),
        record.run.to_string(),
        record.sample.to_string(),
        record.metric.name.clone(),
        record.metric.unit.to_string(),
        word(&record.metric.better),
        word(&record.metric.kind),
        format!("{:?}", record.value),
        word(&record.environment),
        record.source.tool.clone(),
        record.source.version.clone().unwrap_or_default(),
        format!("{:?}", record.started_unix_s),
    ]
}

/// The word that stands for an enum's value in JSON too.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("record's enums are words in JSON, not {other:?}"),
    }
}

/// The document that [`json`] prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SampleRows<'a> {
    format: &'static str,
    version: u32,
    records: &'a [SampleRow],
}

/// `records` as one JSON object: `format`, `version` and `records`.
#[must_use]
pub fn json(records: &[SampleRow]) -> String {
    let samples = SampleRows { format: "vmlab-records", version: RECORD_FORMAT_VERSION, records };
    serde_json::to_string_pretty(&samples).expect("all keys of a record are strings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use record::{BetterDirection, Environment, Metric, MetricKind, RecordSource, Unit};

    fn record(variant: &str, value: f64) -> SampleRow {
        SampleRow {
            study: "made-up".to_owned(),
            load: "idle".to_owned(),
            workload: "hackbench".to_owned(),
            variant: variant.to_owned(),
            block: 3,
            attempt: 1,
            counted: true,
            trial: "00112233445566ff".to_owned(),
            order: 7,
            run: 0,
            sample: 2,
            metric: Metric {
                name: "time".to_owned(),
                unit: Unit::from("s"),
                better: BetterDirection::Lower,
                kind: MetricKind::Time,
            },
            value,
            environment: Environment::NestedKvm,
            source: RecordSource { tool: "hackbench".to_owned(), version: None },
            started_unix_s: 1_767_323_045.25,
        }
    }

    /// Reads a row back by the names of its columns.
    fn read(text: &str) -> Vec<SampleRow> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let heads = reader.headers().unwrap().clone();
        let number = |text: &str| text.parse::<u32>().unwrap();
        reader
            .records()
            .map(|row| {
                let row = row.unwrap();
                let at = |name: &str| row[heads.iter().position(|h| h == name).unwrap()].to_owned();
                let word = |name: &str| serde_json::Value::String(at(name));
                let version = Some(at("tool_version")).filter(|version| !version.is_empty());
                SampleRow {
                    study: at("study"),
                    load: at("load"),
                    workload: at("workload"),
                    variant: at("variant"),
                    block: number(&at("block")),
                    attempt: number(&at("attempt")),
                    counted: at("counted") == "true",
                    trial: at("trial"),
                    order: number(&at("order")),
                    run: number(&at("run")),
                    sample: number(&at("sample")),
                    metric: Metric {
                        name: at("metric"),
                        unit: Unit(at("unit")),
                        better: serde_json::from_value(word("better")).unwrap(),
                        kind: serde_json::from_value(word("kind")).unwrap(),
                    },
                    value: at("value").parse().unwrap(),
                    environment: serde_json::from_value(word("environment")).unwrap(),
                    source: RecordSource { tool: at("tool"), version },
                    started_unix_s: at("started_unix_s").parse().unwrap(),
                }
            })
            .collect()
    }

    #[test]
    fn a_row_is_a_sample_with_its_settings() {
        expect_test::expect![[r#"
            study,load,workload,variant,block,attempt,counted,trial,order,run,sample,metric,unit,better,kind,value,environment,tool,tool_version,started_unix_s
            made-up,idle,hackbench,"2-vcpu, ""pinned""",3,1,true,00112233445566ff,7,0,2,time,s,lower,time,0.641,nested-kvm,hackbench,,1767323045.25
        "#]]
        .assert_eq(&csv(&[record("2-vcpu, \"pinned\"", 0.641)]));
    }

    #[test]
    fn no_records_leave_a_header() {
        assert_eq!(csv(&[]).lines().count(), 1);
        assert!(json(&[]).contains("\"records\": []"));
    }

    proptest! {
        #[test]
        fn csv_and_json_give_back_what_went_in(
            variant in ".*",
            value in prop::num::f64::NORMAL | prop::num::f64::ZERO,
        ) {
            let records = vec![record(&variant, value), record("b", 1.0)];
            prop_assert_eq!(read(&csv(&records)), records.clone());
            let json: serde_json::Value = serde_json::from_str(&json(&records)).unwrap();
            let back: Vec<SampleRow> = serde_json::from_value(json["records"].clone()).unwrap();
            prop_assert_eq!(back, records);
        }
    }
}
