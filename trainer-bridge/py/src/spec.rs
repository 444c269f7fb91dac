//! Arguments of [`Session::connect`](crate::session::Session): the job's document, what it says of
//! single samples (weights, a subset), and the seats of its plan.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use serde_json::{Number, Value};
use shade_client::{
    FieldKind, JobSpec, Launch, Options, Settings, SpecError, Subset, WeightTable, image_size,
};
use shade_job::held_from_bytes;

use crate::error::from_client;
use crate::wait::on_thread;

/// The daemon's address, and how to start one if none listens.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DaemonDict {
    /// None: the abstract socket named after user and dataset.
    socket: Option<PathBuf>,
    binary: PathBuf,
    /// The requested settings, a JSON object, which a running daemon is compared with.
    settings: String,
    timeout_seconds: f64,
    /// Whether the next free name will do where another training has the job's.
    or_free_name: bool,
    /// Whether a daemon that dies is replaced.
    survive: bool,
    /// How many may die within an hour.
    deaths_max: u32,
}

/// The document of a job with these arguments, a JSON object of them: see
/// [`JobSpec::from_arguments`]. It is for this dataset.
#[pyfunction]
#[pyo3(signature = (arguments, dataset=None))]
pub(crate) fn job_document(arguments: &str, dataset: Option<PathBuf>) -> PyResult<String> {
    let arguments =
        serde_json::from_str(arguments).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let size = || match &dataset {
        Some(dataset) => image_size(dataset),
        None => Err("no dataset says how large its images are".to_owned()),
    };
    JobSpec::from_arguments(arguments, size).map(|spec| spec.to_text()).map_err(|error| refused(&error))
}

/// Settings of a daemon, a JSON object, with each value as the daemon has it.
#[pyfunction]
pub(crate) fn daemon_settings(given: &str) -> PyResult<String> {
    Settings::from_text(given).map(|settings| settings.to_text()).map_err(|error| refused(&error))
}

/// What an extra field is, as the job's document says it.
#[pyfunction]
pub(crate) fn field_kind(text: &str) -> PyResult<String> {
    let kind: Result<FieldKind, _> = text.parse();
    kind.map(|kind| kind.to_string()).map_err(PyValueError::new_err)
}

/// Type and shape of a row of numbers, if each sample has as many rows of this kind as it likes.
#[pyfunction]
pub(crate) fn field_row(kind: &str) -> PyResult<Option<(&'static str, Vec<u32>)>> {
    let kind: FieldKind = kind.parse().map_err(PyValueError::new_err)?;
    Ok(kind.row().map(|(number, shape)| (number.as_str(), shape.to_vec())))
}

/// What a batch has of the extra field `name` with these bytes.
#[pyfunction]
pub(crate) fn field_content<'py>(
    py: Python<'py>,
    name: &str,
    kind: &str,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let of: FieldKind = kind.parse().map_err(PyValueError::new_err)?;
    let content = of.content(name, bytes);
    let content =
        content.map_err(|got| PyValueError::new_err(format!("field {name:?} is to be {kind}, and is {got}")));
    Ok(PyBytes::new(py, content?))
}

/// The job of a document.
pub(crate) fn job(document: &str) -> PyResult<JobSpec> {
    JobSpec::from_text(document).map_err(|error| refused(&error))
}

pub(crate) fn refused(error: &SpecError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Why the plan of this job has one stratum only; None if it may have several.
#[pyfunction]
pub(crate) fn drawn_whole(document: &str) -> PyResult<Option<&'static str>> {
    Ok(job(document)?.plan.drawn_whole())
}

/// Whether the nodes of this job pool their scores before each epoch.
#[pyfunction]
pub(crate) fn pools_scores(document: &str) -> PyResult<bool> {
    Ok(job(document)?.pools_scores())
}

/// The number of strata of a plan for this number of nodes.
#[pyfunction]
pub(crate) fn strata_for(ranks_per_node: u32, nodes: u32, samples: u32) -> u32 {
    shade_job::strata_for(ranks_per_node, nodes, samples)
}

