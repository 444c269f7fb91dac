//! What Python passes to [`Session::connect`](crate::session::Session): dictionaries, checked field by field.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shade_client::{Framing, ImageSpec, JobSpec, Launch, Options, Output, PlanSpec};
use shade_formats::control::UnknownName;
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;

/// A job: equal in all its ranks. Field meanings: `Loader`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct JobDict {
    sampler: String,
    order: String,
    seed: u64,
    rep: f64,
    hit_cap: f64,
    cover: u32,
    explore: f64,
    pace: bool,
    draw_ahead: bool,
    batch_size: u32,
    world_size: u32,
    tail: String,
    /// None for raw records.
    images: Option<ImageDict>,
    on_error: String,
    bad_max: f64,
    /// Rounded up to whole pages; 0 lets the daemon choose.
    ring_bytes: u64,
}

/// How decoded images become rows of one size; with the framing "none" each row has the image's own. What the framing does
/// not use is ignored.
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
    channels_last: bool,
    exact: bool,
}

/// Where the daemon listens, and how to start one where none does.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DaemonDict {
    /// None: the abstract socket named after user, dataset and job.
    socket: Option<PathBuf>,
    binary: PathBuf,
    arguments: Vec<OsString>,
    /// What the daemon is compared with.
    settings: Vec<(String, String)>,
    timeout_seconds: f64,
}

impl JobDict {
    pub(crate) fn into_spec(self) -> PyResult<JobSpec> {
        let ring_bytes = self.ring_bytes.checked_next_multiple_of(PAYLOAD_ALIGN_BYTES);
        let output = self.images.map_or(Ok(Output::Raw), ImageDict::into_output)?;
        let plan = PlanSpec {
            sampler: named(&self.sampler)?,
            order: named(&self.order)?,
            seed: self.seed,
            rep: self.rep,
            hit_cap: self.hit_cap,
            cover: self.cover,
            explore: self.explore,
            pace: self.pace,
            draw_ahead: self.draw_ahead,
        };
        Ok(JobSpec {
            plan,
            batch_size: self.batch_size,
            world_size: self.world_size,
            tail: named(&self.tail)?,
            output,
            on_error: named(&self.on_error)?,
            bad_max: self.bad_max,
            ring_bytes: ring_bytes.ok_or_else(|| PyValueError::new_err("ring: too large"))?,
        })
    }
}

impl ImageDict {
    fn into_output(self) -> PyResult<Output> {
        let Self { height, width, short, padding, scale, ratio, flip, channels_last, exact, .. } = self;
        let framing = match self.framing.as_str() {
            "none" => return Ok(Output::Ragged { channels_last }),
            "cover" => Framing::Cover,
            "stretch" => Framing::Stretch,
            "center" => Framing::Center { short },
            "random" => Framing::Random { short, padding },
            "random_resized" => Framing::RandomResized { scale, ratio },
            other => return Err(PyValueError::new_err(format!("framing {other:?} is unknown"))),
        };
        Ok(Output::Decoded(ImageSpec { height, width, framing, flip, channels_last, exact }))
    }
}

impl DaemonDict {
    pub(crate) fn into_options(self) -> PyResult<Options> {
        let timeout = seconds("timeout", self.timeout_seconds)?;
        let launch = Launch { binary: self.binary, args: self.arguments };
        let settings = self.settings.into_iter().collect();
        Ok(Options { socket: self.socket, launch: Some(launch), timeout, settings })
    }
}

/// A duration from Python's float seconds.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| PyValueError::new_err(format!("{name}: {value}: {error}")))
}

/// A choice by its name.
fn named<T: FromStr<Err = UnknownName>>(name: &str) -> PyResult<T> {
    name.parse().map_err(|error: UnknownName| PyValueError::new_err(error.to_string()))
}
