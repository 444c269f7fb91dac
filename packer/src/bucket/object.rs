//! Reads small objects.

use std::path::Path;

use shade_dataset::{Answer, Objects, StoreFault, Url, patiently};

use super::address::url_of;
use crate::error::Error;

/// A small object.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    /// Its version, if the store says one.
    pub(crate) etag: Option<String>,
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
pub(super) fn get(objects: &Objects, name: &str, bytes_max: u64) -> Result<Option<Got>, Error> {
    match patiently(|| objects.get_if_new(name, None, bytes_max)) {
        Ok(Some((bytes, found))) => Ok(Some(Got { bytes, etag: found.etag })),
        Ok(None) => unreachable!("no version was named"),
        Err(gone) if gone.answer == Answer::NotFound => Ok(None),
        Err(refused) => Err(fault("read", &objects.url().join(name))(refused)),
    }
}

/// Reads a small object of the folder at an address; `None` if `dir` is no address. `Some(None)` if
/// there is no such object.
pub(crate) fn read_small(dir: &Path, name: &str, bytes_max: u64) -> Result<Option<Option<Vec<u8>>>, Error> {
    let Some(url) = url_of(dir) else { return Ok(None) };
    let objects = Objects::open(&url, 1).map_err(fault("read", &url))?;
    Ok(Some(get(&objects, name, bytes_max)?.map(|got| got.bytes)))
}
