//! The calls. What stands above each is its text in the header.
//!
//! Handles and places for results come as `Option<&T>`, C's pointer that may be null: by the
//! header's contract they are null or valid while the call lasts.
#![expect(unsafe_code, reason = "C hands over texts, arrays and objects by address")]
#![expect(clippy::not_unsafe_ptr_arg_deref, reason = "only C calls them, and the header has the contract")]
#![expect(non_camel_case_types, reason = "C's names")]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use shade_client::dlpack::{Legacy as DLManagedTensor, export};
use shade_client::{Batch, BatchPart, Next, PartError, RecordReader, Session};

use crate::fault::{Fault, SHADE_END, SHADE_OK, SHADE_TIMEOUT, answer, last};
use crate::memory::{allocated, drop_box, given, null, put, put_text, text};
use crate::options::{Wanted, read};
use crate::position::Position;

/// One rank attached to a dataset's daemon.
pub struct shade_session {
    session: Session,
    dataset: PathBuf,
    buffered: bool,
    /// The epoch, and its next batch that is not delivered.
    position: Position,
}

impl shade_session {
    /// Says on standard error which daemons were replaced.
    fn tell_of_successors(&self) {
        while let Some(text) = self.session.take_warning() {
            // Without a standard error nobody wants to know.
            let _ = writeln!(std::io::stderr(), "shade: {text}");
        }
    }
}

impl Drop for shade_session {
    fn drop(&mut self) {
        // The caller may have asked for nothing since.
        self.tell_of_successors();
    }
}

/// A delivered batch. Its memory goes back to the daemon with it and the last of its tensors.
pub struct shade_batch {
    batch: Arc<Batch>,
}

/// Facts about a batch. Set `size` to sizeof(shade_batch_info): later versions have more.
#[repr(C)]
pub struct shade_batch_info {
    /// Bytes of this struct.
    pub size: usize,
    /// The epoch.
    pub epoch: u32,
    /// Number of the batch in the epoch.
    pub index: u32,
    /// Samples in the batch.
    pub rows: u32,
    /// Rows that were in the cache.
    pub hits: u32,
    /// Rows that were read.
    pub misses: u32,
    /// Samples that are missing, as they are bad.
    pub skipped: u32,
    /// Rows that stand in for bad samples.
    pub substituted: u32,
    /// Views of each image; 0 for raw records and images of their own sizes.
    pub views: u32,
}

/// Version of this interface: 1. Another one does not fit programs of this header.
#[unsafe(no_mangle)]
pub extern "C" fn shade_abi() -> u32 {
    1
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn shade_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Why this thread's last call that failed did. Valid until this thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn shade_error() -> *const c_char {
    last()
}

/// Attaches to the daemon of a dataset, or starts one: $SHADE_LOAD_BIN, else shade-load on PATH.
/// options_json is one object with the names of Python's Loader: {"batch_size": 256, "image_size":
/// 224}.
#[unsafe(no_mangle)]
pub extern "C" fn shade_open(
    dataset: *const c_char,
    options_json: *const c_char,
    out: Option<&mut MaybeUninit<*mut shade_session>>,
) -> c_int {
    answer(|| {
        let out = given(out, "out")?;
        let (folder, options) = (text(dataset, "dataset")?, text(options_json, "options_json")?);
        let dataset = shade_client::folder(Path::new(folder))?;
        let Wanted { job, rank, spec, tables, options, buffered } = read(options, &dataset)?;
        let session = Session::connect_with(&dataset, &job, rank, spec, tables, &options)?;
        let opened = shade_session { session, dataset, buffered, position: Position::default() };
        out.write(Box::into_raw(Box::new(opened)));
        Ok(SHADE_OK)
    })
}

/// Leaves the daemon. Batches and tensors stay valid. Null does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn shade_close(session: *mut shade_session) {
    drop_box(session);
}

