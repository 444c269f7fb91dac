//! What each rank was given, row by row, and when.

use std::time::{Duration, Instant};

use shade_client::Field;
use shade_formats::checksum::crc32c_append;
use shade_tests::Taken;

/// One batch of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) epoch: u32,
    pub(crate) number: u32,
    /// For each row a checksum of all that was delivered of it.
    pub(crate) rows: Vec<u32>,
    /// When it came, and how many successors the rank had then.
    pub(crate) at: Instant,
    pub(crate) successors: u32,
}

/// All batches of a rank, in order.
pub(crate) type Ledger = Vec<Mark>;

/// Checksums of the rows: ids, labels, loss weights, flags, records or pixels of all views, fields.
/// What was a hit is not in it: a successor's cache begins empty.
pub(crate) fn rows(taken: &Taken, fields: &[Vec<Field>]) -> Vec<u32> {
    let count = taken.ids.len();
    let part = |bytes: &'_ [u8], row: usize| {
        let len = bytes.len() / count;
        bytes[row * len..][..len].to_vec()
    };
    let row = |row: usize| {
        let mut sum = crc32c_append(0, &taken.ids[row].to_le_bytes());
        sum = crc32c_append(sum, &taken.labels[row].to_le_bytes());
        sum = crc32c_append(sum, &taken.weights[row].to_le_bytes());
        sum = crc32c_append(sum, &taken.flags[row].to_le_bytes());
        sum = crc32c_append(sum, taken.records.get(row).map_or(&[][..], Vec::as_slice));
        sum = crc32c_append(sum, &part(&taken.pixels, row));
        for view in &taken.later_views {
            sum = crc32c_append(sum, &part(view, row));
        }
        for field in fields.get(row).into_iter().flatten() {
            sum = crc32c_append(sum, field.name.as_bytes());
            sum = crc32c_append(sum, &field.bytes);
        }
        sum
    };
    (0..count).map(row).collect()
}

/// Rows of `ledger` that were compared with `expected`, and those that differ, are missing, or are
/// too many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) rows: usize,
    pub(crate) wrong: usize,
}

pub(crate) fn compare(ledger: &[Mark], expected: &[Mark]) -> Compared {
    let mut compared = Compared::default();
    for at in 0..ledger.len().max(expected.len()) {
        let (got, right) = (ledger.get(at), expected.get(at));
        let rows = |mark: Option<&Mark>| mark.map_or(0, |mark| mark.rows.len());
        let count = rows(got).max(rows(right));
        compared.rows += count;
        compared.wrong += match (got, right) {
            (Some(got), Some(right)) if (got.epoch, got.number) == (right.epoch, right.number) => {
                (0..count).filter(|&row| got.rows.get(row) != right.rows.get(row)).count()
            }
            _ => count,
        };
    }
    compared
}

/// Between the last batch before a death and the first one after it, of any of the ledgers of a
/// loop: it goes through them in turn.
pub(crate) fn stalls(ledgers: &[&Ledger]) -> Vec<Duration> {
    let mut batches: Vec<(Instant, usize, u32)> = Vec::new();
    for (ledger, marks) in ledgers.iter().enumerate() {
        batches.extend(marks.iter().map(|mark| (mark.at, ledger, mark.successors)));
    }
    batches.sort_unstable();
    let mut successors = vec![0; ledgers.len()];
    let mut stalls = Vec::new();
    for pair in batches.windows(2) {
        let [(before, first, had), (at, ledger, has)] = *pair else { continue };
        successors[first] = had;
        if has > successors[ledger] {
            stalls.push(at - before);
        }
        successors[ledger] = has;
    }
    stalls
}
