//! A session with the daemon for Python: waits release the interpreter, and Ctrl-C ends them.

use std::ffi::CString;
use std::fmt::Display;
use std::iter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyDict};
use shade_client::{ClientError, Next, Tables};

use crate::batch::Batch;
use crate::dlpack::read_floats;
use crate::error::{LoaderTimeout, ShadeError, from_client};
use crate::records::{ContentTuple, Fields, content_tuple};
use crate::spec::{DaemonDict, job as job_of, seconds, subset_of, weights_of};
use crate::wait::{SLICE, on_thread};

/// Batches held by a loop that keeps none: its variable has the last one until it gets the next.
const HELD_IN_A_LOOP: usize = 1;

/// One rank's session. Threads may share it.
#[pyclass(frozen, module = "shade_load._native")]
pub(crate) struct Session {
    /// The process that connected. Forked children share its socket and ring and must not use them.
    owner_pid: u32,
    /// None once closed. Waits happen outside the lock.
    session: Mutex<Option<Arc<shade_client::Session>>>,
    /// The epoch under way and the next batch of it, for messages.
    awaited: Mutex<(u32, u32)>,
    /// Time spent in `next`: the trainer's stall.
    stall_ns: AtomicU64,
    /// The warning that kept batches turn others into copies.
    warning: Mutex<Warning>,
}

/// A warning that is given once, before a batch is taken: where warnings are errors, a batch taken
/// before would be lost.
#[derive(Default)]
enum Warning {
    #[default]
    None,
    Due(CString),
    Given,
}

#[pymethods]
impl Session {
    /// Attaches as `rank` of `job`, starting a private daemon if none answers.
    /// `tables`: the bytes of the table that the sampler `weighted` draws by, and of the samples
    /// that the job delivers.
    #[staticmethod]
    #[pyo3(signature = (dataset, job, rank, document, daemon, tables = (None, None)))]
    fn connect(
        py: Python<'_>,
        dataset: PathBuf,
        job: String,
        rank: u32,
        document: &str,
        daemon: DaemonDict,
        tables: (Option<PyBackedBytes>, Option<PyBackedBytes>),
    ) -> PyResult<Self> {
        let spec = job_of(document)?;
        let options = daemon.into_options(&dataset)?;
        // After an interrupt a late session is dropped, which ends it.
        let weights = tables.0.as_deref().map(weights_of).transpose()?;
        let tables = Tables { weights, subset: tables.1.as_deref().map(subset_of).transpose()? };
        let connect =
            move || shade_client::Session::connect_with(&dataset, &job, rank, spec, tables, &options);
        let session = on_thread(py, "shade-connect", connect)?.map_err(|error| from_client(&error))?;
        Ok(Self {
            owner_pid: std::process::id(),
            session: Mutex::new(Some(Arc::new(session))),
            awaited: Mutex::default(),
            stall_ns: AtomicU64::new(0),
            warning: Mutex::default(),
        })
    }

    /// Name of the job, as the daemon has it.
    #[getter]
    fn job(&self) -> PyResult<String> {
        Ok(self.open()?.job())
    }

    #[getter]
    fn daemon_pid(&self) -> PyResult<u32> {
        Ok(self.open()?.daemon_pid())
    }

    /// The daemon's settings, a JSON object.
    #[getter]
    fn settings(&self) -> PyResult<String> {
        Ok(serde_json::Value::Object(self.open()?.settings()).to_string())
    }

    #[getter]
    fn samples(&self) -> PyResult<u32> {
        Ok(self.open()?.samples())
    }

    #[getter]
    fn batches_per_epoch(&self) -> PyResult<u32> {
        Ok(self.open()?.batches_per_epoch())
    }

    /// Identity of the dataset's content, as 32 hexadecimal digits.
    #[getter]
    fn content_id(&self) -> PyResult<String> {
        Ok(self.open()?.content_id().to_string())
    }

    /// The dataset's content, for [`RecordReader::open`](crate::records::RecordReader::open).
    #[getter]
    fn content(&self) -> PyResult<ContentTuple> {
        Ok(content_tuple(self.open()?.content()))
    }

