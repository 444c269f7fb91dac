//! DLPack, both ways: exports a batch's columns as tensors over its memory, imports losses from any
//! CPU tensor.
//!
//! Out: a capsule holds a tensor of [`shade_client::dlpack`]. A consumer renames the capsule
//! ("used_…") and calls the deleter once; an unconsumed capsule calls it itself. No Python object
//! is held, so a deleter may run on any thread, attached or not.
//!
//! In: the capsule is read but not consumed, so its own destructor frees its tensor.
#![expect(unsafe_code, reason = "DLPack is a C protocol: raw structs inside Python capsules")]

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use shade_client::dlpack::{DEVICE_CPU, Legacy, Managed, Tensor, Versioned, dense_strides, export, release};
use shade_client::{Batch, BatchPart, DataType};
use shade_formats::limits::BATCH_SAMPLES_MAX;

use crate::error::from_part;

/// `kDLCUDAHost`: pinned memory, readable like any other.
const DEVICE_CUDA_HOST: i32 = 3;
/// Result of [`View::__dlpack_device__`](crate::batch::View): (device type, device number).
pub(crate) const CPU: (i32, i32) = (DEVICE_CPU, 0);

/// The two forms a capsule may hold.
trait Named: Managed {
    /// The capsule's name until the tensor is consumed.
    const NAME: &'static CStr;
}

impl Named for Legacy {
    const NAME: &'static CStr = c"dltensor";
}

impl Named for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
}

/// Refuses arguments of `__dlpack__` that shared memory cannot satisfy.
pub(crate) fn check_request(
    stream: Option<&Bound<'_, PyAny>>,
    device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<()> {
    if stream.is_some() {
        return Err(PyBufferError::new_err("stream: a batch lies in CPU memory, which has none; pass None"));
    }
    if let Some(device) = device.filter(|&device| device != CPU) {
        let text =
            format!("dl_device: got {device:?}, expected {CPU:?}; import on the CPU, then move the tensor");
        return Err(PyBufferError::new_err(text));
    }
    if copy == Some(true) {
        return Err(PyBufferError::new_err("copy: views are never copied; clone the imported tensor"));
    }
    Ok(())
}

/// A capsule over a part of a batch, in the form for a consumer of `max_version`.
pub(crate) fn capsule(
    py: Python<'_>,
    owner: Arc<Batch>,
    part: BatchPart,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'_, PyCapsule>> {
    match max_version {
        Some((major, _)) if major >= 1 => capsule_of::<Versioned>(py, owner, part),
        _ => capsule_of::<Legacy>(py, owner, part),
    }
}

fn capsule_of<H: Named>(
    py: Python<'_>,
    owner: Arc<Batch>,
    part: BatchPart,
) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = export::<H>(owner, part).map_err(|error| from_part(&error))?.cast();
    // SAFETY: `destroy::<H>` fits a capsule named `H::NAME` whose pointer is from `export::<H>`.
    let made =
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, H::NAME, Some(destroy::<H>)) };
    if made.is_err() {
        // SAFETY: no capsule was made, so this pointer to the exported tensor is the only one.
        unsafe { release(pointer.cast::<H>().as_ptr()) };
    }
    made
}

/// The capsule's destructor: releases an unconsumed tensor.
///
/// # Safety
/// Called by Python, attached, with a dying capsule made by [`capsule_of`] for the same `H`.
unsafe extern "C" fn destroy<H: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: `capsule` is a capsule by contract; a differing name is an answer, not an error.
    let untaken = unsafe { ffi::PyCapsule_IsValid(capsule, H::NAME.as_ptr()) };
    if untaken == 0 {
        return;
    }
    // SAFETY: as above, and the name was just found to fit.
    let head = unsafe { ffi::PyCapsule_GetPointer(capsule, H::NAME.as_ptr()) };
    // SAFETY: the name is unchanged, so the tensor is unconsumed and its deleter has not run.
    unsafe { release(head.cast::<H>()) };
}

