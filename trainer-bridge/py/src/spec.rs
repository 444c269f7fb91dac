//! Arguments of [`Session::connect`](crate::session::Session), and the job's document.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use serde_json::{Number, Value};
use shade_client::{JobSpec, Launch, Options, Settings, SpecError};

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
}

/// The document of a job with these arguments, a JSON object of them: see
/// [`JobSpec::from_arguments`].
#[pyfunction]
pub(crate) fn job_document(arguments: &str) -> PyResult<String> {
    let arguments =
        serde_json::from_str(arguments).map_err(|error| PyValueError::new_err(error.to_string()))?;
    JobSpec::from_arguments(arguments).map(|spec| spec.to_text()).map_err(|error| refused(&error))
}

/// These settings of a daemon, a JSON object, with each value as the daemon has it.
#[pyfunction]
pub(crate) fn daemon_settings(given: &str) -> PyResult<String> {
    Settings::from_text(given).map(|settings| settings.to_text()).map_err(|error| refused(&error))
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

/// A bool, number or text of Python as a JSON value.
fn scalar(value: &Bound<'_, PyAny>) -> PyResult<Value> {
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
        })
    }
}

/// A duration from Python's float seconds.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| PyValueError::new_err(format!("{name}: {value}: {error}")))
}
