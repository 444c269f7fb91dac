//! The samples that a job delivers, from sample ids of Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shade_client::Subset;

use crate::spec::refused;

/// The bytes of the subset with these samples, and its digest.
#[pyfunction]
pub(crate) fn subset<'py>(py: Python<'py>, ids: Vec<u32>) -> PyResult<(Bound<'py, PyBytes>, u64)> {
    let subset = py.detach(|| Subset::new(ids)).map_err(|error| refused(&error))?;
    Ok((PyBytes::new(py, &subset.to_bytes()), subset.digest()))
}

/// The subset that `bytes` of [`subset`] are, of a dataset that is not known yet.
pub(crate) fn subset_of(bytes: &[u8]) -> PyResult<Subset> {
    Subset::from_bytes(bytes, u32::MAX).map_err(|error| refused(&error))
}
