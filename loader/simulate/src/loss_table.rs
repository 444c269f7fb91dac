//! Recorded losses as a CSV file: columns `sample`, `loss` and, for several epochs, `epoch`, rows
//! in any order.
#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::Path;

use csv::{Reader, StringRecord};
use shade_dataset::regular;
use shade_formats::SampleId;

use crate::error::SimulateError;

const SAMPLE: &str = "sample";
const LOSS: &str = "loss";
const EPOCH: &str = "epoch";

/// The losses of a table by epoch, sorted by sample. At least one epoch has rows.
#[derive(Debug)]
pub(super) struct LossTable {
    epochs: BTreeMap<u32, Vec<(SampleId, f32)>>,
}

impl LossTable {
    /// Reads the losses of samples below `samples`. A sample with several losses in an epoch has
    /// their mean. An empty cell and NaN are no loss.
    ///
    /// # Errors
    /// The file cannot be read, has no such columns, or a cell cannot be used.
    pub(super) fn read(path: &Path, samples: u32) -> Result<Self, SimulateError> {
        let file = regular::open_to_read_once(path).map_err(|error| SimulateError::read(path, error))?;
        let mut rows = Reader::from_reader(file);
        let head = rows.headers().map_err(|error| unreadable(path, &error))?;
        let columns = Columns::find(head).map_err(|what| SimulateError::line(path, 1, what))?;
        let mut epochs: BTreeMap<u32, Vec<(SampleId, f32)>> = BTreeMap::new();
        let mut row = StringRecord::new();
        while rows.read_record(&mut row).map_err(|error| unreadable(path, &error))? {
            let line = row.position().map_or(0, csv::Position::line);
            let (epoch, id, loss) =
                columns.read(&row, samples).map_err(|what| SimulateError::line(path, line, what))?;
            let losses = epochs.entry(epoch).or_default();
            losses.extend(loss.map(|loss| (id, loss)));
        }
        if epochs.is_empty() {
            let what = "there is no loss in it".to_owned();
            return Err(SimulateError::File { path: path.to_owned(), what });
        }
        epochs.values_mut().for_each(take_means);
        Ok(Self { epochs })
    }

    /// The epoch whose losses are used in `epoch`: itself, or the last one before it that has rows,
    /// or the first.
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

/// One loss for each sample, in the order of their ids.
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

/// Where the columns are.
struct Columns {
    sample: usize,
    loss: usize,
    epoch: Option<usize>,
}

impl Columns {
    fn find(head: &StringRecord) -> Result<Self, String> {
        let find = |name: &str| head.iter().position(|column| column.trim() == name);
        let need = |name: &str| {
            let found = head.iter().collect::<Vec<_>>().join(", ");
            find(name)
                .ok_or_else(|| format!("no column {name}: it has {found:?}, but needs {SAMPLE} and {LOSS}"))
        };
        Ok(Self { sample: need(SAMPLE)?, loss: need(LOSS)?, epoch: find(EPOCH) })
    }

    /// Epoch (0 without such a column), sample and loss of a row.
    fn read(&self, row: &StringRecord, samples: u32) -> Result<(u32, SampleId, Option<f32>), String> {
        let cell = |at: usize| row.get(at).unwrap_or_default().trim();
        let number = |at: usize, name: &str, expected: &str| {
            let got = cell(at);
            got.parse::<u32>().map_err(|_| format!("column {name}: {got:?} is not {expected}"))
        };
        let id = number(self.sample, SAMPLE, "a sample id")?;
        if id >= samples {
            return Err(format!("column {SAMPLE}: sample {id}, but there are {samples} samples"));
        }
        let epoch = self.epoch.map_or(Ok(0), |at| number(at, EPOCH, "an epoch from 0 on"))?;
        let loss = match cell(self.loss) {
            "" => None,
            text => {
                Some(text.parse::<f32>().map_err(|_| format!("column {LOSS}: {text:?} is not a number"))?)
            }
        };
        Ok((epoch, SampleId(id), loss.filter(|loss| !loss.is_nan())))
    }
}

fn unreadable(path: &Path, error: &csv::Error) -> SimulateError {
    let line = error.position().map_or(1, csv::Position::line);
    SimulateError::line(path, line, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &[u8]) -> Result<LossTable, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        LossTable::read(file.path(), 4)
            .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "l.csv"))
    }

    fn losses(table: &LossTable, epoch: u32) -> Vec<Option<f32>> {
        let mut losses = Vec::new();
        table.read_epoch(table.epoch_for(epoch), 4, &mut losses);
        losses.into_iter().map(|loss| Some(loss).filter(|loss| !loss.is_nan())).collect()
    }

    #[test]
    fn rows_come_in_any_order_and_some_are_missing() {
        let text = b"loss,other, sample ,epoch\r\n0.5,x,3,2\r\ninf,,0,5\r\n1.5,,0,2\r\n1,,1,5\r\n,,1,2\r\n\
            2,,1,5\r\nNaN,,2,2\r\n6,,1,5\r\n,,0,7\r\n";
        let table = table(text).unwrap();
        let second = [Some(1.5), None, None, Some(0.5)];
        // Before the first epoch, and between two.
        [0, 2, 4].iter().for_each(|epoch| assert_eq!(losses(&table, *epoch), second, "{epoch}"));
        assert_eq!(losses(&table, 6), [Some(f32::INFINITY), Some(3.0), None, None]);
        assert_eq!(losses(&table, 9), [None; 4], "an epoch of empty cells has no losses");
    }

    #[test]
    fn without_epochs_all_are_the_same() {
        let table = table(b"sample,loss\n2,2\n1,1e0\n").unwrap();
        [0, 3].iter().for_each(|at| assert_eq!(losses(&table, *at), [None, Some(1.0), Some(2.0), None]));
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, expected) in [
            (b"sample,loss\n3,1\n4,1\n".as_slice(), "l.csv line 3: column sample: sample 4, but there are 4"),
            (b"sample,loss\n-1,1\n", "l.csv line 2: column sample: \"-1\" is not a sample id"),
            (b"sample,loss,epoch\n1,1,-1\n", "l.csv line 2: column epoch: \"-1\" is not an epoch"),
            (b"sample,loss\n1,low\n", "l.csv line 2: column loss: \"low\" is not a number"),
            (b"sample,loss\n", "l.csv: there is no loss in it"),
            (b"id,loss\n1,1\n", "l.csv line 1: no column sample: it has \"id, loss\""),
            (b"sample,loss_mean\n1,1\n", "l.csv line 1: no column loss"),
            (b"", "l.csv line 1: no column sample"),
            (b"sample,loss\n1,1,1\n", "l.csv line 2: CSV error"),
            (b"sample,loss\n1,\xff\n", "l.csv line 2: CSV parse error"),
        ] {
            let found = table(text).unwrap_err();
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
