//! `shade_load._native`: the Python binding of `shade-client`: a session, its batches, and DLPack
//! views of their columns.
//!
//! [`session`] talks to the daemon, [`batch`] holds a slot of the ring, [`dlpack`] and [`buffer`]
//! export its columns, [`records`] reads from the dataset, [`normalize`] converts images in other
//! libraries' tensors ([`dense`]) to floats, [`spec`] makes documents and tables of a job and asks
//! what daemons hold, [`wait`] waits, [`error`] has the exceptions. The public classes (`Loader`,
//! `Batch`, `ImageFolder`) are Python code on top of this.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};
use shade_formats::control::PROTOCOL;
use shade_job::{JobSpec, LINGERS_FOR_EVER, Order, Policy, Preset, Sampler, Tail};

mod batch;
mod buffer;
mod dense;
mod dlpack;
mod error;
mod normalize;
mod records;
mod session;
mod spec;
mod wait;

/// Registers the module's types. Safe without the GIL: every shared state has its own lock.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add("PROTOCOL", PROTOCOL)?;
    let python = module.py();
    module.add("SAMPLERS", names(python, Sampler::ALL, Sampler::as_str)?)?;
    module.add("ORDERS", names(python, Order::ALL, Order::as_str)?)?;
    module.add("POLICIES", names(python, Policy::ALL, Policy::as_str)?)?;
    module.add("LINGERS_FOR_EVER", LINGERS_FOR_EVER)?;
    let settings = |preset: &Preset| {
        (preset.as_str(), (preset.policy().as_str(), preset.cache().map(|cache| cache.to_string())))
    };
    module.add("PRESETS", Preset::ALL.iter().map(settings).collect::<Vec<_>>().into_py_dict(python)?)?;
    module.add("DEFAULTS", JobSpec { tail: Tail::Even, ..JobSpec::default() }.to_text())?;
    module.add_class::<session::Session>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::View>()?;
    module.add_class::<records::Fields>()?;
    module.add_class::<records::RecordReader>()?;
    module.add_function(wrap_pyfunction!(normalize::fill_floats, module)?)?;
    module.add_function(wrap_pyfunction!(records::dataset_content, module)?)?;
    module.add_function(wrap_pyfunction!(records::dataset_folder, module)?)?;
    module.add_function(wrap_pyfunction!(spec::held, module)?)?;
    module.add_function(wrap_pyfunction!(spec::seats_for, module)?)?;
    module.add_function(wrap_pyfunction!(spec::job_document, module)?)?;
    module.add_function(wrap_pyfunction!(spec::daemon_settings, module)?)?;
    module.add_function(wrap_pyfunction!(spec::field_kind, module)?)?;
    module.add_function(wrap_pyfunction!(spec::field_row, module)?)?;
    module.add_function(wrap_pyfunction!(spec::field_content, module)?)?;
    module.add_function(wrap_pyfunction!(spec::drawn_whole, module)?)?;
    module.add_function(wrap_pyfunction!(spec::pools_scores, module)?)?;
    module.add_function(wrap_pyfunction!(spec::check_field, module)?)?;
    module.add_function(wrap_pyfunction!(spec::strata_for, module)?)?;
    module.add_function(wrap_pyfunction!(spec::subset, module)?)?;
    module.add_function(wrap_pyfunction!(spec::weight_table, module)?)?;
    error::register(module)
}

/// The names of a choice.
fn names<'py, T: Copy>(
    python: Python<'py>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(python, all.iter().map(|&value| name(value)))
}
