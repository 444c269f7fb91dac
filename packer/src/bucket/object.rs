//! Reads small objects.

use std::path::Path;

use shade_dataset::{Answer, Objects, StoreFault, Uploads, Url, Version, patiently};

use super::address::url_of;
use crate::error::Error;

/// A small object.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    pub(crate) version: Version,
}

impl Got {
    /// Its text. What is no text has wrong letters.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// For `map_err` behind a request: "cannot `action` `url`".
pub(super) fn fault(action: &'static str, url: &Url) -> impl FnOnce(StoreFault) -> Error {
    move |fault| Error::Store { action, url: url.to_string(), fault }
}

/// Reads a small object; `None` if there is none.
pub(super) fn get(uploads: &Uploads, name: &str, bytes_max: u64) -> Result<Option<Got>, Error> {
    let got = patiently(|| uploads.get(name, bytes_max));
    let got = got.map_err(fault("read", &uploads.objects().url().join(name)))?;
    Ok(got.map(|(bytes, version)| Got { bytes, version }))
}

/// Reads a small object of the folder at an address; `None` if `dir` is no address. `Some(None)` if
/// there is no such object.
pub(crate) fn read_small(dir: &Path, name: &str, bytes_max: u64) -> Result<Option<Option<Vec<u8>>>, Error> {
    let Some(url) = url_of(dir) else { return Ok(None) };
    let objects = Objects::open(&url, 1).map_err(fault("read", &url))?;
    match patiently(|| objects.get_if_new(name, None, bytes_max)) {
        Ok(got) => Ok(Some(got.map(|(bytes, _)| bytes))),
        Err(gone) if gone.answer == Answer::NotFound => Ok(Some(None)),
        Err(refused) => Err(fault("read", &url.join(name))(refused)),
    }
}
