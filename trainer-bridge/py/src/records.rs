//! A dataset's records for Python, a map-style dataset for any data loader, and the extra fields of
//! a batch's samples. These are read without the interpreter; Ctrl-C ends the wait.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyFileNotFoundError, PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use shade_client::{Content, Field, FieldsReader};
use shade_formats::ContentId;

use crate::batch::Batch;
use crate::error::from_client;
use crate::wait::on_thread;

/// Samples of the dataset in `folder`, and the identity of its content in hexadecimal digits.
#[pyfunction]
pub(crate) fn dataset_content(py: Python<'_>, folder: PathBuf) -> PyResult<(u32, String)> {
    let content = on_thread(py, "shade-open", move || shade_client::content(&folder))?;
    let content = content.map_err(|error| from_client(&error))?;
    Ok((content.samples, content.id.to_string()))
}

/// The folder of the dataset at an address such as `s3://bucket/prefix`. `FileNotFoundError` if
/// none that is packed lies there.
#[pyfunction]
pub(crate) fn dataset_folder(py: Python<'_>, address: PathBuf) -> PyResult<PathBuf> {
    let folder = on_thread(py, "shade-open", move || shade_client::folder(&address))?;
    folder.map_err(|error| match error.is_not_packed() {
        true => PyFileNotFoundError::new_err(error.to_string()),
        false => from_client(&error),
    })
}

/// A dataset's content for Python: samples, classes, and its identity in hexadecimal digits.
pub(crate) type ContentTuple = (u32, u32, String);

pub(crate) fn content_tuple(content: Content) -> ContentTuple {
    (content.samples, content.classes, content.id.to_string())
}

/// Reads the records of a packed dataset and looks up its index. Threads may share it.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct RecordReader {
    reader: Arc<shade_client::RecordReader>,
}

#[pymethods]
impl RecordReader {
    /// Opens the dataset in `folder`, which must have this `content`, if given. What was added
    /// since is left out.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        content: Option<ContentTuple>,
        buffered: bool,
    ) -> PyResult<Self> {
        let expected = content.map(content_of).transpose()?;
        let open = move || shade_client::RecordReader::open(&folder, expected, buffered);
        let reader = on_thread(py, "shade-open", open)?.map_err(|error| from_client(&error))?;
        Ok(Self { reader: Arc::new(reader) })
    }

    /// A reader for this process, after a fork. It does not use inherited files and locks.
    fn renewed(&self) -> Self {
        Self { reader: Arc::new(self.reader.renewed()) }
    }

    fn __len__(&self) -> usize {
        self.reader.samples() as usize
    }

    /// The dataset's content, for [`RecordReader::open`].
    #[getter]
    fn content(&self) -> ContentTuple {
        content_tuple(self.reader.content())
    }

    /// The classes' names, by label.
    fn classes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.reader.class_names().map(OsStr::from_bytes).collect::<Vec<_>>())
    }

    /// A sample's original path and its label.
    fn sample(&self, sample: u32) -> PyResult<(&OsStr, u32)> {
        let said = self.reader.path(sample).zip(self.reader.label(sample));
        let (path, label) = said.ok_or_else(|| {
            PyIndexError::new_err(format!("sample {sample} of a dataset of {}", self.reader.samples()))
        })?;
        Ok((OsStr::from_bytes(path), label))
    }

    /// The labels of all samples.
    fn labels(&self) -> Vec<u32> {
        (0..self.reader.samples()).filter_map(|sample| self.reader.label(sample)).collect()
    }

    /// The records of `samples`, in their order. Ctrl-C ends the wait for several at once. A single
    /// record is read on the calling thread, as starting a thread takes several times as long as
    /// most reads. There Ctrl-C ends only the waits between attempts and the calls that the system
    /// interrupts.
    fn read<'py>(&self, py: Python<'py>, samples: Vec<u32>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let read = if samples.len() <= 1 {
            let interrupt = OnceLock::new();
            let is_stopped = || match Python::attach(|py| py.check_signals()) {
                Err(signal) => interrupt.set(signal).is_ok(),
                Ok(()) => interrupt.get().is_some(),
            };
            let read = py.detach(|| self.reader.read_unless(&samples, &is_stopped));
            if let Some(signal) = interrupt.into_inner() {
                return Err(signal);
            }
            read
        } else {
            let reader = Arc::clone(&self.reader);
            on_thread(py, "shade-records", move || reader.read(&samples))?
        };
        let records = match read {
            Ok(records) => records,
            Err(error) => {
                // If the failed read was interrupted, raise that instead.
                py.check_signals()?;
                return Err(from_client(&error));
            }
        };
        Ok(records.into_iter().map(|record| PyBytes::new(py, &record)).collect())
    }

    /// The extra fields of `samples`: one dictionary for each, from names to bytes. Ctrl-C ends the
    /// wait.
    fn fields<'py>(&self, py: Python<'py>, samples: Vec<i64>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let reader = Arc::clone(&self.reader);
        let samples = on_thread(py, "shade-fields", move || reader.fields(&samples))?;
        dictionaries(py, &samples.map_err(|error| from_client(&error))?)
    }

    /// The exception for a complete record that is no image: its place, and `text`.
    fn fault(&self, sample: u32, text: &str) -> PyErr {
        from_client(&self.reader.fault(sample, &text))
    }
}

fn content_of((samples, classes, text): ContentTuple) -> PyResult<Content> {
    let id = u128::from_str_radix(&text, 16)
        .map_err(|error| PyValueError::new_err(format!("content id {text:?}: {error}")))?;
    Ok(Content { samples, classes, id: ContentId(id) })
}

/// Reads the extra fields of a dataset's samples. Outlives the session it came from; threads may
/// share it.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct Fields {
    reader: Arc<FieldsReader>,
}

/// One dictionary for each sample, from names to bytes.
fn dictionaries<'py>(py: Python<'py>, samples: &[Vec<Field>]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let dictionaries = samples.iter().map(|fields| {
        let dictionary = PyDict::new(py);
        for field in fields {
            dictionary.set_item(&field.name, PyBytes::new(py, &field.bytes))?;
        }
        Ok(dictionary)
    });
    dictionaries.collect()
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
        dictionaries(py, &samples.map_err(|error| from_client(&error))?)
    }

    /// File name of a sample's shard, for messages.
    fn shard_of(&self, sample: u32) -> PyResult<String> {
        self.reader.shard_of(sample).map_err(|error| from_client(&error))
    }
}