/// Refuses an impossible value of the field `name` of a job or its plan.
#[pyfunction]
pub(crate) fn check_field(name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(scalar) = scalar(value) else {
        let got = value.repr()?;
        let text = format!("{name}: got {got}, expected a finite number, True, False or a text");
        return Err(PyTypeError::new_err(text));
    };
    JobSpec::check_field(name, &scalar).map_err(|error| refused(&error))
}

/// A bool, number or text of Python as a JSON value, or a list of these.
fn scalar(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(list) = value.cast::<PyList>() {
        return list.iter().map(|value| scalar(&value)).collect();
    }
    // Python's bool is an int, and its float is not.
    if let Ok(flag) = value.extract::<bool>() {
        return Ok(flag.into());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text.into());
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract::<u64>().map(Value::from).or_else(|_| value.extract::<i64>().map(Value::from));
    }
    let number = Number::from_f64(value.extract()?);
    number.map(Value::Number).ok_or_else(|| PyValueError::new_err("not a finite number"))
}

impl DaemonDict {
    pub(crate) fn into_options(self, dataset: &Path) -> PyResult<Options> {
        let timeout = seconds("timeout", self.timeout_seconds)?;
        let settings = Settings::from_text(&self.settings).map_err(|error| refused(&error))?;
        let launch = Launch::new(self.binary, dataset, self.socket.as_deref(), &settings);
        Ok(Options {
            socket: self.socket,
            launch: Some(launch),
            timeout,
            settings,
            or_free_name: self.or_free_name,
            survive: self.survive,
            deaths_max: self.deaths_max,
        })
    }
}

/// A duration from Python's float seconds.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| PyValueError::new_err(format!("{name}: {value}: {error}")))
}

/// The bytes of the table with these values, one for each sample, and their digest.
#[pyfunction]
pub(crate) fn weight_table<'py>(py: Python<'py>, values: Vec<f64>) -> PyResult<(Bound<'py, PyBytes>, u64)> {
    let table = py.detach(|| WeightTable::new(values.iter().copied())).map_err(|error| refused(&error))?;
    Ok((PyBytes::new(py, &table.to_bytes()), table.digest()))
}

/// The table that `bytes` of [`weight_table`] are.
pub(crate) fn weights_of(bytes: &[u8]) -> PyResult<WeightTable> {
    let samples = u32::try_from(bytes.len() / size_of::<u32>());
    let samples = samples.map_err(|_| PyValueError::new_err("weights: more than 2^32 of them"))?;
    WeightTable::from_bytes(bytes, samples).map_err(|error| refused(&error))
}

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

/// How much of each of `strata` strata the daemon of the dataset in `folder` has cached, and their
/// number; 0 strata are those of the last training there. (0, b"") if no daemon answers.
#[pyfunction]
pub(crate) fn held<'py>(
    py: Python<'py>,
    folder: PathBuf,
    socket: Option<PathBuf>,
    strata: u32,
) -> PyResult<(u32, Bound<'py, PyBytes>)> {
    let ask = move || shade_client::held(&folder, socket.as_deref(), strata);
    let held = on_thread(py, "shade-ask", ask)?.map_err(|error| from_client(&error))?;
    let (strata, held) = held.unwrap_or_default();
    Ok((strata, PyBytes::new(py, &held)))
}

/// The stratum of each seat by which nodes keep what they hold, 4 bytes each; b"" if seat q has
/// stratum q. `node_of` has the node of each rank, `held` what each node has cached.
#[pyfunction]
pub(crate) fn seats_for(
    py: Python<'_>,
    samples: u32,
    strata: u32,
    node_of: Vec<u32>,
    held: Vec<Vec<u8>>,
) -> Bound<'_, PyBytes> {
    let held: Vec<_> = held.iter().map(|bytes| held_from_bytes(bytes, strata)).collect();
    let seats = py.detach(|| shade_job::seats_for(samples, strata, &node_of, &held));
    PyBytes::new(py, &seats.to_bytes())
}
