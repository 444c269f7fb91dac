//! Addresses on the command line, and names below them.

use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use shade_dataset::{Address, Url};

use crate::error::Error;

/// A path on a file system, or an address that a dataset is written to.
pub(crate) fn out() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| match Address::of_path(Path::new(&text)) {
        Ok(Address::Url(url)) if matches!(url.scheme(), "http" | "https") => {
            Err(format!("{url}: a web server is only read: write to s3://, gs://, az:// or a folder"))
        }
        Ok(_) => Ok(PathBuf::from(text)),
        Err(error) => Err(error.to_string()),
    })
}

/// Whether it is an address of an object store.
pub(crate) fn is_address(path: &Path) -> bool {
    url_of(path).is_some()
}

/// Refuses an address, for what works in a folder that all machines see: usage.
pub(crate) fn refuse_address(out: &Path, what: &str) -> Result<(), Error> {
    if !is_address(out) {
        return Ok(());
    }
    let out = out.display();
    Err(Error::Usage(format!(
        "{what}: {out} is an address, and parts are put together in a folder that all machines see: give a folder and copy \
         it, dataset.shade last, or `shade-pack create` all of it from one machine"
    )))
}

/// Refuses an address for an index of files that only this machine has: usage.
pub(crate) fn refuse_local_source(out: &Path) -> Result<(), Error> {
    if !is_address(out) {
        return Ok(());
    }
    let out = out.display();
    Err(Error::Usage(format!(
        "{out} is an address, and the index would name files of this machine: give a folder, or pack them there \
         (`shade-pack create`)"
    )))
}

pub(super) fn url_of(path: &Path) -> Option<Url> {
    match Address::of_path(path) {
        Ok(Address::Url(url)) => Some(url),
        Ok(Address::Path(_)) | Err(_) => None,
    }
}

/// The name of a file of the folder `split` below an address; `None` for the address itself.
pub(super) fn below(split: Option<&str>, file: &str) -> String {
    split.map_or_else(|| file.to_owned(), |split| format!("{split}/{file}"))
}

/// The address itself, and each of these folders below it.
pub(super) fn with_none(splits: &[String]) -> impl Iterator<Item = Option<&str>> {
    std::iter::once(None).chain(splits.iter().map(|split| Some(split.as_str())))
}
