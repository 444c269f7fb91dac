//! `shade_load._native`: the Python face of `shade-client`. A session, its batches, and DLPack views of their columns.
//!
//! [`session`] waits and talks, [`batch`] holds a slot of the ring, [`dlpack`] passes memory, [`fields`] reads from the dataset,
//! [`error`] names exceptions. What users see (`Loader`, `Batch`) is written in Python on top of this.

use pyo3::prelude::*;

mod batch;
mod dlpack;
mod error;
mod fields;
mod session;
mod spec;

/// Registers the module's types. Safe without the GIL: every shared state has its own lock.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add_class::<session::Session>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::View>()?;
    module.add_class::<fields::Fields>()?;
    error::register(module)
}
