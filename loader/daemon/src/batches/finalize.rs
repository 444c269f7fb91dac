//! Completes a batch: closes the gaps of rows that are not delivered, then writes the columns.

use shade_core::{Columns, FinalizeOrder};
use shade_formats::FormatError;
use shade_formats::ring::BatchLayout;
use shade_shm::Region;

/// Carries out `order` in `payload`. `buffer` is for one column's bytes; the caller keeps it
/// between batches.
///
/// # Errors
/// A column or a move does not fit. The batch's bytes are unspecified then.
pub fn finalize(order: &FinalizeOrder, payload: &Region, buffer: &mut Vec<u8>) -> Result<(), FormatError> {
    let FinalizeOrder { block_offset, layout, columns, moves, .. } = order;
    check(columns, layout)?;
    for step in moves {
        payload.copy_within(step.from, step.to, step.len)?;
    }
    let mut block = Block { payload, offset: *block_offset, buffer };
    block.column(layout.ids, &columns.ids, i64::to_le_bytes)?;
    block.column(layout.labels, &columns.labels, i64::to_le_bytes)?;
    block.column(layout.weights, &columns.weights, f32::to_le_bytes)?;
    block.column(layout.flags, &columns.flags, u32::to_le_bytes)?;
    for (at, values) in [(layout.offsets(), &columns.offsets), (layout.lens(), &columns.lens)] {
        at.map_or(Ok(()), |at| block.column(at, values, u64::to_le_bytes))?;
    }
    for (at, values) in [(layout.heights(), &columns.heights), (layout.widths(), &columns.widths)] {
        at.map_or(Ok(()), |at| block.column(at, values, u32::to_le_bytes))?;
    }
    block.views(layout, columns)
}

/// A batch's block in the payload.
struct Block<'a> {
    payload: &'a Region,
    offset: u64,
    buffer: &'a mut Vec<u8>,
}

impl Block<'_> {
    /// The table of views, and what each of them shows.
    fn views(&mut self, layout: &BatchLayout, columns: &Columns) -> Result<(), FormatError> {
        let Some((at, table)) = layout.table() else { return Ok(()) };
        self.column(at, &table, |byte| [byte])?;
        let rows = columns.ids.len();
        let of_views = columns.crops.chunks(rows.max(1)).zip(columns.flipped.chunks(rows.max(1)));
        for (view, (crops, flipped)) in of_views.enumerate() {
            if let (Some(crops_at), Some(flipped_at)) = (layout.crops(view), layout.flipped(view)) {
                self.column(crops_at, crops.as_flattened(), f32::to_le_bytes)?;
                self.column(flipped_at, flipped, |byte| [byte])?;
            }
        }
        Ok(())
    }

    fn column<T: Copy, const N: usize>(
        &mut self,
        at: u64,
        values: &[T],
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> Result<(), FormatError> {
        self.buffer.clear();
        self.buffer.reserve(values.len() * N);
        for &value in values {
            self.buffer.extend_from_slice(&to_bytes(value));
        }
        // A sum that overflows is outside the payload, and is refused there.
        self.payload.write(self.offset.saturating_add(at), self.buffer)
    }
}

/// Checks that columns are equally long and within their capacity: beyond it one would overwrite
/// the next.
fn check(columns: &Columns, layout: &BatchLayout) -> Result<(), FormatError> {
    let Columns { ids, labels, weights, flags, offsets, lens, heights, widths, crops, flipped } = columns;
    let rows = ids.len();
    let rows_if = |column: Option<u64>| if column.is_some() { rows } else { 0 };
    let [with_offsets, with_lens] = [layout.offsets(), layout.lens()].map(rows_if);
    let [with_heights, with_widths] = [layout.heights(), layout.widths()].map(rows_if);
    let of_views = layout.views().len() * rows;
    let expected =
        [rows, rows, rows, rows, with_offsets, with_lens, with_heights, with_widths, of_views, of_views];
    let got = [
        rows,
        labels.len(),
        weights.len(),
        flags.len(),
        offsets.len(),
        lens.len(),
        heights.len(),
        widths.len(),
        crops.len(),
        flipped.len(),
    ];
    if got == expected && rows <= layout.capacity as usize {
        return Ok(());
    }
    Err(FormatError::new(
        "batch columns",
        0,
        format_args!("columns of {got:?} rows"),
        format_args!("{expected:?}, at most {}", layout.capacity),
    ))
}
