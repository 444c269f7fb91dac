//! DLPack, both ways: exports a batch's columns as tensors over its memory, imports losses from any
//! CPU tensor.
//!
//! Out: a capsule holds one [`Export`], which owns one `Arc` of the batch. A consumer renames the
//! capsule ("used_…") and calls the deleter once; an unconsumed capsule calls it itself. Either way
//! the `Arc` is dropped exactly once, and the last drop releases the batch's slot. No Python object
//! is held, so a deleter may run on any thread, attached or not. `READ_ONLY` is never set: the
//! trainer owns its batch.
//!
//! In: the capsule is read but not consumed, so its own destructor frees its tensor.
#![expect(unsafe_code, reason = "DLPack is a C protocol: raw structs inside Python capsules")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use shade_client::Batch;
use shade_formats::limits::BATCH_SAMPLES_MAX;

/// `kDLCPU`.
const DEVICE_CPU: i32 = 1;
/// `kDLCUDAHost`: pinned memory, readable like any other.
const DEVICE_CUDA_HOST: i32 = 3;
/// Result of [`View::__dlpack_device__`](crate::batch::View): (device type, device number).
pub(crate) const CPU: (i32, i32) = (DEVICE_CPU, 0);

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl DataType {
    pub(crate) const I32: Self = Self { code: 0, bits: 32, lanes: 1 };
    pub(crate) const I64: Self = Self { code: 0, bits: 64, lanes: 1 };
    pub(crate) const U8: Self = Self { code: 1, bits: 8, lanes: 1 };
    pub(crate) const F32: Self = Self { code: 2, bits: 32, lanes: 1 };
    const F64: Self = Self { code: 2, bits: 64, lanes: 1 };

    /// Bytes of one value.
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }

    /// The type's usual name, such as "int64".
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::F32 => "float32",
            Self::F64 => "float64",
            _ => "a type that shade does not use",
        }
    }
}

/// `DLDevice`.
#[repr(C)]
struct Device {
    device_type: i32,
    device_id: i32,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    /// In values, not bytes. Null in others' tensors means dense.
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`: for consumers older than DLPack 1.0.
#[repr(C)]
struct Legacy {
    tensor: Tensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`: DLPack 1.x.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// The two forms a capsule may hold.
trait Managed: Sized {
    /// The capsule's name until the tensor is consumed.
    const NAME: &'static CStr;

    /// A head over `tensor` whose deleter is [`release`].
    fn new(tensor: Tensor) -> Self;

    fn tensor_mut(&mut self) -> &mut Tensor;
}

impl Managed for Legacy {
    const NAME: &'static CStr = c"dltensor";

    fn new(tensor: Tensor) -> Self {
        Self { tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(release::<Self>) }
    }

    fn tensor_mut(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn new(tensor: Tensor) -> Self {
        let deleter = Some(release::<Self> as unsafe extern "C" fn(*mut Self));
        Self { major: 1, minor: 0, manager_ctx: std::ptr::null_mut(), deleter, flags: 0, tensor }
    }

    fn tensor_mut(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

/// One exported tensor. `head` comes first, so a pointer to it is a pointer to the whole.
#[repr(C)]
struct Export<H> {
    head: H,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Keeps the memory: the mapping and the batch's slot in it, or the batch's copy.
    owner: Arc<Batch>,
}

/// A part of a batch, ready to become a dense, row-major tensor. Only [`crate::batch_part`] makes
/// it.
pub(crate) struct Located {
    /// In the batch's block or its copy, hence valid as long as the batch lives.
    pub(crate) data: NonNull<u8>,
    /// Bytes of all values.
    pub(crate) bytes: usize,
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<i64>,
}

/// A private copy of a part of `owner`.
pub(crate) fn copy_bytes(_owner: &Batch, located: &Located) -> Vec<u8> {
    let mut copy = vec![0; located.bytes];
    // SAFETY: `located` is a part of the caller's batch, `bytes` long and mapped or allocated; only
    // this process writes to it; and `copy` is new, hence elsewhere, and as long.
    unsafe { std::ptr::copy_nonoverlapping(located.data.as_ptr(), copy.as_mut_ptr(), located.bytes) };
    copy
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

/// A capsule over `located`, in the form for a consumer of `max_version`.
pub(crate) fn export<'py>(
    py: Python<'py>,
    owner: Arc<Batch>,
    located: Located,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyCapsule>> {
    match max_version {
        Some((major, _)) if major >= 1 => capsule::<Versioned>(py, owner, located),
        _ => capsule::<Legacy>(py, owner, located),
    }
}

fn capsule<H: Managed>(
    py: Python<'_>,
    owner: Arc<Batch>,
    located: Located,
) -> PyResult<Bound<'_, PyCapsule>> {
    let Located { data, dtype, shape, .. } = located;
    let ndim = i32::try_from(shape.len()).map_err(|_| PyBufferError::new_err("too many dimensions"))?;
    let strides = dense_strides(&shape);
    let head = H::new(Tensor {
        data: data.as_ptr().cast(),
        device: Device { device_type: DEVICE_CPU, device_id: 0 },
        ndim,
        dtype,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    });
    let mut export = Box::new(Export { head, shape, strides, owner });
    let shape = export.shape.as_mut_ptr();
    let strides = export.strides.as_mut_ptr();
    let tensor = export.head.tensor_mut();
    tensor.shape = shape;
    tensor.strides = strides;
    let pointer = NonNull::from(Box::leak(export)).cast::<c_void>();
    // SAFETY: `destroy::<H>` fits a capsule named `H::NAME` whose pointer is an `Export<H>` from a
    // leaked box.
    let made =
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, H::NAME, Some(destroy::<H>)) };
    if made.is_err() {
        // SAFETY: no capsule was made, so this pointer to the leaked `Export<H>` is the only one.
        unsafe { release(pointer.cast::<H>().as_ptr()) };
    }
    made
}

/// Row-major strides in values.
fn dense_strides(shape: &[i64]) -> Vec<i64> {
    let mut strides: Vec<i64> = shape
        .iter()
        .rev()
        .scan(1_i64, |step, &side| {
            let here = *step;
            *step = step.saturating_mul(side);
            Some(here)
        })
        .collect();
    strides.reverse();
    strides
}

/// The deleter: frees the export and its reference to the batch.
///
/// # Safety
/// `head` is null or the head of an `Export<H>` leaked by [`capsule`], not released before.
unsafe extern "C" fn release<H: Managed>(head: *mut H) {
    if head.is_null() {
        return;
    }
    // SAFETY: by contract `head` is the first field of a leaked `Box<Export<H>>`, and nobody else
    // frees it.
    let export = unsafe { Box::from_raw(head.cast::<Export<H>>()) };
    drop(export);
}

/// The capsule's destructor: releases an unconsumed tensor.
///
/// # Safety
/// Called by Python, attached, with a dying capsule made by [`capsule`] for the same `H`.
unsafe extern "C" fn destroy<H: Managed>(capsule: *mut ffi::PyObject) {
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
