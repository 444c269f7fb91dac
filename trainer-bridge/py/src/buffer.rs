//! Python's buffer protocol over records, for decoders that take bytes: read-only and cheaper than
//! a tensor.
#![expect(unsafe_code, reason = "the buffer protocol hands out addresses; each block has its proof")]

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyOverflowError};
use pyo3::ffi;
use pyo3::prelude::*;
use shade_client::{Batch, BatchPart, Located};

use crate::error::from_part;

/// The record of one row of a raw batch, which a `memoryview` refers to.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct Record {
    batch: Arc<Batch>,
    row: u32,
}

impl Record {
    pub(crate) fn new(batch: Arc<Batch>, row: u32) -> Self {
        Self { batch, row }
    }
}

#[pymethods]
impl Record {
    /// Fills `buffer` with the bytes' address and length.
    ///
    /// # Safety
    /// Called by Python only, as `bf_getbuffer`: `buffer` is null or may be written to.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if buffer.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill"));
        }
        let this = slf.get();
        let part = BatchPart::Record(this.row).locate(&this.batch);
        let Located { data, bytes, .. } = part.map_err(|error| from_part(&error))?;
        let len = isize::try_from(bytes).map_err(|_| PyOverflowError::new_err("too long a record"))?;
        const READ_ONLY: c_int = 1;
        // SAFETY: `buffer` may be written to. The `bytes` at `data` are readable, and no other
        // process writes them as long as the batch lives, which `slf` keeps; the buffer holds a
        // reference to `slf` until it is released.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), data.as_ptr().cast(), len, READ_ONLY, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