    /// Samples of the dataset when the session was opened: more than [`Session::samples`] if it was
    /// added to since the daemon opened it.
    #[getter]
    fn samples_present(&self) -> PyResult<u32> {
        Ok(self.open()?.present_content().samples)
    }

    /// A reader of samples' extra fields, through the page cache or past it. It opens nothing
    /// before the first request.
    fn fields(&self, buffered: bool) -> PyResult<Fields> {
        Ok(Fields::new(self.open()?.fields(buffered)))
    }

    /// Seconds spent in `next` since the start.
    #[getter]
    fn stall_seconds(&self) -> f64 {
        Duration::from_nanos(self.stall_ns.load(Ordering::Relaxed)).as_secs_f64()
    }

    /// How often the daemon has died and was replaced.
    #[getter]
    fn successors(&self) -> PyResult<u32> {
        Ok(self.open()?.successors())
    }

    /// Nobody has registered the rings of former daemons with a device any more.
    fn let_go_of_former_payloads(&self) -> PyResult<()> {
        self.open()?.let_go_of_former_payloads();
        Ok(())
    }

    /// Address and length of the batches' memory: another one after each successor.
    #[getter]
    fn payload(&self) -> PyResult<(usize, usize)> {
        let payload = self.open()?.payload();
        Ok((payload.ptr.addr(), payload.count))
    }

    /// Delivered batches that are still in the ring, held by a variable, tensor or view; without
    /// copies.
    #[getter]
    fn held(&self) -> PyResult<usize> {
        Ok(self.open()?.held().map_err(|error| from_client(&error))?.batches)
    }

    /// Seconds since the daemon's last sign of life; none before its first. A running daemon gives
    /// several a second.
    #[getter]
    fn heartbeat_age(&self) -> PyResult<Option<f64>> {
        let age = self.open()?.heartbeat_age().map_err(|error| from_client(&error))?;
        Ok(age.map(|age| age.as_secs_f64()))
    }

    /// Refuses to work in a forked child and after `close`.
    fn check_open(&self) -> PyResult<()> {
        self.open().map(drop)
    }

    /// Starts `epoch` at `first_batch`. An earlier epoch's batches in the ring are never seen. The
    /// number of this start, for `next`.
    fn start_epoch(&self, py: Python<'_>, epoch: u32, first_batch: u32) -> PyResult<u32> {
        let start = self.call(py, |session| {
            session.start_epoch(epoch, first_batch)?;
            Ok(session.starts())
        })?;
        *lock(&self.awaited) = (epoch, first_batch);
        Ok(start)
    }

    /// The epoch's next batch, or none at its end. Waits up to `timeout_seconds`. In between it
    /// calls `check`, which may raise what ends the wait. `start` is the number of the epoch's:
    /// `AnotherStart` is raised if there was another one since.
    #[pyo3(signature = (timeout_seconds, start, check=None))]
    fn next(
        &self,
        py: Python<'_>,
        timeout_seconds: f64,
        start: u32,
        check: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Batch>> {
        let timeout = seconds("timeout", timeout_seconds)?;
        let begun = Instant::now();
        let outcome = self.wait_next(py, begun, timeout, start, check);
        let waited_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.stall_ns.fetch_add(waited_ns, Ordering::Relaxed);
        outcome
    }

    /// Sends losses of a batch's first samples, in its order: a one-dimensional CPU tensor or a
    /// sequence of floats.
    fn report(&self, py: Python<'_>, batch: &Batch, losses: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_open()?;
        let losses = floats(losses)?;
        self.call(py, |session| session.report(batch.id(), &losses))
    }

    /// Sends the score of a validation run; higher is better.
    fn report_validation(&self, py: Python<'_>, score: f64) -> PyResult<()> {
        self.call(py, |session| session.report_validation(score))
    }

    /// The daemon's figures as JSON text.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let figures = self.ask(py, |session| session.stats())?;
        // They count successors: each has been told of by now.
        self.warn_of_successors(py)?;
        Ok(figures)
    }

