//! A delivered batch and the views of its columns. Its slot, if it holds one, goes back to the
//! daemon when the last of them is dropped.

use std::sync::Arc;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyCapsule, PyList, PyMemoryView, PyTuple};
use shade_client::{BatchId, BatchPart, DataType, Descriptor, FieldKind, Layout, Located};

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

    /// A copy of an extra field of one row, if it varies and the sample has it.
    fn bytes_of_field(&self, field: u8, view: u8, row: usize) -> PyResult<Option<Vec<u8>>> {
        let found = self.batch.varying_field(field.into(), view.into(), row);
        let copied = found.and_then(|found| found.map(|column| self.batch.copy(column)).transpose());
        copied.map_err(|error| from_part(&error.into()))
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

    /// Names of the extra fields that the batch has.
    fn field_names(&self) -> Vec<String> {
        self.batch.fields().map(|(name, _)| name.to_owned()).collect()
    }

    /// The position of an extra field, what it is, and whether it follows the image: then it has
    /// views.
    fn field(&self, name: &str) -> PyResult<(u8, String, bool)> {
        let found = (0..).zip(self.batch.fields()).find(|(_, (of, _))| *of == name);
        let (at, (_, kind)) = found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok((at, kind.to_string(), kind.follows()))
    }

    /// An extra field whose numbers have one shape in all samples, or a mask.
    fn fixed_field(&self, field: u8, view: u8) -> PyResult<View> {
        self.checked(BatchPart::Field(field, view))
    }

    /// The bytes of an extra field of each sample; None where it has no such field.
    fn field_bytes<'py>(&self, py: Python<'py>, field: u8) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let bytes_of = |row| {
            let bytes = self.bytes_of_field(field, 0, row)?;
            Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
        };
        (0..self.__len__()).map(bytes_of).collect()
    }

    /// A copy of all rows of numbers of an extra field, and how many each sample has.
    fn field_rows<'py>(
        &self,
        py: Python<'py>,
        field: u8,
        view: u8,
    ) -> PyResult<(Bound<'py, PyByteArray>, Vec<usize>)> {
        let kind = self.batch.fields().nth(field.into()).map(|(_, kind)| kind);
        let row_bytes = kind.and_then(FieldKind::row_bytes).unwrap_or(1);
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        for row in 0..self.__len__() {
            let bytes = self.bytes_of_field(field, view, row)?.unwrap_or_default();
            if !bytes.len().is_multiple_of(row_bytes) {
                let text =
                    format!("an extra field of row {row} has {} bytes: somebody wrote to it", bytes.len());
                return Err(PyValueError::new_err(text));
            }
            counts.push(bytes.len() / row_bytes);
            all.extend(bytes);
        }
        Ok((PyByteArray::new(py, &all), counts))
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
        match self.located()?.dtype {
            DataType::I8 => PyList::new(py, bytes.into_iter().map(u8::cast_signed)),
            DataType::I16 => PyList::new(py, numbers(&bytes, i16::from_le_bytes)),
            DataType::I32 => PyList::new(py, numbers(&bytes, i32::from_le_bytes)),
            DataType::I64 => PyList::new(py, numbers(&bytes, i64::from_le_bytes)),
            DataType::F32 => PyList::new(py, numbers(&bytes, f32::from_le_bytes)),
            DataType::F64 => PyList::new(py, numbers(&bytes, f64::from_le_bytes)),
            DataType::BF16 => PyList::new(py, numbers(&bytes, value_of_bfloat16)),
            DataType::F16 => PyList::new(py, numbers(&bytes, value_of_float16)),
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

/// The numbers in `bytes`.
fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| number(bytes)).collect()
}

/// The number that these bits of a bfloat16 are.
fn value_of_bfloat16([low, high]: [u8; 2]) -> f32 {
    f32::from_le_bytes([0, 0, low, high])
}

/// The number that these bits of a float16 are.
fn value_of_float16(bytes: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(bytes);
    let (exponent, fraction) = ((bits >> 10) & 31, f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2_f32.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}
