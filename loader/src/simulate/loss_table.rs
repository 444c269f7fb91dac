//! Recorded losses as a Parquet table: columns `sample`, `loss` and, if there is one, `epoch`, rows in any order.

use std::collections::BTreeMap;
use std::fs::File;
use std::panic::catch_unwind;
use std::path::Path;

use parquet::basic::{Compression, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::SchemaDescriptor;
use shade_formats::SampleId;

use super::error::SimulateError;

/// What a Parquet file begins and ends with.
pub(super) const MAGIC: &[u8] = b"PAR1";
const SAMPLE: &str = "sample";
const LOSS: &str = "loss";
const EPOCH: &str = "epoch";
/// Values taken out of a column at a time.
const VALUES: usize = 1 << 16;

/// The losses of a table, those of each epoch by sample. At least one epoch has some.
#[derive(Debug)]
pub(super) struct LossTable {
    epochs: BTreeMap<u32, Vec<(SampleId, f32)>>,
}

impl LossTable {
    /// Reads a table of losses of samples below `samples`. Of a sample with several losses in an epoch the mean counts; no
    /// value and NaN are no loss.
    ///
    /// # Errors
    /// The file cannot be read, or is no such table.
    pub(super) fn read(path: &Path, samples: u32) -> Result<Self, SimulateError> {
        // The crate panics on some damaged pages. Nothing is shared with what it was doing then.
        catch_unwind(|| Self::read_rows(path, samples)).unwrap_or_else(|_| {
            Err(SimulateError::File { path: path.to_owned(), what: "the Parquet file is damaged".to_owned() })
        })
    }

    fn read_rows(path: &Path, samples: u32) -> Result<Self, SimulateError> {
        let refuse = |what| SimulateError::File { path: path.to_owned(), what };
        let file =
            File::open(path).map_err(|source| SimulateError::Read { path: path.to_owned(), source })?;
        let reader = SerializedFileReader::new(file)
            .map_err(|error| refuse(format!("no Parquet file that can be read: {error}")))?;
        let metadata = reader.metadata();
        let columns = Columns::find(metadata.file_metadata().schema_descr()).map_err(refuse)?;
        let mut epochs: BTreeMap<u32, Vec<(SampleId, f32)>> = BTreeMap::new();
        let mut row = 0u64;
        for group in 0..metadata.num_row_groups() {
            let group = reader.get_row_group(group).map_err(|error| refuse(error.to_string()))?;
            let rows = columns.read(&*group).map_err(refuse)?;
            for (sample, epoch, loss) in rows {
                let outside = |column: &str, got: Option<i64>, expected: String| {
                    let got = got.map_or_else(|| "nothing".to_owned(), |got| got.to_string());
                    refuse(format!("column {column}: row {row} (from 0) has {got}, but must have {expected}"))
                };
                let id = sample.and_then(|id| u32::try_from(id).ok()).filter(|id| *id < samples);
                let id = id.ok_or_else(|| outside(SAMPLE, sample, format!("a sample id below {samples}")))?;
                let of = epoch.and_then(|epoch| u32::try_from(epoch).ok());
                let of = of.ok_or_else(|| outside(EPOCH, epoch, "an epoch from 0 on".to_owned()))?;
                if let Some(loss) = loss.filter(|loss| !loss.is_nan()) {
                    epochs.entry(of).or_default().push((SampleId(id), loss));
                }
                row += 1;
            }
        }
        if epochs.is_empty() {
            return Err(refuse("there is no loss in it".to_owned()));
        }
        epochs.values_mut().for_each(take_means);
        Ok(Self { epochs })
    }

    /// Whose losses are used in `epoch`: its own, or those of the last epoch before it that has some, or the first.
    pub(super) fn epoch_for(&self, epoch: u32) -> u32 {
        let before = self.epochs.range(..=epoch).next_back();
        before.or_else(|| self.epochs.first_key_value()).map_or(0, |(epoch, _)| *epoch)
    }

    /// Replaces `losses` by those of `samples` samples in `epoch`, NaN where there is none.
    pub(super) fn read_epoch(&self, epoch: u32, samples: u32, losses: &mut Vec<f32>) {
        losses.clear();
        losses.resize(samples as usize, f32::NAN);
        for (id, loss) in self.epochs.get(&epoch).into_iter().flatten() {
            if let Some(slot) = losses.get_mut(id.index()) {
                *slot = *loss;
            }
        }
    }
}

/// One loss of each sample, in the order of their ids.
#[expect(clippy::cast_possible_truncation, reason = "losses are f32")]
fn take_means(losses: &mut Vec<(SampleId, f32)>) {
    losses.sort_by_key(|(id, _)| *id);
    *losses = losses
        .chunk_by(|left, right| left.0 == right.0)
        .filter_map(|same| {
            let mean = same.iter().map(|(_, loss)| f64::from(*loss)).sum::<f64>() / same.len() as f64;
            Some((same.first()?.0, mean as f32))
        })
        .collect();
}

/// Where the columns are, and how.
struct Columns {
    sample: Integers,
    loss: Floats,
    epoch: Option<Integers>,
}

struct Integers {
    column: Column,
    is_unsigned: bool,
}

struct Floats(Column);

struct Column {
    name: &'static str,
    at: usize,
    /// Rows may have no value: those whose level is below it.
    level: i16,
}

/// Sample, epoch (0 without such a column) and loss of a row.
type Row = (Option<i64>, Option<i64>, Option<f32>);

impl Columns {
    fn find(schema: &SchemaDescriptor) -> Result<Self, String> {
        let sample = Integers::find(schema, SAMPLE)?;
        let loss = Floats::find(schema, LOSS)?;
        let names = || schema.columns().iter().map(|column| column.path().string()).collect::<Vec<_>>();
        let missing = |name| {
            format!("no column {name}: it has {:?}, but needs {SAMPLE} and {LOSS}", names().join(", "))
        };
        Ok(Self {
            sample: sample.ok_or_else(|| missing(SAMPLE))?,
            loss: loss.ok_or_else(|| missing(LOSS))?,
            epoch: Integers::find(schema, EPOCH)?,
        })
    }

    fn read(&self, group: &dyn RowGroupReader) -> Result<Vec<Row>, String> {
        let samples = self.sample.read(group)?;
        let losses = self.loss.read(group)?;
        let epochs = match &self.epoch {
            Some(epoch) => epoch.read(group)?,
            None => vec![Some(0); samples.len()],
        };
        if samples.len() != losses.len() || samples.len() != epochs.len() {
            return Err("its columns differ in length".to_owned());
        }
        Ok(samples.into_iter().zip(epochs).zip(losses).map(|((id, epoch), loss)| (id, epoch, loss)).collect())
    }
}

impl Column {
    /// A column that has one value a row, or none.
    fn find(schema: &SchemaDescriptor, name: &'static str) -> Result<Option<(Self, Type)>, String> {
        for (at, column) in schema.columns().iter().enumerate() {
            if column.path().parts().first().map(String::as_str) != Some(name) {
                continue;
            }
            if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
                return Err(format!("column {name}: it has lists or fields, but must have numbers"));
            }
            let level = column.max_def_level();
            return Ok(Some((Self { name, at, level }, column.physical_type())));
        }
        Ok(None)
    }

    fn open(&self, group: &dyn RowGroupReader) -> Result<ColumnReader, String> {
        let metadata: &RowGroupMetaData = group.metadata();
        let compression = metadata.columns().get(self.at).map(|column| column.compression());
        match compression {
            Some(Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)) => {}
            _ => {
                let name = self.name;
                let how = "write the file with compression snappy, zstd or none";
                return Err(format!(
                    "column {name}: it is compressed otherwise than can be read here; {how}"
                ));
            }
        }
        group.get_column_reader(self.at).map_err(|error| self.unreadable(&error))
    }

    /// All values of a row group, each as `value` has it.
    fn values<T: DataType, V>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        value: impl Fn(T::T) -> V,
    ) -> Result<Vec<Option<V>>, String> {
        let (mut all, mut levels, mut values) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            levels.clear();
            values.clear();
            let levels_wanted = (self.level > 0).then_some(&mut levels);
            let (rows, _, _) = reader
                .read_records(VALUES, levels_wanted, None, &mut values)
                .map_err(|error| self.unreadable(&error))?;
            if rows == 0 {
                return Ok(all);
            }
            let mut values = values.drain(..);
            if self.level > 0 {
                let level = self.level;
                all.extend(
                    levels.iter().map(|of| if *of < level { None } else { values.next().map(&value) }),
                );
            } else {
                all.extend(values.map(|found| Some(value(found))));
            }
        }
    }

    fn unreadable(&self, error: &ParquetError) -> String {
        format!("column {}: it cannot be read: {error}", self.name)
    }
}

