//! Copies a batch's columns out of shared memory.
#![expect(unsafe_code, reason = "columns are pointers into the payload; the one block has its proof")]

use shade_client::{Batch, Column};

/// The values of the column that `column` chooses.
pub(crate) fn values<T: Copy>(batch: &Batch, column: impl Fn(&Batch) -> Column<T>) -> Vec<T> {
    let Column { ptr, count } = column(batch);
    // SAFETY: a column is `count` aligned values inside the payload's mapping, which the batch
    // keeps alive. The daemon does not write there until the batch is dropped. `T` is a number type
    // here, for which any bytes are valid.
    unsafe { std::slice::from_raw_parts(ptr, count) }.to_vec()
}
