//! DLPack's tensors over a batch's columns, for any library that reads them in C's form.
//!
//! An [`Export`] owns one `Arc` of the batch, which its deleter drops; the last drop releases the
//! batch's slot. Nothing else is held, so a deleter may run on any thread. `READ_ONLY` is never
//! set: the trainer owns its batch.
#![expect(unsafe_code, reason = "DLPack is a C protocol: raw structs with a deleter")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::batch::Batch;
use crate::part::{BatchPart, DataType, Located, PartError};

/// Device type of plain memory, `kDLCPU`.
pub const DEVICE_CPU: i32 = 1;

/// `DLDevice`.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    /// [`DEVICE_CPU`] or another library's.
    pub device_type: i32,
    /// Its number.
    pub device_id: i32,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Tensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where it is.
    pub device: Device,
    /// Dimensions.
    pub ndim: i32,
    /// Type of the values.
    pub dtype: DataType,
    /// A value for each dimension.
    pub shape: *mut i64,
    /// In values, not bytes. Null in others' tensors means dense.
    pub strides: *mut i64,
    /// The first value's place in the memory.
    pub byte_offset: u64,
}

/// `DLManagedTensor`: for consumers older than DLPack 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct Legacy {
    /// The tensor.
    pub tensor: Tensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`: DLPack 1.x.
#[repr(C)]
#[derive(Debug)]
pub struct Versioned {
    /// DLPack's version: another one has other fields below `deleter`.
    pub major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    /// The tensor. Only of major version 1.
    pub tensor: Tensor,
}

/// The two forms of a tensor that has an owner.
pub trait Managed: Sized {
    /// A head over `tensor` whose deleter is [`release`].
    fn new(tensor: Tensor) -> Self;

    /// The tensor.
    fn tensor_mut(&mut self) -> &mut Tensor;
}

impl Managed for Legacy {
    fn new(tensor: Tensor) -> Self {
        Self { tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(release::<Self>) }
    }

    fn tensor_mut(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

impl Managed for Versioned {
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

/// A tensor over a part of a batch, in place. It keeps the batch until [`release`], which is its
/// deleter.
///
/// # Errors
/// The batch has no such part.
pub fn export<H: Managed>(owner: Arc<Batch>, part: BatchPart) -> Result<NonNull<H>, PartError> {
    let Located { data, dtype, shape, .. } = part.locate(&owner)?;
    let ndim = i32::try_from(shape.len()).map_err(|_| PartError::Kind("too many dimensions"))?;
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
    Ok(NonNull::from(Box::leak(export)).cast())
}

/// Row-major strides in values.
#[must_use]
pub fn dense_strides(shape: &[i64]) -> Vec<i64> {
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
/// `head` is null or what [`export`] made, not released before.
pub unsafe extern "C" fn release<H: Managed>(head: *mut H) {
    if head.is_null() {
        return;
    }
    // SAFETY: by contract `head` is the first field of a leaked `Box<Export<H>>`, and nobody else
    // frees it.
    let export = unsafe { Box::from_raw(head.cast::<Export<H>>()) };
    drop(export);
}