/// Facts as a JSON object, for shade_free: samples, classes, batches_per_epoch, content_id, job,
/// daemon_pid.
#[unsafe(no_mangle)]
pub extern "C" fn shade_info(
    session: Option<&shade_session>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> c_int {
    answer(|| {
        let shade_session { session, dataset, buffered, .. } = given(session, "session")?;
        let reader = RecordReader::open(dataset, Some(session.content()), *buffered)?;
        let classes: Vec<_> = reader.class_names().map(String::from_utf8_lossy).collect();
        let facts = json!({
            "samples": session.samples(),
            "classes": classes,
            "batches_per_epoch": session.batches_per_epoch(),
            "content_id": session.content_id().to_string(),
            "job": session.job(),
            "daemon_pid": session.daemon_pid(),
        });
        put_text(json, &facts.to_string())
    })
}

/// Starts an epoch at this batch; 0 unless a state was loaded. All ranks do.
#[unsafe(no_mangle)]
pub extern "C" fn shade_start_epoch(session: Option<&shade_session>, epoch: u32, first_batch: u32) -> c_int {
    answer(|| {
        let session = given(session, "session")?;
        session.session.start_epoch(epoch, first_batch)?;
        session.position.stand_at(epoch, first_batch);
        Ok(SHADE_OK)
    })
}

/// A time to wait, in seconds.
fn wait_of(timeout_s: f64) -> Result<Duration, Fault> {
    if timeout_s == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(timeout_s).map_err(|error| {
        Fault::usage(format!("timeout_s: got {timeout_s}, expected seconds or INFINITY: {error}"))
    })
}

/// The epoch's next batch, for shade_batch_release; SHADE_END after the last. Waits up to timeout_s
/// seconds; INFINITY is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn shade_next(
    session: Option<&shade_session>,
    timeout_s: f64,
    out: Option<&mut MaybeUninit<*mut shade_batch>>,
) -> c_int {
    answer(|| {
        let session = given(session, "session")?;
        let out = out.ok_or_else(|| null("out"))?;
        let most = wait_of(timeout_s)?;
        let begun = Instant::now();
        loop {
            let next = session.session.next(most.saturating_sub(begun.elapsed()));
            session.tell_of_successors();
            match next? {
                Next::Batch(batch) => {
                    let facts = batch.descriptor();
                    session.position.took(facts.epoch, facts.batch);
                    out.write(Box::into_raw(Box::new(shade_batch { batch: Arc::new(batch) })));
                    return Ok(SHADE_OK);
                }
                Next::EpochEnd => {
                    session.position.ended();
                    return Ok(SHADE_END);
                }
                // A signal ends a wait early.
                Next::Pending if begun.elapsed() < most => {}
                Next::Pending => {
                    let (epoch, batch) = session.position.next();
                    let text = format!("no batch {batch} of epoch {epoch} within {timeout_s} s");
                    return Err(Fault { code: SHADE_TIMEOUT, text });
                }
            }
        }
    })
}

/// Fills in the facts about a batch.
#[unsafe(no_mangle)]
pub extern "C" fn shade_batch_describe(batch: Option<&shade_batch>, info: *mut shade_batch_info) -> c_int {
    answer(|| {
        let facts = given(batch, "batch")?.batch.descriptor();
        if info.is_null() {
            return Err(null("info"));
        }
        // SAFETY: not null, hence by the header's contract the address of a struct whose first
        // member is set.
        let size = unsafe { info.cast::<usize>().read() };
        let known = shade_batch_info {
            size: size.min(size_of::<shade_batch_info>()),
            epoch: facts.epoch,
            index: facts.batch,
            rows: facts.records,
            hits: facts.hits,
            misses: facts.misses,
            skipped: facts.skipped,
            substituted: facts.substituted,
            views: facts.views,
        };
        if known.size < size_of::<usize>() {
            return Err(Fault::usage(format!("info: size is {size}; set it to sizeof(shade_batch_info)")));
        }
        // SAFETY: the caller's struct has `size` bytes, and ours at least as many as are copied.
        unsafe { std::ptr::copy_nonoverlapping((&raw const known).cast::<u8>(), info.cast(), known.size) };
        Ok(SHADE_OK)
    })
}

