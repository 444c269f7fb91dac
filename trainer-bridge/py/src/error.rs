//! The package's exceptions, and the exception for each of the client's errors.

use pyo3::create_exception;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use shade_client::{ClientError, PartError};
use shade_formats::control::REFUSE_BUSY;
use shade_formats::printable::Lines;

create_exception!(
    shade_load,
    ShadeError,
    PyRuntimeError,
    "Anything that shade reports; the base of the others."
);
create_exception!(
    shade_load,
    DaemonGone,
    ShadeError,
    "The daemon ended or was killed; the text names its pid and how it ended."
);
create_exception!(
    shade_load,
    RankTaken,
    ShadeError,
    "Another training has this job's rank, or the job with other arguments."
);
create_exception!(
    shade_load,
    RecordError,
    ShadeError,
    "An epoch ended with an error: a record is bad and on_error does not allow it, more than bad_max \
     are bad, a batch has no row left, or the store cannot be read. Or a sample's fields, or a record \
     of an `ImageFolder`, could not be read. The text names shard, offset and path."
);
create_exception!(
    shade_load,
    LoaderTimeout,
    ShadeError,
    "Nothing came for `timeout` seconds; the text says what was awaited."
);

create_exception!(
    shade_load,
    AnotherStart,
    ShadeError,
    "An epoch was started while this thread waited: the batches are those of another iterator."
);

/// Adds the exceptions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ShadeError", py.get_type::<ShadeError>())?;
    module.add("DaemonGone", py.get_type::<DaemonGone>())?;
    module.add("RankTaken", py.get_type::<RankTaken>())?;
    module.add("RecordError", py.get_type::<RecordError>())?;
    module.add("AnotherStart", py.get_type::<AnotherStart>())?;
    module.add("LoaderTimeout", py.get_type::<LoaderTimeout>())
}

/// The exception for an error of the client, with its whole text.
pub(crate) fn from_client(error: &ClientError) -> PyErr {
    // Names in it are a stranger's, and a traceback goes to a terminal.
    let text = Lines(error.with_causes()).to_string();
    match error {
        ClientError::Argument { .. } | ClientError::Spec(_) => PyValueError::new_err(text),
        ClientError::Forked { .. } => {
            ShadeError::new_err(text + "; with multiprocessing, use spawn instead of fork")
        }
        ClientError::Refused { code: REFUSE_BUSY, .. } => RankTaken::new_err(text),
        ClientError::DaemonGone { .. } => DaemonGone::new_err(text),
        ClientError::Record { .. } | ClientError::Fields { .. } => RecordError::new_err(text),
        ClientError::AnotherStart => AnotherStart::new_err(text),
        ClientError::Timeout { .. } => LoaderTimeout::new_err(text),
        _ => ShadeError::new_err(text),
    }
}

/// The exception for a part that a batch does not have.
pub(crate) fn from_part(error: &PartError) -> PyErr {
    let text = Lines(error).to_string();
    match error {
        PartError::Kind(_) => PyValueError::new_err(text),
        PartError::Row { .. } | PartError::View { .. } => PyIndexError::new_err(text),
        PartError::Damaged(_) | PartError::Record(_) => ShadeError::new_err(text),
    }
}
