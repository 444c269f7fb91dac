//! What the core orders from readers and workers, and what they answer.
//!
//! `shade-reads`, the daemon's workers and a simulation import these types. `R` is their type of a
//! record or of the room for one (see [`Memory`](crate::Memory)).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use shade_formats::index::Entry;
use shade_formats::ring::BatchLayout;
use shade_formats::{DrawnRow, EpochDraws, Geometry, SampleId, ShardId, Size};
use shade_job::Output;

use crate::batch_fields::BatchFields;

/// Why a record could not be read, or a row not be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What becomes of the row.
    pub kind: FaultKind,
    /// What went wrong, for people. The core adds sample, path, shard and offset.
    pub text: String,
}

/// What becomes of a row with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The record is bad: the job's `on_error` decides.
    Record,
    /// The bytes are not those that were packed: the record is read once more.
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
    /// The number of the read, for the core alone. Neighbours read together have the same.
    pub flight: u64,
    /// The sample.
    pub sample: SampleId,
    /// The shard that holds its record.
    pub shard: ShardId,
    /// Byte of the shard at which it begins; a multiple of 512.
    pub offset: u64,
    /// Stored length in bytes.
    pub len: u32,
    /// CRC32C of the stored bytes, if it is known.
    pub crc32c: Option<u32>,
    /// The record was read before with a wrong checksum: compare it on arrival. If it is wrong
    /// again, compare the shard's file with what was packed.
    pub recheck: bool,
    /// Room for at least `len` bytes. Behind the record, up to the next multiple of 512, anything
    /// may be written.
    pub blocks: R,
}

/// A read that has ended. `F` is the reader's own type of fault, until the core is told.
#[derive(Debug)]
pub struct Completion<R, F = Fault> {
    /// The read as submitted, with its blocks.
    pub op: ReadOp<R>,
    /// Whether the blocks hold the record's bytes. After a fault they hold anything.
    pub outcome: Result<(), F>,
    /// Whether the record's CRC32C was compared, and right. Neighbours are compared while they are
    /// copied apart. A record read straight into its blocks is left to the worker that fills its
    /// first row: in the reading thread the comparison took as long as all the rest.
    pub checked: bool,
    /// Time from the first try to the end of the last.
    pub latency: Duration,
}

impl<R, F> Completion<R, F> {
    /// This completion with the core's type of fault.
    pub fn map_fault(self, fault: impl FnOnce(&F) -> Fault) -> Completion<R> {
        let Self { op, outcome, checked, latency } = self;
        Completion { op, outcome: outcome.map_err(|of_read| fault(&of_read)), checked, latency }
    }
}

/// Names an open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The session whose ring it goes to.
    pub session: u32,
    /// Sequence number of its descriptor.
    pub seq: u64,
}

/// A row to fill.
#[derive(Debug)]
pub struct FillRow<R> {
    /// Position in the batch, from 0.
    pub position: u32,
    /// The sample.
    pub sample: SampleId,
    /// Its entry of the index. The core has looked it up; another CPU would wait for that memory
    /// anew.
    pub entry: Entry,
    /// Byte in the payload segment where the row's bytes go; where it has views, the first one's.
    pub offset: u64,
    /// Bytes reserved for the row: those of [`row_bytes`](crate::row_bytes).
    pub len: u64,
    /// Which row of its epoch it is; unused for raw output.
    pub drawn: DrawnRow,
    /// Where its pixels come from.
    pub pixels: Pixels,
    /// The image's true size, set by the worker; 0 x 0 for a record that is not decoded.
    pub size: Size,
    /// The record as stored; `None` if the pixels were decoded before. The worker gives it back and
    /// keeps no clone, so that the core can take back the blocks of the last one.
    pub record: Option<R>,
}

/// Where the pixels of a decoded row come from.
#[derive(Clone, Debug, Default)]
pub enum Pixels {
    /// From the record, for this row alone.
    #[default]
    Own,
    /// From the record. Other jobs want the same row: the worker calls [`FillRow::keep`].
    Wanted {
        /// Which output of the group in which epoch it is, for the core alone.
        output: u32,
    },
    /// They were decoded before: they are copied.
    Decoded {
        /// Which output of the group in which epoch it is, for the core alone.
        output: u32,
        /// The pixels.
        row: Arc<DecodedRow>,
    },
}

