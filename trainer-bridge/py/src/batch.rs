//! A delivered batch and the views of its columns. Its slot, if it holds one, goes back to the
//! daemon when the last of them is dropped.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyMemoryView, PyTuple};
use shade_client::{BatchId, BatchPart, DataType, Descriptor, Layout, Located};

use crate::buffer::Record;
use crate::dlpack::{CPU, capsule, check_request};
use crate::error::from_part;

/// A delivered batch.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct Batch {
    /// Shared with its [`View`]s and every tensor made from them.
    batch: Arc<shade_client::Batch>,
}

impl Batch {
    pub(crate) fn new(batch: shade_client::Batch) -> Self {
        Self { batch: Arc::new(batch) }
    }

    pub(crate) fn id(&self) -> BatchId {
        self.batch.id()
    }

    fn descriptor(&self) -> &Descriptor {
        self.batch.descriptor()
    }

    /// The ids of its samples. They may be any numbers, as the column is writable.
    pub(crate) fn sample_ids(&self) -> PyResult<Vec<i64>> {
        let bytes = BatchPart::Ids.copy(&self.batch).map_err(|error| from_part(&error))?;
        Ok(bytes.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id)).collect())
    }

    fn view(&self, part: BatchPart) -> View {
        View { batch: Arc::clone(&self.batch), part }
    }

    /// A view of a part that may be missing.
    fn checked(&self, part: BatchPart) -> PyResult<View> {
        let view = self.view(part);
        view.located()?;
        Ok(view)
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.descriptor().records as usize
    }

    #[getter]
    fn epoch(&self) -> u32 {
        self.descriptor().epoch
    }

    #[getter]
    fn index(&self) -> u32 {
        self.descriptor().batch
    }

    /// Whether it has raw records instead of images.
    #[getter]
    fn raw(&self) -> bool {
        self.descriptor().layout == Layout::Raw
    }

    #[getter]
    fn hits(&self) -> u32 {
        self.descriptor().hits
    }

    #[getter]
    fn misses(&self) -> u32 {
        self.descriptor().misses
    }

    #[getter]
    fn skipped(&self) -> u32 {
        self.descriptor().skipped
    }

    #[getter]
    fn substituted(&self) -> u32 {
        self.descriptor().substituted
    }

    fn ids(&self) -> View {
        self.view(BatchPart::Ids)
    }

    fn labels(&self) -> View {
        self.view(BatchPart::Labels)
    }

    fn weights(&self) -> View {
        self.view(BatchPart::Weights)
    }

    fn flags(&self) -> View {
        self.view(BatchPart::Flags)
    }

    /// Whether its images have their own sizes.
    #[getter]
    fn ragged(&self) -> bool {
        self.descriptor().layout.is_ragged()
    }

    /// Whether images are interleaved.
    #[getter]
    fn channels_last(&self) -> bool {
        matches!(self.descriptor().layout, Layout::Nhwc | Layout::RaggedHwc)
    }

    /// Views of each image; 0 for raw records and images of their own sizes.
    #[getter]
    fn views(&self) -> u32 {
        self.descriptor().views
    }

    /// The images of a view of a decoded batch, in their memory layout.
    fn images(&self, view: u8) -> PyResult<View> {
        self.checked(BatchPart::Images(view))
    }

    /// The part of the source that each image of a view shows: left, top, width, height.
    fn crops(&self, view: u8) -> PyResult<View> {
        self.checked(BatchPart::Crops(view))
    }

    /// Whether each image of a view is mirrored: bit 0, from left to right.
    fn flipped(&self, view: u8) -> PyResult<View> {
        self.checked(BatchPart::Flipped(view))
    }

    /// The image of one row of a batch whose images have their own sizes.
    fn image(&self, row: u32) -> PyResult<View> {
        self.checked(BatchPart::Image(row))
    }

    /// Rows of pixels of each image of such a batch.
    fn heights(&self) -> PyResult<View> {
        self.checked(BatchPart::Heights)
    }

    /// Columns of pixels of each image of such a batch.
    fn widths(&self) -> PyResult<View> {
        self.checked(BatchPart::Widths)
    }

    /// The record of one row of a raw batch.
    fn record(&self, row: u32) -> PyResult<View> {
        self.checked(BatchPart::Record(row))
    }

    /// The records of a raw batch, each a read-only `memoryview`.
    fn memoryviews<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let views = PyList::empty(py);
        for row in 0..self.descriptor().records {
            let record = Bound::new(py, Record::new(Arc::clone(&self.batch), row))?;
            views.append(PyMemoryView::from(&record)?)?;
        }
        Ok(views)
    }
}

/// One column of a batch, in place. By DLPack any tensor library imports it without a copy.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct View {
    batch: Arc<shade_client::Batch>,
    part: BatchPart,
}

impl View {
    fn located(&self) -> PyResult<Located> {
        self.part.locate(&self.batch).map_err(|error| from_part(&error))
    }

    fn copy(&self) -> PyResult<Vec<u8>> {
        self.part.copy(&self.batch).map_err(|error| from_part(&error))
    }
}

#[pymethods]
impl View {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.located()?.shape)
    }

    /// The type's usual name, such as "uint8".
    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        Ok(self.located()?.dtype.name())
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.located()?.shape.first().copied().unwrap_or(0);
        usize::try_from(first).map_err(|_| PyValueError::new_err("negative length"))
    }

    fn __repr__(&self) -> PyResult<String> {
        let Located { dtype, shape, .. } = self.located()?;
        Ok(format!("View(shape={shape:?}, dtype={})", dtype.name()))
    }

    /// A copy of the bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.copy()?))
    }

    /// A copy as a flat list of numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let bytes = self.copy()?;
        let halves = || bytes.as_chunks().0.iter().map(|&value| u16::from_le_bytes(value));
        match self.located()?.dtype {
            DataType::I64 => {
                PyList::new(py, bytes.as_chunks().0.iter().map(|&value| i64::from_le_bytes(value)))
            }
            DataType::F32 => {
                PyList::new(py, bytes.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)))
            }
            DataType::I32 => {
                PyList::new(py, bytes.as_chunks().0.iter().map(|&value| i32::from_le_bytes(value)))
            }
            DataType::BF16 => PyList::new(py, halves().map(|bits| f32::from_bits(u32::from(bits) << 16))),
            DataType::F16 => PyList::new(py, halves().map(value_of_float16)),
            _ => PyList::new(py, bytes),
        }
    }

    /// A capsule over the column in place. Its consumer keeps the batch until it frees the tensor.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        check_request(stream, dl_device, copy)?;
        capsule(py, Arc::clone(&self.batch), self.part, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }
}

/// The number that these bits of a float16 are.
fn value_of_float16(bits: u16) -> f32 {
    let (exponent, fraction) = ((bits >> 10) & 31, f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2_f32.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}
