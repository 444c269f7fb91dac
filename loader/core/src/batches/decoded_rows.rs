//! Rows that were decoded for one job of a group, kept for the others for a while.
//!
//! Jobs of a group with equal outputs make the same row of a use ([`DrawnRow::of_use`]). The first
//! one to have the record at hand has it decoded. A row of another job that comes meanwhile waits
//! for the worker, and for no trainer. One that comes later is copied, or decoded again once the
//! window has lost it: a job that lags behind costs the others nothing. The window's limit is the
//! setting `decode_once`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shade_formats::limits::JOBS_MAX;
use shade_formats::{DrawnRow, EpochDraws, SampleId};
use shade_job::Output;

use crate::ids::JobId;
use crate::orders::{DecodedRow, FillRow, Pixels, Ticket};
use crate::training::{Job, Jobs};

/// Outputs that are remembered: for each job its own in two epochs. One that comes again after it
/// was forgotten is decoded again.
const OUTPUTS_MAX: usize = 2 * JOBS_MAX as usize;

/// What two rows have in common if they are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Number of the output.
    output: u32,
    /// The record: not always the one of the row, as a bad one is substituted.
    sample: SampleId,
    drawn: DrawnRow,
}

/// One row of the window.
enum State<R> {
    /// A worker decodes it. These rows wait for that.
    Decoding(Vec<(Ticket, FillRow<R>)>),
    Decoded(Arc<DecodedRow>),
}

/// The window. `R` is a record in a worker's hands.
pub(super) struct DecodedRows<R> {
    limit_bytes: u64,
    used_bytes: u64,
    rows: HashMap<Key, State<R>>,
    /// The decoded ones, with their lengths, the oldest first: it leaves first.
    decoded: VecDeque<(Key, u64)>,
    /// The outputs of the rows in each epoch, with their numbers, the oldest first. A number is
    /// never used again: a worker may still have a row of it.
    outputs: VecDeque<(u32, EpochDraws, Arc<Output>)>,
    outputs_ever: u32,
    /// Whether jobs have rows in common: else none is kept.
    is_shared: bool,
}

impl<R> DecodedRows<R> {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
            rows: HashMap::new(),
            decoded: VecDeque::new(),
            outputs: VecDeque::new(),
            outputs_ever: 0,
            is_shared: false,
        }
    }

    /// Bytes of the decoded rows.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The number of the output of the job's rows in an epoch, if another job has the same rows.
    pub(super) fn output_of(&mut self, job: JobId, epoch: u32, jobs: &Jobs) -> Option<u32> {
        let job = jobs.get(job)?;
        if self.limit_bytes == 0 || !jobs.iter().any(|other| makes_rows_of(job, other)) {
            return None;
        }
        self.is_shared = true;
        let draws = job.draws(epoch);
        // Called for each row: an output takes kilobytes, so none is copied.
        let mut known = self.outputs.iter();
        if let Some(&(number, ..)) = known.find(|(_, of, output)| *of == draws && output == job.output()) {
            return Some(number);
        }
        let number = self.outputs_ever;
        self.outputs_ever = number.checked_add(1)?;
        self.outputs.push_back((number, draws, Arc::clone(job.output())));
        if self.outputs.len() > OUTPUTS_MAX {
            self.outputs.pop_front();
        }
        Some(number)
    }

    /// Whether there are no rows, and none is being decoded.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether a row is decoded, or a worker is decoding it.
    pub(super) fn has(&self, output: u32, sample: SampleId, drawn: DrawnRow) -> bool {
        self.rows.contains_key(&Key { output, sample, drawn })
    }

    /// Says of each row where its pixels come from. Keeps those that wait for a worker that decodes
    /// the same row. One that has neither record nor pixels needs its record after all.
    pub(super) fn assign(&mut self, output: u32, ticket: Ticket, rows: &mut Vec<FillRow<R>>) {
        for mut row in std::mem::take(rows) {
            // A row that has waited has its pixels, whatever has become of the window.
            if matches!(row.pixels, Pixels::Own) {
                let key = Key { output, sample: row.sample, drawn: row.drawn };
                match self.rows.get_mut(&key) {
                    Some(State::Decoding(waiting)) => {
                        waiting.push((ticket, row));
                        continue;
                    }
                    Some(State::Decoded(decoded)) => {
                        row.pixels = Pixels::Decoded { output, row: Arc::clone(decoded) };
                    }
                    // What it was to have is lost.
                    None if row.record.is_none() => {}
                    None => {
                        self.rows.insert(key, State::Decoding(Vec::new()));
                        row.pixels = Pixels::Wanted { output };
                    }
                }
            }
            rows.push(row);
        }
    }

    /// A worker has given the row back. Returns the rows that have waited for it: with their
    /// pixels, or without if it could not be decoded.
    pub(super) fn came_back(&mut self, row: &FillRow<R>) -> Vec<(Ticket, FillRow<R>)> {
        let (output, decoded) = match &row.pixels {
            Pixels::Own => return Vec::new(),
            Pixels::Wanted { output } => (*output, None),
            Pixels::Decoded { output, row } => (*output, Some(row)),
        };
        let key = Key { output, sample: row.sample, drawn: row.drawn };
        let Some(State::Decoding(waiting)) = self.rows.get_mut(&key) else { return Vec::new() };
        let mut waiting = std::mem::take(waiting);
        match decoded {
            Some(decoded) => {
                for (_, row) in &mut waiting {
                    row.pixels = Pixels::Decoded { output, row: Arc::clone(decoded) };
                }
                self.rows.insert(key, State::Decoded(Arc::clone(decoded)));
                self.decoded.push_back((key, row.len));
                self.used_bytes += row.len;
                self.shrink_to(if self.is_shared { self.limit_bytes } else { 0 });
            }
            None => {
                self.rows.remove(&key);
            }
        }
        waiting
    }

    /// Drops all decoded rows if no two jobs have rows in common any more.
    pub(super) fn job_ended(&mut self, jobs: &Jobs) {
        if !jobs.iter().any(|job| jobs.iter().any(|other| makes_rows_of(job, other))) {
            self.is_shared = false;
            self.shrink_to(0);
            if self.rows.is_empty() {
                self.outputs.clear();
            }
        }
    }

    fn shrink_to(&mut self, bytes: u64) {
        while self.used_bytes > bytes {
            let Some((key, len)) = self.decoded.pop_front() else { break };
            self.rows.remove(&key);
            self.used_bytes -= len;
        }
    }
}

/// Whether `other` makes the same rows as `job`.
fn makes_rows_of(job: &Job, other: &Job) -> bool {
    // Kept pixels have no fields with them: a row that has some is made of its record.
    let is_decoded = **job.output() != Output::Raw && job.fields().is_empty() && other.fields().is_empty();
    let is_in_group = job.spec().plan.group != 0 && other.spec().plan.group == job.spec().plan.group;
    other.id() != job.id() && is_decoded && is_in_group && other.output() == job.output()
}
