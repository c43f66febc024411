//! All samples as one Parquet file: the columns of `samples.csv`, typed.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use record::Record;

/// A column: its name, and what it takes of a record.
enum Column {
    Text(&'static str, fn(&Record) -> String),
    Number(&'static str, fn(&Record) -> u32),
    Float(&'static str, fn(&Record) -> f64),
    Flag(&'static str, fn(&Record) -> bool),
}

const COLUMNS: [Column; 20] = [
    Column::Text("study", |r| r.study.clone()),
    Column::Text("load", |r| r.load.clone()),
    Column::Text("workload", |r| r.workload.clone()),
    Column::Text("variant", |r| r.variant.clone()),
    Column::Number("block", |r| r.block),
    Column::Number("attempt", |r| r.attempt),
    Column::Flag("counted", |r| r.counted),
    Column::Text("trial", |r| r.trial.clone()),
    Column::Number("order", |r| r.order),
    Column::Number("run", |r| r.run),
    Column::Number("sample", |r| r.sample),
    Column::Text("metric", |r| r.metric.name.clone()),
    Column::Text("unit", |r| r.metric.unit.0.clone()),
    Column::Text("better", |r| word(&r.metric.better)),
    Column::Text("kind", |r| word(&r.metric.kind)),
    Column::Float("value", |r| r.value),
    Column::Text("environment", |r| word(&r.environment)),
    Column::Text("tool", |r| r.source.tool.clone()),
    Column::Text("tool_version", |r| r.source.version.clone().unwrap_or_default()),
    Column::Float("started_unix_s", |r| r.started_unix_s),
];

/// The word that stands for an enum's value in JSON too.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn bytes(records: &[Record]) -> Result<Vec<u8>> {
    let fields = COLUMNS.iter().map(|column| {
        let (name, physical, logical) = match column {
            Column::Text(name, _) => (name, Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Column::Number(name, _) => (name, Physical::INT32, None),
            Column::Float(name, _) => (name, Physical::DOUBLE, None),
            Column::Flag(name, _) => (name, Physical::BOOLEAN, None),
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
    column: &Column,
    records: &[Record],
) -> Result<()> {
    let Some(mut writer) = group.next_column()? else { return Ok(()) };
    match column {
        Column::Text(_, take) => {
            let values: Vec<ByteArray> =
                records.iter().map(|record| take(record).into_bytes().into()).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        Column::Number(_, take) => {
            // Blocks, runs and samples stay far below 2^31.
            let values: Vec<i32> = records.iter().map(|record| take(record) as i32).collect();
            writer.typed::<Int32Type>().write_batch(&values, None, None)?;
        }
        Column::Float(_, take) => {
            let values: Vec<f64> = records.iter().map(take).collect();
            writer.typed::<DoubleType>().write_batch(&values, None, None)?;
        }
        Column::Flag(_, take) => {
            let values: Vec<bool> = records.iter().map(take).collect();
            writer.typed::<BoolType>().write_batch(&values, None, None)?;
        }
    }
    writer.close()
}