    /// Gives the daemon's cache another size. Returns its capacity in bytes.
    fn resize_cache(&self, py: Python<'_>, cache: String) -> PyResult<u64> {
        self.ask(py, move |session| session.resize_cache(&cache))
    }

    /// The daemon's state of this job, for [`Session::load_state`].
    /// It goes on before batch `batch` of `epoch`.
    fn save_state<'py>(&self, py: Python<'py>, epoch: u32, batch: u32) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.ask(py, move |session| session.save_state(epoch, batch))?;
        Ok(PyBytes::new(py, &state))
    }

    /// Restores the daemon's state of this job, of `strata` strata unless that is 0. Returns the
    /// epoch that goes on, its first batch, and its batches with those before.
    fn load_state(&self, py: Python<'_>, state: Vec<u8>, strata: u32) -> PyResult<(u32, u32, u32)> {
        let resumed = self.ask(py, move |session| session.load_state(&state, strata))?;
        Ok((resumed.epoch, resumed.first_batch, resumed.batches))
    }

    /// Tells the stratum of each seat of the job's plans.
    fn seat(&self, py: Python<'_>, strata: Vec<u8>) -> PyResult<()> {
        self.ask(py, move |session| session.seat(&strata))
    }

    /// What other nodes need to know of the scores here once `epoch` is drawn; empty if nothing.
    fn tell_scores<'py>(&self, py: Python<'py>, epoch: u32) -> PyResult<Bound<'py, PyBytes>> {
        let scores = self.call(py, |session| session.tell_scores(epoch))?;
        Ok(PyBytes::new(py, &scores))
    }

    /// Hands in what another node has told.
    fn take_scores(&self, py: Python<'_>, scores: Vec<u8>) -> PyResult<()> {
        self.call(py, |session| session.take_scores(&scores))
    }

    /// Leaves the daemon. Kept batches stay valid. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        let Some(session) = lock(&self.session).take() else { return Ok(()) };
        // Nobody may have asked for anything since.
        let news: Vec<_> = iter::from_fn(|| session.take_warning()).collect();
        py.detach(|| drop(session));
        news.iter().try_for_each(|text| warn(py, text))
    }
}

impl Drop for Session {
    /// Leaves the daemon, whose goodbye it awaits, with the interpreter free for others.
    fn drop(&mut self) {
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if session.is_some() {
            // None while the interpreter ends: then nobody else needs it.
            let _ = Python::try_attach(|py| py.detach(|| drop(session)));
        }
    }
}

