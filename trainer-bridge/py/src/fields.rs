//! Samples' extra fields, as Python sees them: read outside the interpreter, answering to Ctrl-C.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shade_client::FieldsReader;

use crate::batch::Batch;
use crate::error::{ShadeError, from_client};
use crate::session::SLICE;

/// Reads the extra fields of a dataset's samples. Outlives the session it came from; threads may share it.
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
        // On a thread of its own, so that Ctrl-C ends the wait here at once, however slow the store is.
        let (done, mut answer) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("shade-fields".to_owned())
            // The receiver is gone only after an interrupt.
            .spawn(move || drop(done.send(reader.read(&samples))))
            .map_err(|error| ShadeError::new_err(format!("no thread to read on: {error}")))?;
        let samples = loop {
            // Borrowed mutably, as a receiver must not be shared between threads, and a closure that detaches might be.
            let answer = &mut answer;
            match py.detach(move || answer.recv_timeout(SLICE)) {
                Ok(read) => break read.map_err(|error| from_client(&error))?,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ShadeError::new_err("reading fields ended without an answer"));
                }
            }
        };
        let dictionaries = samples.iter().map(|fields| {
            let dictionary = PyDict::new(py);
            for field in fields {
                dictionary.set_item(&field.name, PyBytes::new(py, &field.bytes))?;
            }
            Ok(dictionary)
        });
        dictionaries.collect()
    }

    /// The file name of the shard that holds a sample, for messages.
    fn shard_of(&self, sample: u32) -> PyResult<String> {
        self.reader.shard_of(sample).map_err(|error| from_client(&error))
    }
}
