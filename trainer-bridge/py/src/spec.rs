//! Arguments of [`Session::connect`](crate::session::Session): dictionaries, checked field by
//! field.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList};
use serde_json::{Map, Number, Value};
use shade_client::{Framing, ImageSpec, JobSpec, Launch, Options, Output, PixelSteps, Views, pixel_steps};
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;

/// How decoded images become rows of one size; with the framing "none", of their own sizes. Fields
/// that the framing does not use are ignored.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ImageDict {
    height: u32,
    width: u32,
    framing: String,
    short: u32,
    padding: u32,
    scale: [f64; 2],
    ratio: [f64; 2],
    flip: f64,
    flip_down: f64,
    channels_last: bool,
    exact: bool,
    grey: bool,
    /// The operations on pixels, as a JSON list.
    pixels: String,
}

/// The daemon's address, and how to start one if none listens.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DaemonDict {
    /// None: the abstract socket named after user and dataset.
    socket: Option<PathBuf>,
    binary: PathBuf,
    arguments: Vec<OsString>,
    /// The requested settings, which a running daemon is compared with.
    settings: Vec<(String, String)>,
    timeout_seconds: f64,
    /// Whether the next free name will do where another training has the job's.
    or_free_name: bool,
}

/// A job, equal in all its ranks: a dictionary of the fields of [`JobSpec`] and its plan, by name.
/// Its output is under "images": see [`output`].
pub(crate) struct Job(pub(crate) JobSpec);

impl FromPyObject<'_, '_> for Job {
    type Error = PyErr;

    fn extract(job: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut fields = Map::new();
        let mut spec_output = Output::Raw;
        for (name, value) in job.cast::<PyDict>()?.iter() {
            let name: String = name.extract()?;
            if name != "images" {
                fields.insert(name, scalar(&value)?);
            } else {
                spec_output = output(&value)?;
            }
        }
        let mut spec: JobSpec = serde_json::from_value(Value::Object(fields))
            .map_err(|error| PyValueError::new_err(format!("job: {error}")))?;
        let ring_bytes = spec.ring_bytes.checked_next_multiple_of(PAYLOAD_ALIGN_BYTES);
        spec.ring_bytes = ring_bytes.ok_or_else(|| PyValueError::new_err("Daemon(ring=...): too large"))?;
        spec.output = spec_output;
        Ok(Self(spec))
    }
}

/// The digest of a group's name, as a job has it.
#[pyfunction]
pub(crate) fn group_digest(name: &str) -> u64 {
    shade_formats::control::group_digest(name)
}

/// The number of strata of a plan for this number of nodes.
#[pyfunction]
pub(crate) fn strata_for(ranks_per_node: u32, nodes: u32, samples: u32) -> u32 {
    shade_formats::control::strata_for(ranks_per_node, nodes, samples)
}

/// Refuses a JSON list of operations on pixels that no daemon can do on rows of this size.
#[pyfunction]
pub(crate) fn check_pixels(list: &str, height: u32, width: u32) -> PyResult<()> {
    let checked = parsed_steps(list)?.validate(height, width);
    checked.map_err(|error| PyValueError::new_err(format!("decode: {error}")))
}

fn parsed_steps(list: &str) -> PyResult<PixelSteps> {
    let list = serde_json::from_str(list).map_err(|error| error.to_string());
    list.and_then(pixel_steps).map_err(|text| PyValueError::new_err(format!("decode: {text}")))
}

/// Refuses an impossible value of the field `name` of a job or its plan.
#[pyfunction]
pub(crate) fn check_field(name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(scalar) = scalar(value) else {
        let got = value.repr()?;
        let text = format!("{name}: got {got}, expected a finite number, True, False or a text");
        return Err(PyTypeError::new_err(text));
    };
    JobSpec::check_field(name, scalar).map_err(|error| PyValueError::new_err(error.to_string()))
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

/// What a batch holds: None for raw records, one [`ImageDict`] or a list of views.
fn output(images: &Bound<'_, PyAny>) -> PyResult<Output> {
    if images.is_none() {
        return Ok(Output::Raw);
    }
    if let Ok(views) = images.cast::<PyList>() {
        let specs = views.iter().map(|view| view.extract::<ImageDict>()?.into_spec());
        let views = Views::new(&specs.collect::<PyResult<Vec<_>>>()?);
        let views = views.map_err(|error| PyValueError::new_err(format!("decode: {error}")))?;
        return Ok(Output::Decoded(views));
    }
    let images: ImageDict = images.extract()?;
    if images.framing == "none" {
        return Ok(Output::Ragged { channels_last: images.channels_last });
    }
    images.into_spec().map(Output::from)
}

impl ImageDict {
    fn into_spec(self) -> PyResult<ImageSpec> {
        let Self { height, width, short, padding, scale, ratio, .. } = self;
        let Self { flip, flip_down, channels_last, exact, grey, pixels, .. } = self;
        let framing = match self.framing.as_str() {
            "cover" => Framing::Cover,
            "stretch" => Framing::Stretch,
            "center" => Framing::Center { short },
            "random" => Framing::Random { short, padding },
            "random_resized" => Framing::RandomResized { scale, ratio },
            other => return Err(PyValueError::new_err(format!("framing {other:?} is unknown"))),
        };
        let pixels = parsed_steps(&pixels)?;
        Ok(ImageSpec { height, width, framing, flip, flip_down, channels_last, exact, grey, pixels })
    }
}

impl DaemonDict {
    pub(crate) fn into_options(self) -> PyResult<Options> {
        let timeout = seconds("timeout", self.timeout_seconds)?;
        let launch = Launch { binary: self.binary, args: self.arguments };
        let settings = self.settings.into_iter().collect();
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
