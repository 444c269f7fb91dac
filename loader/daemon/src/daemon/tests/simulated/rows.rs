//! Rows as trainers get them, and workers that say what each shows without decoding it.

use shade_core::driver::Delivery;
use shade_core::{FillOrder, Filled, Pixels};
use shade_formats::ring::FLAG_PADDING;
use shade_formats::{Draw, Geometry, SampleId};
use shade_reads::blocks::Lent;

/// A row of a batch, with all that a trainer sees of it. Floats are there as bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) id: i64,
    label: i64,
    weight: u32,
    pub(super) is_padding: bool,
    /// Crop and mirroring of each view.
    shown: Vec<([u32; 4], u8)>,
}

/// The rows of a batch.
pub(super) fn rows(Delivery { columns, .. }: &Delivery) -> Vec<Row> {
    let count = columns.ids.len();
    let views = columns.flipped.len().checked_div(count).unwrap_or(0);
    let row = |at: usize| Row {
        id: columns.ids[at],
        label: columns.labels[at],
        weight: columns.weights[at].to_bits(),
        is_padding: columns.flags[at] & FLAG_PADDING != 0,
        shown: (0..views)
            .map(|view| view * count + at)
            .map(|at| (columns.crops[at].map(f32::to_bits), columns.flipped[at]))
            .collect(),
    };
    (0..count).map(row).collect()
}

/// What workers answer to an order. A view of a row shows what no other row shows.
pub(super) fn filled(order: FillOrder<Lent>) -> Filled<Lent> {
    let FillOrder { ticket, output, draws, mut rows, .. } = order;
    let mut geometry = Vec::new();
    for row in &mut rows {
        let draw = Draw { draws, row: row.drawn };
        let shown: Vec<Geometry> = match &row.pixels {
            Pixels::Decoded { row, .. } => row.geometry.clone(),
            Pixels::Own | Pixels::Wanted { .. } => {
                (0..output.views().len()).map(|view| shown(draw, row.sample, view)).collect()
            }
        };
        row.keep(Vec::new(), &shown);
        geometry.extend(shown);
    }
    Filled { ticket, rows, faults: Vec::new(), geometry, fill_ns: 1 }
}

/// A crop that tells draw, sample and view: whole numbers that an f32 holds.
fn shown(Draw { draws, row }: Draw, sample: SampleId, view: usize) -> Geometry {
    let part = |number: u64| f32::from(u16::try_from(number & 0xffff).unwrap());
    let key = draws.seed ^ draws.seed >> 32 ^ u64::from(draws.epoch) << 7;
    let use_or_place = row.number() ^ row.number() >> 47;
    let crop = [part(key ^ key >> 16), part(use_or_place), sample.0 as f32, view as f32];
    Geometry { crop, flipped: u8::try_from(row.number() & 1).unwrap() }
}
