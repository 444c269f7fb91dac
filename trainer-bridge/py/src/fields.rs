//! Samples' extra fields for Python: read without the interpreter; Ctrl-C ends the wait.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shade_client::FieldsReader;

use crate::batch::Batch;
use crate::error::from_client;
use crate::wait::on_thread;

/// Reads the extra fields of a dataset's samples. Outlives the session it came from; threads may
/// share it.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct Fields {
    reader: Arc<FieldsReader>,
}

impl Fields {
    pub(crate) fn new(reader: FieldsReader) -> Self {
        Self { reader: Arc::new(reader) }
    }
}

#[pymethods]
impl Fields {
    /// One dictionary for each sample of the batch, from names to bytes.
    fn read<'py>(&self, py: Python<'py>, batch: &Batch) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let samples = batch.sample_ids()?;
        let reader = Arc::clone(&self.reader);
        let samples = on_thread(py, "shade-fields", move || reader.read(&samples))?;
        let samples = samples.map_err(|error| from_client(&error))?;
        let dictionaries = samples.iter().map(|fields| {
            let dictionary = PyDict::new(py);
            for field in fields {
                dictionary.set_item(&field.name, PyBytes::new(py, &field.bytes))?;
            }
            Ok(dictionary)
        });
        dictionaries.collect()
    }

    /// File name of a sample's shard, for messages.
    fn shard_of(&self, sample: u32) -> PyResult<String> {
        self.reader.shard_of(sample).map_err(|error| from_client(&error))
    }
}