impl Session {
    fn wait_next(
        &self,
        py: Python<'_>,
        begun: Instant,
        timeout: Duration,
        start: u32,
        check: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Batch>> {
        self.give_warning(py)?;
        loop {
            self.warn_of_successors(py)?;
            let left = timeout.saturating_sub(begun.elapsed());
            match self.call(py, |session| session.next_since(start, SLICE.min(left)))? {
                Next::Batch(batch) => {
                    lock(&self.awaited).1 = batch.descriptor().batch.saturating_add(1);
                    if batch.is_copy() {
                        self.note_copies();
                    }
                    return Ok(Some(Batch::new(batch)));
                }
                Next::EpochEnd => return Ok(None),
                Next::Pending => py.check_signals()?,
            }
            check.map(Bound::call0).transpose()?;
            let waited = begun.elapsed();
            if waited >= timeout {
                return Err(LoaderTimeout::new_err(self.waiting_text(waited)?));
            }
        }
    }

    fn waiting_text(&self, waited: Duration) -> PyResult<String> {
        let (epoch, batch) = *lock(&self.awaited);
        Ok(format!(
            "waited {:.1} s for batch {batch} of epoch {epoch} from daemon {}",
            waited.as_secs_f64(),
            self.daemon_pid()?
        ))
    }

    /// Makes the warning due that keeping batches has a cost. A loop that keeps none may rarely get
    /// a copy, too, if the ring is small and batches' lengths differ; that is no reason to warn.
    fn note_copies(&self) {
        let mut warning = lock(&self.warning);
        let Warning::None = *warning else { return };
        // A session that was closed meanwhile needs no warning.
        let Some(held) = self.open().ok().and_then(|session| session.held().ok()) else { return };
        if held.batches <= HELD_IN_A_LOOP {
            return;
        }
        let enlarge = if held.is_short_of_bytes {
            format!(", or raise Daemon(ring=...), now {:.1} MiB", held.ring_bytes as f64 / f64::from(1 << 20))
        } else {
            String::new()
        };
        let text = format!(
            "{} batches are held by variables, tensors or views, and no more may stay in shared memory, where the daemon \
             needs room for the next. Until some are dropped, new batches are copied to this process's memory, which \
             costs time and memory. clone() what you keep of a batch and drop the batch{enlarge}",
            held.batches
        );
        // The text has no zero byte.
        *warning = CString::new(text).map_or(Warning::Given, Warning::Due);
    }

    /// Warns of each daemon that was replaced, before a batch of its successor is taken.
    fn warn_of_successors(&self, py: Python<'_>) -> PyResult<()> {
        while let Some(text) = self.open()?.take_warning() {
            warn(py, &text)?;
        }
        Ok(())
    }

    /// Gives the warning that is due.
    fn give_warning(&self, py: Python<'_>) -> PyResult<()> {
        // Taken before Python runs, which may call this function again on this thread.
        let due = match &mut *lock(&self.warning) {
            warning @ Warning::Due(_) => std::mem::replace(warning, Warning::Given),
            _ => return Ok(()),
        };
        let Warning::Due(text) = due else { return Ok(()) };
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
    }

    /// Calls `work` with the session, detached from the interpreter.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&shade_client::Session) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let session = self.open()?;
        // Moved: another thread may close the session meanwhile, and then this is the last to hold
        // it, whose drop waits for the daemon.
        py.detach(move || work(&session)).map_err(|error| from_client(&error))
    }

    /// Asks the daemon a question that may take long to answer; Ctrl-C ends the wait. The waiting
    /// thread still takes the late answer, so that it is never mistaken for the next question's.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&shade_client::Session) -> Result<T, ClientError> + Send + 'static,
    ) -> PyResult<T> {
        let session = self.open()?;
        on_thread(py, "shade-ask", move || question(&session))?.map_err(|error| from_client(&error))
    }

    fn open(&self) -> PyResult<Arc<shade_client::Session>> {
        self.check_process()?;
        lock(&self.session).clone().ok_or_else(|| ShadeError::new_err("the Loader is closed"))
    }

    /// Before any lock: another thread may have held it during the fork.
    fn check_process(&self) -> PyResult<()> {
        let here = std::process::id();
        if here != self.owner_pid {
            return Err(from_client(&ClientError::Forked { owner: self.owner_pid, here }));
        }
        Ok(())
    }
}

/// A panic elsewhere leaves nothing half-done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Warns of something that happened to the daemon.
fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text).map_err(|error| ShadeError::new_err(error.to_string()))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
}

/// Losses as float32, from a tensor or a sequence of numbers.
fn floats(losses: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let py = losses.py();
    let kind = losses.get_type().name()?;
    let unfit = |why: &dyn Display| {
        let text = format!("losses: got a {kind}, expected a tensor or a sequence of floats{why}");
        PyTypeError::new_err(text)
    };
    if losses.hasattr("__dlpack__")? {
        let newest = PyDict::new(py);
        newest.set_item("max_version", (1, 0))?;
        let capsule = match losses.call_method("__dlpack__", (), Some(&newest)) {
            // Exporters from before DLPack 1.0 do not know the argument.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => losses.call_method0("__dlpack__"),
            other => other,
        };
        return read_floats(&capsule.map_err(|error| unfit(&format_args!(": {}", error.value(py))))?);
    }
    if losses.is_instance_of::<PyBytes>() || losses.is_instance_of::<PyByteArray>() {
        return Err(unfit(&""));
    }
    losses.extract().map_err(|_| unfit(&""))
}
