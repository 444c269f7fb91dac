//! The table of weights for the sampler `weighted`, from numbers of Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shade_client::WeightTable;

use crate::spec::refused;

/// The bytes of the table with these values, one for each sample, and their digest.
#[pyfunction]
pub(crate) fn weight_table<'py>(py: Python<'py>, values: Vec<f64>) -> PyResult<(Bound<'py, PyBytes>, u64)> {
    let table = py.detach(|| WeightTable::new(values.iter().copied())).map_err(|error| refused(&error))?;
    Ok((PyBytes::new(py, &table.to_bytes()), table.digest()))
}

/// The table that `bytes` of [`weight_table`] are.
pub(crate) fn table(bytes: &[u8]) -> PyResult<WeightTable> {
    let samples = u32::try_from(bytes.len() / size_of::<u32>());
    let samples = samples.map_err(|_| PyValueError::new_err("weights: more than 2^32 of them"))?;
    WeightTable::from_bytes(bytes, samples).map_err(|error| refused(&error))
}
