//! Seats of a plan: what daemons have cached, and which stratum each seat gets by it.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shade_job::held_from_bytes;

use crate::error::from_client;
use crate::wait::on_thread;

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
