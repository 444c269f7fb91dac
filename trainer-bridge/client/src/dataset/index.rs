//! Opens a dataset's index, and tells whether the dataset is still the one that it was.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use shade_formats::ContentId;
use shade_formats::index::{HEADER_BYTES, INDEX_FILE, Index};
use shade_formats::limits::INDEX_BYTES_MAX;

use crate::ClientError;

/// What the index of a dataset says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) samples: u32,
    pub(crate) id: ContentId,
}

/// What the index of the dataset in `folder` says now, from its first bytes.
pub(crate) fn content_now(folder: &Path) -> Result<Content, ClientError> {
    let path = folder.join(INDEX_FILE);
    let mut start = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut start));
    read.map_err(|error| fault(&path, &error))?;
    let id = Index::content_id_at_start(&start).map_err(|error| fault(&path, &error))?;
    let samples = Index::samples_at_start(&start).map_err(|error| fault(&path, &error))?;
    Ok(Content { samples, id })
}

/// The index of the dataset in `folder`, whose content must be `expected` where that is given.
pub(crate) fn open_index(folder: &Path, expected: Option<ContentId>) -> Result<Index, ClientError> {
    let path = folder.join(INDEX_FILE);
    let len = std::fs::metadata(&path).map_err(|error| fault(&path, &error))?.len();
    if len > INDEX_BYTES_MAX {
        return Err(fault(&path, &format_args!("{len} bytes, expected at most {INDEX_BYTES_MAX}")));
    }
    // Read, not mapped: on a network file system a mapping can end the process when the file changes.
    let bytes = std::fs::read(&path).map_err(|error| fault(&path, &error))?;
    let index = Index::open(bytes).map_err(|error| fault(&path, &error))?;
    compare(&path, index.content_id(), expected)?;
    Ok(index)
}

/// Whether the dataset in `folder` still has the content `expected`, from the first bytes of its index.
pub(crate) fn check_unchanged(folder: &Path, expected: ContentId) -> Result<(), ClientError> {
    compare(&folder.join(INDEX_FILE), content_now(folder)?.id, Some(expected))
}

fn compare(path: &Path, got: ContentId, expected: Option<ContentId>) -> Result<(), ClientError> {
    match expected {
        Some(expected) if expected != got => {
            let text = format_args!(
                "content id {got}, expected {expected}: the dataset was replaced or added to meanwhile; open it anew"
            );
            Err(fault(path, &text))
        }
        _ => Ok(()),
    }
}

fn fault(path: &Path, text: &dyn Display) -> ClientError {
    ClientError::Index { path: path.to_owned(), text: text.to_string() }
}
