//! What the core asks of those who read and fill, and what they answer.
//!
//! The hands (`shade-reads`, the daemon's workers, a simulation) import these words. What room and
//! records are is theirs: `R` stands for it (see [`Memory`](crate::Memory)).

use std::fmt;
use std::time::Duration;

use shade_formats::control::Output;
use shade_formats::index::Entry;
use shade_formats::ring::BatchLayout;
use shade_formats::{Draw, SampleId, ShardId, Size};

/// Why a record could not be read, or a row not be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What follows from it.
    pub kind: FaultKind,
    /// What went wrong, for people. The core adds sample, path, shard and offset.
    pub text: String,
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The record is bad: the job's `on_error` says what becomes of it.
    Record,
    /// The bytes are not those that were packed. A row that meets it has its record read once more.
    Checksum,
    /// The store or the whole dataset is in trouble: an error whatever `on_error` says.
    Store,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A record to read.
#[derive(Debug)]
pub struct ReadOp<R> {
    /// Which of the core's reads this is or belongs to; for the core alone.
    pub flight: u64,
    /// Whose record it is.
    pub sample: SampleId,
    /// The shard that holds it.
    pub shard: ShardId,
    /// Where in the shard, in bytes; a multiple of 512.
    pub offset: u64,
    /// Stored length in bytes.
    pub len: u32,
    /// CRC32C of the stored bytes.
    pub crc32c: u32,
    /// It came before and was wrong: compare the checksum on arrival, and if it is wrong again, the
    /// shard's file with what was packed.
    pub recheck: bool,
    /// Where the bytes go; at least `len`. Behind the record, up to the next multiple of 512,
    /// anything may be written.
    pub blocks: R,
}

/// A read that has ended. `F` is the reader's own kind of fault, until the core is told.
#[derive(Debug)]
pub struct Completion<R, F = Fault> {
    /// The read as submitted, with its blocks.
    pub op: ReadOp<R>,
    /// Whether the blocks hold what the store gave for the record; after a fault they hold
    /// anything.
    pub outcome: Result<(), F>,
    /// Whether the record's CRC32C was found to be right: that of neighbours is compared while they
    /// are copied apart. That of a record read straight into its blocks is left to the worker that
    /// fills its first row: in the thread that reads it took as long as all the rest.
    pub checked: bool,
    /// What the store took, from the first try to the end of the last.
    pub latency: Duration,
}

impl<R, F> Completion<R, F> {
    /// The same with its fault in the core's words.
    pub fn map_fault(self, fault: impl FnOnce(&F) -> Fault) -> Completion<R> {
        let Self { op, outcome, checked, latency } = self;
        Completion { op, outcome: outcome.map_err(|of_read| fault(&of_read)), checked, latency }
    }
}

/// Names a batch while it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The session whose ring it goes to.
    pub session: u32,
    /// Number of its descriptor.
    pub seq: u64,
}

/// One row of a batch.
#[derive(Debug)]
pub struct Row<R> {
    /// Place in the batch, from 0.
    pub position: u32,
    /// Whose record it is.
    pub sample: SampleId,
    /// What the index says of it. The core has looked it up, and another CPU would wait for that memory anew.
    pub entry: Entry,
    /// Byte in the payload segment where the row's bytes go.
    pub offset: u64,
    /// Bytes reserved there: those of [`row_bytes`](crate::row_bytes).
    pub len: u64,
    /// What decides which part of the image it is; of no matter for raw output.
    pub draw: Draw,
    /// Set by the worker: of an image in its own size; 0 x 0 where all have one size or the row is raw.
    pub size: Size,
    /// The record as it is stored. The worker gives it back and keeps no clone, so that the core can take the blocks out of
    /// the last one.
    pub record: R,
}

/// Fill these rows.
#[derive(Debug)]
pub struct FillOrder<R> {
    /// Their batch.
    pub ticket: Ticket,
    /// What to make of the records.
    pub output: Output,
    /// A part of the batch's rows.
    pub rows: Vec<Row<R>>,
}

/// A [`FillOrder`], done. `F` is the worker's own kind of fault, until the core is told.
#[derive(Debug)]
pub struct Filled<R, F = Fault> {
    /// The batch.
    pub ticket: Ticket,
    /// Every row of the order, in its order. They hold what was asked for, but for those with a fault: what these hold is
    /// unspecified.
    pub rows: Vec<Row<R>>,
    /// What is wrong with which of `rows`, by ascending position in them. By itself, as next to no row has one, and rows are
    /// handed back and forth by the million a second.
    pub faults: Vec<(usize, F)>,
    /// Time a worker spent on it.
    pub fill_ns: u64,
}

impl<R, F> Filled<R, F> {
    /// The same with its faults in the core's words.
    pub fn map_fault(self, fault: impl Fn(&F) -> Fault) -> Filled<R> {
        let Self { ticket, rows, faults, fill_ns } = self;
        let faults = faults.into_iter().map(|(at, of_row)| (at, fault(&of_row))).collect();
        Filled { ticket, rows, faults, fill_ns }
    }
}

/// Complete a batch whose rows are all filled or given up.
#[derive(Debug)]
pub struct SealOrder {
    /// The batch.
    pub ticket: Ticket,
    /// Byte in the payload segment where the batch's block begins.
    pub block_offset: u64,
    /// Where in the block its columns lie.
    pub layout: BatchLayout,
    /// What to write there.
    pub columns: Columns,
    /// Done before, one after the other.
    pub moves: Vec<Move>,
}

/// The columns of a batch, a value for each delivered row; at most the layout's capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// Sample ids.
    pub ids: Vec<i64>,
    /// Class labels.
    pub labels: Vec<i64>,
    /// Loss weights.
    pub weights: Vec<f32>,
    /// `FLAG_SUBSTITUTED` and `FLAG_PADDING` of [`shade_formats::ring`].
    pub flags: Vec<u32>,
    /// Where each row's bytes begin, from the start of the data; empty unless the layout has such a column, as those that follow.
    pub offsets: Vec<u64>,
    /// How many bytes each row has.
    pub lens: Vec<u64>,
    /// Rows of pixels of each image.
    pub heights: Vec<u32>,
    /// Columns of pixels of each image.
    pub widths: Vec<u32>,
}

/// Bytes to move down in the payload, to close the gap that a row left which is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte now, in the payload segment.
    pub from: u64,
    /// First byte then; may overlap.
    pub to: u64,
    /// How many.
    pub len: u64,
}