/// A column as a tensor in place: "images" (uint8, or of the option "dtype"), "labels", "ids"
/// (int64), "weights" (float32), "flags" (int32). Where images have one size, "crops" (float32,
/// rows x 4: left, top, width and height of the part of the source that each shows) and "flipped"
/// (uint8; bit 0: mirrored from left to right, bit 1: from top to bottom); with several views
/// "images", "crops" and "flipped" are the first one's, and "images.1" and so on the others'. For
/// images of their own sizes "heights" and "widths" (int32). "fields.NAME" is an extra field whose
/// numbers have one shape in all samples, or a mask (uint8, rows x height x width), with several
/// views of the first; "fields.NAME.1" and so on are the others'. Its deleter gives it back.
#[unsafe(no_mangle)]
pub extern "C" fn shade_batch_tensor(
    batch: Option<&shade_batch>,
    column: *const c_char,
    out: Option<&mut MaybeUninit<*mut DLManagedTensor>>,
) -> c_int {
    answer(|| {
        let column = text(column, "column")?;
        if let Some(field) = column.strip_prefix("fields.") {
            let (at, view) = field_at(&given(batch, "batch")?.batch, field)?;
            return put_tensor(batch, BatchPart::Field(at, view), out);
        }
        let unknown = || Fault::usage(format!("column: there is no {column:?}"));
        let (name, view) = match column.split_once('.') {
            Some((name @ ("images" | "crops" | "flipped"), view)) => {
                (name, view.parse().map_err(|_| unknown())?)
            }
            _ => (column, 0),
        };
        let part = match name {
            "images" => BatchPart::Images(view),
            "crops" => BatchPart::Crops(view),
            "flipped" => BatchPart::Flipped(view),
            "labels" => BatchPart::Labels,
            "ids" => BatchPart::Ids,
            "weights" => BatchPart::Weights,
            "flags" => BatchPart::Flags,
            "heights" => BatchPart::Heights,
            "widths" => BatchPart::Widths,
            _ => return Err(unknown()),
        };
        put_tensor(batch, part, out)
    })
}

/// The image of one row as a tensor in place, where images have their own sizes.
#[unsafe(no_mangle)]
pub extern "C" fn shade_batch_image(
    batch: Option<&shade_batch>,
    row: u32,
    out: Option<&mut MaybeUninit<*mut DLManagedTensor>>,
) -> c_int {
    answer(|| put_tensor(batch, BatchPart::Image(row), out))
}

/// The record of one row of a raw batch, in place: valid until the batch is released.
#[unsafe(no_mangle)]
pub extern "C" fn shade_batch_record(
    batch: Option<&shade_batch>,
    row: u32,
    bytes: Option<&mut MaybeUninit<*const u8>>,
    len: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    answer(|| {
        let located = BatchPart::Record(row).locate(&given(batch, "batch")?.batch)?;
        put(bytes, "bytes", located.data.as_ptr().cast_const())?;
        put(len, "len", located.bytes)
    })
}

/// An extra field of one row, in place: valid until the batch is released. Its bytes are a null
/// pointer where the sample has no such field. One whose numbers have one shape in all samples is a
/// tensor instead: shade_batch_tensor with "fields.NAME". What follows the image, such as boxes, is
/// of the first view; "NAME.1" and so on are those of the others.
#[unsafe(no_mangle)]
pub extern "C" fn shade_batch_field(
    batch: Option<&shade_batch>,
    name: *const c_char,
    row: u32,
    bytes: Option<&mut MaybeUninit<*const u8>>,
    len: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    answer(|| {
        let (name, batch) = (text(name, "name")?, &given(batch, "batch")?.batch);
        if row as usize >= batch.records() {
            return Err(Fault::usage(format!("row: got {row}, expected less than {}", batch.records())));
        }
        let (at, view) = field_at(batch, name)?;
        if batch.fixed_field(at.into(), view.into()).is_some() {
            let text = format!("name: {name:?} is a tensor: use shade_batch_tensor with \"fields.{name}\"");
            return Err(Fault::usage(text));
        }
        let found = batch.varying_field(at.into(), view.into(), row as usize).map_err(PartError::from)?;
        let (start, count) =
            found.map_or((std::ptr::null(), 0), |found| (found.ptr.cast_const(), found.count));
        put(bytes, "bytes", start)?;
        put(len, "len", count)
    })
}

/// The position of a batch's extra field, and the view that is asked for: NAME, or NAME.VIEW.
fn field_at(batch: &Batch, name: &str) -> Result<(u8, u8), Fault> {
    let find = |name: &str| (0..).zip(batch.fields()).find(|(_, (of, _))| *of == name);
    let of_view = || {
        let (name, view) = name.rsplit_once('.')?;
        let (at, _) = find(name).filter(|(_, (_, kind))| kind.follows())?;
        let view: u8 = view.parse().ok()?;
        // Else it would read as a sample without the field.
        (usize::from(view) < batch.views().len()).then_some((at, view))
    };
    let unknown = || {
        let text =
            format!("there is no extra field or view {name:?}: name fields in \"fields\" of the options");
        Fault::usage(text)
    };
    find(name).map(|(at, _)| (at, 0)).or_else(of_view).ok_or_else(unknown)
}

/// Gives a batch back. Its tensors stay valid. Null does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn shade_batch_release(batch: *mut shade_batch) {
    drop_box(batch);
}

