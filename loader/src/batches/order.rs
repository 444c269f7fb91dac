//! What the core asks for, and what workers answer.

use shade_formats::SampleId;
use shade_formats::control::Output;
use shade_formats::index::Entry;
use shade_formats::ring::BatchLayout;
use shade_images::{Draw, Size};

use super::FillFault;
use crate::blocks::Lent;

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
pub struct Row<R = Lent> {
    /// Place in the batch, from 0.
    pub position: u32,
    /// Whose record it is.
    pub sample: SampleId,
    /// What the index says of it. The core has looked it up, and another CPU would wait for that memory anew.
    pub entry: Entry,
    /// Byte in the payload segment where the row's bytes go.
    pub offset: u64,
    /// Bytes reserved there: those of [`row_bytes`](super::row_bytes).
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
pub struct FillOrder<R = Lent> {
    /// Their batch.
    pub ticket: Ticket,
    /// What to make of the records.
    pub output: Output,
    /// A part of the batch's rows.
    pub rows: Vec<Row<R>>,
}

/// A [`FillOrder`], done.
#[derive(Debug)]
pub struct Filled<R = Lent> {
    /// The batch.
    pub ticket: Ticket,
    /// Every row of the order, in its order. They hold what was asked for, but for those with a fault: what these hold is
    /// unspecified.
    pub rows: Vec<Row<R>>,
    /// What is wrong with which of `rows`, by ascending position in them. By itself, as next to no row has one, and rows are
    /// handed back and forth by the million a second.
    pub faults: Vec<(usize, FillFault)>,
    /// Time a worker spent on it.
    pub fill_ns: u64,
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