impl Integers {
    fn find(schema: &SchemaDescriptor, name: &'static str) -> Result<Option<Self>, String> {
        let Some((column, found)) = Column::find(schema, name)? else { return Ok(None) };
        let kind = schema.column(column.at).logical_type_ref().cloned();
        let is_unsigned = match (&kind, found) {
            (None, Type::INT32 | Type::INT64) => false,
            (Some(LogicalType::Integer(integer)), Type::INT32 | Type::INT64) => !integer.is_signed,
            _ => return Err(format!("column {name}: it has {}, but must have integers", said(found, kind))),
        };
        Ok(Some(Self { column, is_unsigned }))
    }

    /// The values of a row group; those beyond `i64` are negative, and so none that may be here.
    fn read(&self, group: &dyn RowGroupReader) -> Result<Vec<Option<i64>>, String> {
        let is_unsigned = self.is_unsigned;
        match self.column.open(group)? {
            ColumnReader::Int32ColumnReader(reader) => self.column.values(reader, |value| {
                if is_unsigned { i64::from(value.cast_unsigned()) } else { i64::from(value) }
            }),
            ColumnReader::Int64ColumnReader(reader) => self.column.values(reader, |value| value),
            _ => Err(format!("column {}: its row groups differ in kind", self.column.name)),
        }
    }
}