/// Reports the losses of a batch's first n rows, in their order, for drawing later epochs. The
/// batch must be of this session, and not of before shade_load.
#[unsafe(no_mangle)]
pub extern "C" fn shade_report(
    session: Option<&shade_session>,
    batch: Option<&shade_batch>,
    losses: *const f32,
    n: usize,
) -> c_int {
    answer(|| {
        let (session, batch) = (given(session, "session")?, &given(batch, "batch")?.batch);
        let rows = batch.records();
        if n > rows {
            return Err(Fault::usage(format!("n: got {n} losses for a batch of {rows}")));
        }
        if losses.is_null() && n > 0 {
            return Err(null("losses"));
        }
        // SAFETY: not null, hence by the header's contract the address of `n` floats.
        let losses = if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(losses, n) } };
        session.session.report(batch.id(), losses)?;
        Ok(SHADE_OK)
    })
}

/// Reports a validation score, a number; higher is better.
#[unsafe(no_mangle)]
pub extern "C" fn shade_report_validation(session: Option<&shade_session>, score: f64) -> c_int {
    answer(|| {
        let session = given(session, "session")?;
        if !score.is_finite() {
            return Err(Fault::usage(format!("score: got {score}, expected a finite number")));
        }
        session.session.report_validation(score)?;
        Ok(SHADE_OK)
    })
}

/// The figures of job and daemon as a JSON object, for shade_free.
#[unsafe(no_mangle)]
pub extern "C" fn shade_stats(
    session: Option<&shade_session>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> c_int {
    answer(|| {
        let session = given(session, "session")?;
        let figures = session.session.stats()?;
        // They count successors: each has been told of by now.
        session.tell_of_successors();
        put_text(json, &figures)
    })
}

/// The training's state after the last delivered batch, for shade_load and shade_free.
#[unsafe(no_mangle)]
pub extern "C" fn shade_save(
    session: Option<&shade_session>,
    state: Option<&mut MaybeUninit<*mut u8>>,
    len: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    answer(|| {
        let session = given(session, "session")?;
        let (state, len) = (given(state, "state")?, given(len, "len")?);
        let (epoch, batch) = session.position.next();
        let bytes = session.session.save_state(epoch, batch)?;
        state.write(allocated(&bytes)?);
        len.write(bytes.len());
        Ok(SHADE_OK)
    })
}

/// Restores a state before the first epoch. Start the epoch that it gives, at the batch that it
/// gives.
#[unsafe(no_mangle)]
pub extern "C" fn shade_load(
    session: Option<&shade_session>,
    state: *const u8,
    len: usize,
    epoch: Option<&mut MaybeUninit<u32>>,
    first_batch: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    answer(|| {
        let session = given(session, "session")?;
        let (epoch, first_batch) = (given(epoch, "epoch")?, given(first_batch, "first_batch")?);
        if state.is_null() {
            return Err(null("state"));
        }
        // SAFETY: not null, hence by the header's contract the address of `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(state, len) };
        let resumed = session.session.load_state(bytes, 0)?;
        session.position.stand_at(resumed.epoch, resumed.first_batch);
        epoch.write(resumed.epoch);
        first_batch.write(resumed.first_batch);
        Ok(SHADE_OK)
    })
}

/// The memory of the batches, to register it with a device. Unregister it before shade_close. A
/// daemon that has replaced one that died ("successors" of shade_stats) has another memory; the one
/// before stays mapped, and need not be unregistered earlier.
#[unsafe(no_mangle)]
pub extern "C" fn shade_payload(
    session: Option<&shade_session>,
    address: Option<&mut MaybeUninit<*mut c_void>>,
    len: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    answer(|| {
        let payload = given(session, "session")?.session.payload();
        put(address, "address", payload.ptr.cast())?;
        put(len, "len", payload.count)
    })
}

/// Frees a text or a state. Null does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn shade_free(memory: *mut c_void) {
    // SAFETY: by the header's contract null or from `allocated`, not freed before.
    unsafe { libc::free(memory) };
}

fn put_tensor(
    batch: Option<&shade_batch>,
    part: BatchPart,
    out: Option<&mut MaybeUninit<*mut DLManagedTensor>>,
) -> Result<c_int, Fault> {
    let (batch, out) = (given(batch, "batch")?, given(out, "out")?);
    out.write(export(Arc::clone(&batch.batch), part)?.as_ptr());
    Ok(SHADE_OK)
}
