//! Addresses of a batch's parts. Columns are writable memory, so each offset and size in them is
//! checked against the batch's data.

use std::ptr::NonNull;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use shade_client::{Batch, Column, Layout};

use crate::dlpack::{DataType, Located, copy_bytes};
use crate::error::ShadeError;

/// Channels of a decoded image.
const CHANNELS: usize = 3;

/// A part of a batch that a view shows.
#[derive(Clone, Copy)]
pub(crate) enum BatchPart {
    Ids,
    Labels,
    Weights,
    Flags,
    Images,
    /// The bytes of one row's record.
    Record(u32),
    /// One row's image, where each has its own size.
    Image(u32),
    Heights,
    Widths,
}

impl BatchPart {
    /// The part's address, length, type and shape.
    pub(crate) fn locate(self, batch: &Batch) -> PyResult<Located> {
        match self {
            Self::Ids => column(batch.ids(), DataType::I64),
            Self::Labels => column(batch.labels(), DataType::I64),
            Self::Weights => column(batch.weights(), DataType::F32),
            // The two bits fit, and tensor libraries support int32 far better than uint32.
            Self::Flags => column(batch.flags(), DataType::I32),
            Self::Images => {
                let descriptor = batch.descriptor();
                let shape =
                    [descriptor.records, descriptor.height, descriptor.width].map(|side| side as usize);
                let [rows, height, width] = shape;
                let shape = match descriptor.layout {
                    Layout::U8Nhwc => [rows, height, width, CHANNELS],
                    _ => [rows, CHANNELS, height, width],
                };
                // The client has checked that the pixels are there.
                located(batch.data().ptr, DataType::U8, &shape)
            }
            Self::Record(row) => column(record(batch, row)?, DataType::U8),
            Self::Image(row) => locate_image(batch, row as usize),
            Self::Heights => sides(batch.heights()),
            Self::Widths => sides(batch.widths()),
        }
    }
}

/// The bytes of one row of a raw batch.
pub(crate) fn record(batch: &Batch, row: u32) -> PyResult<Column<u8>> {
    let record =
        batch.record_in_place(row as usize).map_err(|error| ShadeError::new_err(error.to_string()))?;
    record.ok_or_else(|| PyValueError::new_err("no row of a raw batch: a decoded one holds images"))
}

/// The image of one row of a batch whose images have their own sizes.
fn locate_image(batch: &Batch, row: usize) -> PyResult<Located> {
    let (Some(offsets), Some(heights), Some(widths)) = (batch.offsets(), batch.heights(), batch.widths())
    else {
        return Err(not_ragged());
    };
    let (offset, height, width) =
        (word(batch, offsets, row)?, word(batch, heights, row)?, word(batch, widths, row)?);
    let data = batch.data();
    let bytes = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(CHANNELS));
    if bytes.and_then(|bytes| bytes.checked_add(offset)).is_none_or(|end| end > data.count) {
        let text = format!(
            "image {row}: got {height} x {width} pixels at {offset}, expected a range within {}",
            data.count
        );
        return Err(ShadeError::new_err(text));
    }
    let shape = match batch.descriptor().layout {
        Layout::RaggedHwc => [height, width, CHANNELS],
        _ => [CHANNELS, height, width],
    };
    located(data.ptr.wrapping_add(offset), DataType::U8, &shape)
}

/// One value of a column of offsets or sides: unsigned numbers of up to 8 bytes.
fn word<T>(batch: &Batch, column: Column<T>, row: usize) -> PyResult<usize> {
    if row >= column.count {
        return Err(PyIndexError::new_err(format!("record {row} of a batch of {}", column.count)));
    }
    let word = located(column.ptr.wrapping_add(row), DataType::U8, &[size_of::<T>()])?;
    let mut value = [0; 8];
    value.iter_mut().zip(copy_bytes(batch, &word)).for_each(|(to, from)| *to = from);
    usize::try_from(u64::from_le_bytes(value))
        .ok()
        .ok_or_else(|| ShadeError::new_err(format!("record {row}: its offset is out of range")))
}

fn column<T>(column: Column<T>, dtype: DataType) -> PyResult<Located> {
    located(column.ptr, dtype, &[column.count])
}

/// A column that only images of their own sizes have. Sides fit into int32.
fn sides(found: Option<Column<u32>>) -> PyResult<Located> {
    column(found.ok_or_else(not_ragged)?, DataType::I32)
}

fn not_ragged() -> PyErr {
    PyValueError::new_err("only a batch whose images have their own sizes has them row by row")
}

fn located<T>(start: *mut T, dtype: DataType, shape: &[usize]) -> PyResult<Located> {
    let data = NonNull::new(start.cast()).ok_or_else(|| ShadeError::new_err("the batch is not mapped"))?;
    let sides: Option<Vec<i64>> = shape.iter().map(|&side| i64::try_from(side).ok()).collect();
    let bytes = shape.iter().try_fold(dtype.bytes(), |bytes, &side| bytes.checked_mul(side));
    let (Some(shape), Some(bytes)) = (sides, bytes) else {
        return Err(ShadeError::new_err(format!("a column of shape {shape:?} is out of range")));
    };
    Ok(Located { data, bytes, dtype, shape })
}
