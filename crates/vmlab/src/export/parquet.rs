//! All samples as one Parquet file: the columns of `samples.csv`, typed.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use record::SampleRow;

/// A column: its name, and what it takes of a record.
enum ParquetColumn {
    Text(&'static str, fn(&SampleRow) -> String),
    Number(&'static str, fn(&SampleRow) -> u32),
    Float(&'static str, fn(&SampleRow) -> f64),
    Flag(&'static str, fn(&SampleRow) -> bool),
}

const COLUMNS: [ParquetColumn; 20] = [
    ParquetColumn::Text("study", |r| r.study.clone()),
    ParquetColumn::Text("load", |r| r.load.clone()),
    ParquetColumn::Text("workload", |r| r.workload.clone()),
    ParquetColumn::Text("variant", |r| r.variant.clone()),
    ParquetColumn::Number("block", |r| r.block),
    ParquetColumn::Number("attempt", |r| r.attempt),
    ParquetColumn::Flag("counted", |r| r.counted),
    ParquetColumn::Text("trial", |r| r.trial.clone()),
    ParquetColumn::Number("order", |r| r.order),
    ParquetColumn::Number("run", |r| r.run),
    ParquetColumn::Number("sample", |r| r.sample),
    ParquetColumn::Text("metric", |r| r.metric.name.clone()),
    ParquetColumn::Text("unit", |r| r.metric.unit.0.clone()),
    ParquetColumn::Text("better", |r| word(&r.metric.better)),
    ParquetColumn::Text("kind", |r| word(&r.metric.kind)),
    ParquetColumn::Float("value", |r| r.value),
    ParquetColumn::Text("environment", |r| word(&r.environment)),
    ParquetColumn::Text("tool", |r| r.source.tool.clone()),
    ParquetColumn::Text("tool_version", |r| r.source.version.clone().unwrap_or_default()),
    ParquetColumn::Float("started_unix_s", |r| r.started_unix_s),
];

/// The word that stands for an enum's value in JSON too.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn bytes(records: &[SampleRow]) -> Result<Vec<u8>> {
    let fields = COLUMNS.iter().map(|column| {
        let (name, physical, logical) = match column {
            ParquetColumn::Text(name, _) => (name, Physical::BYTE_ARRAY, Some(LogicalType::String)),
            ParquetColumn::Number(name, _) => (name, Physical::INT32, None),
            ParquetColumn::Float(name, _) => (name, Physical::DOUBLE, None),
            ParquetColumn::Flag(name, _) => (name, Physical::BOOLEAN, None),
        };
        let builder = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical);
        builder.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("sample").with_fields(fields).build()?);
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for column in &COLUMNS {
        write_column(&mut group, column, records)?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    column: &ParquetColumn,
    records: &[SampleRow],
) -> Result<()> {
    let Some(mut writer) = group.next_column()? else { return Ok(()) };
    match column {
        ParquetColumn::Text(_, take) => {
            let values: Vec<ByteArray> =
                records.iter().map(|record| take(record).into_bytes().into()).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        ParquetColumn::Number(_, take) => {
            // Blocks, runs and samples stay far below 2^31.
            let values: Vec<i32> = records.iter().map(|record| take(record) as i32).collect();
            writer.typed::<Int32Type>().write_batch(&values, None, None)?;
        }
        ParquetColumn::Float(_, take) => {
            let values: Vec<f64> = records.iter().map(take).collect();
            writer.typed::<DoubleType>().write_batch(&values, None, None)?;
        }
        ParquetColumn::Flag(_, take) => {
            let values: Vec<bool> = records.iter().map(take).collect();
            writer.typed::<BoolType>().write_batch(&values, None, None)?;
        }
    }
    writer.close()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;
    use proptest::prelude::*;
    use record::{BetterDirection, Environment, Metric, MetricKind, RecordSource};

    use super::*;

    fn record(sample: u32, value: f64, text: &str, counted: bool) -> SampleRow {
        SampleRow {
            study: "s".to_owned(),
            load: "idle".to_owned(),
            workload: "w".to_owned(),
            variant: text.to_owned(),
            block: sample / 3,
            attempt: 0,
            counted,
            trial: format!("t{sample}"),
            order: sample,
            run: 1,
            sample,
            metric: Metric {
                name: "time".to_owned(),
                unit: "s".into(),
                better: BetterDirection::Lower,
                kind: MetricKind::Time,
            },
            value,
            environment: Environment::Kvm,
            source: RecordSource { tool: "hackbench".to_owned(), version: None },
            started_unix_s: 1.5e9 + f64::from(sample),
        }
    }

    /// Writes `records` and reads the rows back.
    fn rows(records: &[SampleRow]) -> Vec<parquet::record::Row> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes(records).unwrap()).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn columns_are_those_of_the_csv() {
        let records = [record(4, 0.25, "a,b", false)];
        let csv = report::csv(&records);
        let mut lines = csv.lines();
        let row = &rows(&records)[0];
        let names: Vec<&str> = row.get_column_iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.join(","), lines.next().unwrap());
        let words: Vec<String> = row
            .get_column_iter()
            .map(|(_, field)| match field {
                parquet::record::Field::Str(text) => text.clone(),
                parquet::record::Field::Double(value) => format!("{value:?}"),
                other => other.to_string(),
            })
            .collect();
        assert_eq!(words.join(","), lines.next().unwrap().replace('"', ""));
    }

    proptest! {
        #[test]
        fn every_value_comes_back(
            samples in prop::collection::vec((any::<f64>(), "\\PC{0,9}", any::<bool>()), 0..40),
        ) {
            let records: Vec<SampleRow> = samples
                .iter()
                .zip(0..)
                .map(|((value, text, counted), place)| record(place, *value, text, *counted))
                .collect();
            let rows = rows(&records);
            prop_assert_eq!(rows.len(), records.len());
            for (row, record) in rows.iter().zip(&records) {
                prop_assert_eq!(row.get_double(15).unwrap().to_bits(), record.value.to_bits());
                prop_assert_eq!(row.get_string(3).unwrap(), &record.variant);
                prop_assert_eq!(row.get_bool(6).unwrap(), record.counted);
                prop_assert_eq!(row.get_int(10).unwrap() as u32, record.sample);
            }
        }
    }
}