impl Floats {
    fn find(schema: &SchemaDescriptor, name: &'static str) -> Result<Option<Self>, String> {
        match Column::find(schema, name)? {
            None => Ok(None),
            Some((column, Type::FLOAT | Type::DOUBLE)) => Ok(Some(Self(column))),
            Some((column, found)) => {
                let kind = schema.column(column.at).logical_type_ref().cloned();
                Err(format!("column {name}: it has {}, but must have floats or doubles", said(found, kind)))
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "losses are f32, as they are reported")]
    fn read(&self, group: &dyn RowGroupReader) -> Result<Vec<Option<f32>>, String> {
        match self.0.open(group)? {
            ColumnReader::FloatColumnReader(reader) => self.0.values(reader, |value| value),
            ColumnReader::DoubleColumnReader(reader) => self.0.values(reader, |value| value as f32),
            _ => Err(format!("column {}: its row groups differ in kind", self.0.name)),
        }
    }
}

/// A type in words.
fn said(found: Type, kind: Option<LogicalType>) -> String {
    kind.map_or_else(|| found.to_string(), |kind| format!("{kind:?} ({found})"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;

    use super::*;

    type WriteGroup = dyn Fn(&mut SerializedRowGroupWriter<'_, File>);

    /// A file of one row group for each of `groups`, which write its columns.
    fn table(schema: &str, compression: Compression, groups: &[&WriteGroup]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let schema = Arc::new(parse_message_type(&format!("message t {{ {schema} }}")).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let mut writer = SerializedFileWriter::new(file.reopen().unwrap(), schema, properties).unwrap();
        for write in groups {
            let mut group = writer.next_row_group().unwrap();
            write(&mut group);
            group.close().unwrap();
        }
        writer.close().unwrap();
        file
    }

    fn column<T: DataType>(
        group: &mut SerializedRowGroupWriter<'_, File>,
        values: &[T::T],
        levels: Option<&[i16]>,
    ) {
        let mut writer = group.next_column().unwrap().unwrap();
        writer.typed::<T>().write_batch(values, levels, None).unwrap();
        writer.close().unwrap();
    }

    fn losses(table: &LossTable, epoch: u32) -> Vec<Option<f32>> {
        let mut losses = Vec::new();
        table.read_epoch(table.epoch_for(epoch), 4, &mut losses);
        losses.into_iter().map(|loss| Some(loss).filter(|loss| !loss.is_nan())).collect()
    }

    fn refusal(file: &tempfile::NamedTempFile) -> String {
        let error = LossTable::read(file.path(), 4).unwrap_err().to_string();
        error.replace(&file.path().display().to_string(), "l.parquet")
    }

    #[test]
    fn rows_come_in_any_order_and_some_are_missing() {
        let schema =
            "required int64 sample; optional double loss; required int32 epoch (INTEGER(16, false));";
        for compression in
            [Compression::SNAPPY, Compression::ZSTD(Default::default()), Compression::UNCOMPRESSED]
        {
            let file = table(
                schema,
                compression,
                &[
                    &|group| {
                        column::<Int64Type>(group, &[3, 0, 1, 2], None);
                        column::<DoubleType>(group, &[0.5, 1.5, f64::NAN], Some(&[1, 1, 0, 1]));
                        column::<Int32Type>(group, &[2, 2, 2, 2], None);
                    },
                    &|group| {
                        column::<Int64Type>(group, &[0, 1, 1, 1], None);
                        column::<DoubleType>(group, &[f64::INFINITY, 1.0, 2.0, 6.0], Some(&[1, 1, 1, 1]));
                        column::<Int32Type>(group, &[5, 5, 5, 5], None);
                    },
                ],
            );
            let table = LossTable::read(file.path(), 4).unwrap();
            let second = [Some(1.5), None, None, Some(0.5)];
            // Before the first epoch, and between two.
            [0, 2, 4].iter().for_each(|epoch| assert_eq!(losses(&table, *epoch), second, "{epoch}"));
            assert_eq!(losses(&table, 9), [Some(f32::INFINITY), Some(3.0), None, None]);
        }
    }

    #[test]
    fn without_epochs_all_are_the_same() {
        let schema = "required float loss; required int32 sample (INTEGER(32, false)); required int64 other;";
        let file = table(
            schema,
            Compression::SNAPPY,
            &[&|group| {
                column::<FloatType>(group, &[1.0, 2.0], None);
                column::<Int32Type>(group, &[1, 2], None);
                column::<Int64Type>(group, &[7, 7], None);
            }],
        );
        let table = LossTable::read(file.path(), 4).unwrap();
        [0, 3]
            .iter()
            .for_each(|epoch| assert_eq!(losses(&table, *epoch), [None, Some(1.0), Some(2.0), None]));
    }

    #[test]
    fn errors_name_the_column() {
        let group = |ids: &'static [i64]| {
            move |group: &mut SerializedRowGroupWriter<'_, File>| {
                column::<Int64Type>(group, ids, None);
                column::<FloatType>(group, &vec![1.0; ids.len()], None);
            }
        };
        let schema = "required int64 sample; required float loss;";
        let file = |ids| table(schema, Compression::SNAPPY, &[&group(ids)]);
        for (found, expected) in [
            (
                refusal(&file(&[3, 4])),
                "l.parquet: column sample: row 1 (from 0) has 4, but must have a sample id below 4",
            ),
            (refusal(&file(&[-1])), "l.parquet: column sample: row 0 (from 0) has -1, but must have"),
            (refusal(&file(&[])), "l.parquet: there is no loss in it"),
            (
                refusal(&table(
                    "required int64 id; required float loss;",
                    Compression::SNAPPY,
                    &[&group(&[1])],
                )),
                "l.parquet: no column sample: it has \"id, loss\"",
            ),
            (
                refusal(&table(
                    "required int64 sample; required float loss_mean;",
                    Compression::SNAPPY,
                    &[&group(&[1])],
                )),
                "l.parquet: no column loss:",
            ),
        ] {
            assert!(found.starts_with(expected), "{found}");
        }
        let text = table(
            "required binary sample (STRING); required float loss;",
            Compression::SNAPPY,
            &[&|group| {
                column::<ByteArrayType>(group, &[ByteArray::from("a")], None);
                column::<FloatType>(group, &[1.0], None);
            }],
        );
        assert!(refusal(&text).starts_with("l.parquet: column sample: it has"), "{}", refusal(&text));
        let list = "required int64 sample; repeated float loss;";
        let list = table(list, Compression::SNAPPY, &[]);
        assert!(refusal(&list).starts_with("l.parquet: column loss: it has lists"), "{}", refusal(&list));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let schema = "required int64 sample; required float loss;";
        let file = table(
            schema,
            Compression::SNAPPY,
            &[&|group| {
                column::<Int64Type>(group, &[0, 1, 2, 3], None);
                column::<FloatType>(group, &[1.0, 2.0, 3.0, 4.0], None);
            }],
        );
        let bytes = std::fs::read(file.path()).unwrap();
        for len in 0..bytes.len() {
            std::fs::write(file.path(), &bytes[..len]).unwrap();
            assert!(LossTable::read(file.path(), 4).is_err(), "cut at {len}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x55;
            std::fs::write(file.path(), &bytes).unwrap();
            // What it says then may be wrong, but it is said, or an error.
            let _ = LossTable::read(file.path(), 4);
        }
    }
}