/// A row as it is in a batch.
#[derive(Debug)]
pub struct DecodedRow {
    /// Its bytes: those of [`row_bytes`](crate::row_bytes), view after view. Empty in a simulation.
    pub bytes: Vec<u8>,
    /// See [`FillRow::size`].
    pub size: Size,
    /// What each view shows.
    pub geometry: Vec<Geometry>,
}

impl<R> FillRow<R> {
    /// Whether it has its record, and no other row has or wants the same pixels.
    pub(super) fn is_plain(&self) -> bool {
        self.record.is_some() && matches!(self.pixels, Pixels::Own)
    }

    /// Keeps the decoded bytes, and what they show, for the rows that want them.
    pub fn keep(&mut self, bytes: Vec<u8>, geometry: &[Geometry]) {
        if let Pixels::Wanted { output } = self.pixels {
            let row = DecodedRow { bytes, size: self.size, geometry: geometry.to_vec() };
            self.pixels = Pixels::Decoded { output, row: Arc::new(row) };
        }
    }
}

/// The order to fill some rows of a batch.
#[derive(Debug)]
pub struct FillOrder<R> {
    /// The batch.
    pub ticket: Ticket,
    /// What a record becomes. Shared by all orders of a job, as it is large.
    pub output: Arc<Output>,
    /// Byte in the payload segment where the images of each view begin, without the first view: the
    /// image of the row at position 0.
    pub later_views: Arc<[u64]>,
    /// Where the extra fields of the rows go, if the job wants some.
    pub fields: Option<Arc<BatchFields>>,
    /// Key of the random crops, with each row's own number.
    pub draws: EpochDraws,
    /// The rows.
    pub rows: Vec<FillRow<R>>,
}

/// A [`FillOrder`] that was carried out. `F` is the worker's own type of fault, until the core is
/// told.
#[derive(Debug)]
pub struct Filled<R, F = Fault> {
    /// The batch.
    pub ticket: Ticket,
    /// The rows of the order, in its order. The bytes of a row with a fault are unspecified.
    pub rows: Vec<FillRow<R>>,
    /// Faults with their positions in `rows`, ascending. They are no part of the rows: nearly no
    /// row has one, and rows go back and forth by the million a second.
    pub faults: Vec<(usize, F)>,
    /// What each view of each row shows, row by row; empty without views. Apart from the rows for
    /// the same reason.
    pub geometry: Vec<Geometry>,
    /// Time that the worker spent on it.
    pub fill_ns: u64,
}

impl<R, F> Filled<R, F> {
    /// These rows with the core's type of fault.
    pub fn map_fault(self, fault: impl Fn(&F) -> Fault) -> Filled<R> {
        let Self { ticket, rows, faults, geometry, fill_ns } = self;
        let faults = faults.into_iter().map(|(at, of_row)| (at, fault(&of_row))).collect();
        Filled { ticket, rows, faults, geometry, fill_ns }
    }
}

/// The order to complete a batch whose rows are all filled or given up.
#[derive(Debug)]
pub struct FinalizeOrder {
    /// The batch.
    pub ticket: Ticket,
    /// Byte in the payload segment where the batch's block begins.
    pub block_offset: u64,
    /// Where in the block its columns lie.
    pub layout: BatchLayout,
    /// What to write there.
    pub columns: Columns,
    /// Moves to carry out before, one after the other.
    pub moves: Vec<Move>,
}

/// The columns of a batch: a value for each delivered row, at most the layout's capacity.
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
    /// First byte of each row, from the start of the data. This column and those below are empty
    /// unless the layout has them.
    pub offsets: Vec<u64>,
    /// Bytes of each row.
    pub lens: Vec<u64>,
    /// Height of each image.
    pub heights: Vec<u32>,
    /// Width of each image.
    pub widths: Vec<u32>,
    /// Left, top, width and height of each image's part of its source, view after view.
    pub crops: Vec<[f32; 4]>,
    /// How each image is mirrored, likewise: [`MIRRORED`](shade_formats::MIRRORED) or 0.
    pub flipped: Vec<u8>,
}

/// Bytes to move down in the payload, into the gap of a row that is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte now, in the payload segment.
    pub from: u64,
    /// First byte afterwards; the two may overlap.
    pub to: u64,
    /// Number of bytes.
    pub len: u64,
}