/// Copies the values of a one-dimensional CPU tensor of float32 or float64 out of a DLPack capsule.
///
/// # Errors
/// `TypeError` for another type, device or object, `ValueError` for another shape.
pub(crate) fn read_floats(capsule: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let Placed { start, dtype, shape, strides } = placed(capsule, "losses")?;
    let (count, stride) = check_losses(dtype, &shape, &strides)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let start = start.ok_or_else(|| PyValueError::new_err("losses: the tensor has no memory"))?;
    let first = start.as_ptr().cast_const();
    Ok((0..count)
        .map(|position| {
            let step = stride * position;
            if dtype == DataType::F64 {
                // SAFETY: `position` is inside the tensor's shape, so its producer vouches for
                // these 8 bytes.
                narrow(unsafe { first.cast::<f64>().wrapping_offset(step).read_unaligned() })
            } else {
                // SAFETY: `position` is inside the tensor's shape, so its producer vouches for
                // these 4 bytes.
                unsafe { first.cast::<f32>().wrapping_offset(step).read_unaligned() }
            }
        })
        .collect())
}

/// The nearest float32: importance only ranks losses.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted; too large becomes infinity")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// (values, stride in values) of a readable tensor of losses.
fn check_losses(dtype: DataType, shape: &[i64], strides: &[i64]) -> PyResult<(isize, isize)> {
    if dtype != DataType::F32 && dtype != DataType::F64 {
        let DataType { code, bits, lanes } = dtype;
        return Err(PyTypeError::new_err(format!(
            "losses: got DLPack type {code} of {bits} bits x {lanes}, expected float32 or float64"
        )));
    }
    let (&[count], &[stride]) = (shape, strides) else {
        return Err(PyValueError::new_err(format!(
            "losses: got {} dimensions, expected one value per sample (reduction=\"none\")",
            shape.len()
        )));
    };
    let count = u32::try_from(count)
        .ok()
        .filter(|&count| count <= BATCH_SAMPLES_MAX)
        .and_then(|count| isize::try_from(count).ok())
        .ok_or_else(|| {
            PyValueError::new_err(format!("losses: got {count} values, expected at most {BATCH_SAMPLES_MAX}"))
        })?;
    let stride = isize::try_from(stride).map_err(|_| PyValueError::new_err("losses: stride out of range"))?;
    Ok((count, stride))
}

/// Another library's tensor.
pub(crate) struct Placed {
    /// Its first value; `None` without memory. Valid as long as the tensor.
    pub(crate) start: Option<NonNull<u8>>,
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<i64>,
    /// In values, one for each dimension.
    pub(crate) strides: Vec<i64>,
}

/// The tensor in a DLPack capsule; `name` is for messages.
///
/// # Errors
/// `TypeError` for another device or object.
pub(crate) fn placed(capsule: &Bound<'_, PyAny>, name: &str) -> PyResult<Placed> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let tensor: &Tensor = if capsule.is_valid_checked(Some(Versioned::NAME)) {
        let head = capsule.pointer_checked(Some(Versioned::NAME))?.cast::<Versioned>();
        // SAFETY: the name promises a `DLManagedTensorVersioned`, alive as long as the capsule,
        // which outlives us.
        let head = unsafe { head.as_ref() };
        if head.major != 1 {
            return Err(PyTypeError::new_err(format!(
                "{name}: got DLPack {}, expected DLPack 1",
                head.major
            )));
        }
        &head.tensor
    } else {
        let head = capsule.pointer_checked(Some(Legacy::NAME))?.cast::<Legacy>();
        // SAFETY: the name promises a `DLManagedTensor`, alive as long as the capsule, which
        // outlives us.
        let head = unsafe { head.as_ref() };
        &head.tensor
    };
    let device = tensor.device.device_type;
    if device != DEVICE_CPU && device != DEVICE_CUDA_HOST {
        return Err(PyTypeError::new_err(format!(
            "{name}: got a tensor on DLPack device {device}, expected one on the CPU"
        )));
    }
    let sides = usize::try_from(tensor.ndim).unwrap_or(0);
    let list = |values: *const i64| -> Option<Vec<i64>> {
        // SAFETY: not null, and by the protocol it has a value for each of the tensor's dimensions.
        (!values.is_null()).then(|| unsafe { std::slice::from_raw_parts(values, sides) }.to_vec())
    };
    let shape = list(tensor.shape).unwrap_or_default();
    let strides = list(tensor.strides).unwrap_or_else(|| dense_strides(&shape));
    let start = usize::try_from(tensor.byte_offset).ok();
    let start = start.and_then(|start| NonNull::new(tensor.data.cast::<u8>().wrapping_add(start)));
    Ok(Placed { start: start.filter(|_| !tensor.data.is_null()), dtype: tensor.dtype, shape, strides })
}
