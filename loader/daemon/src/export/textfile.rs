//! The file for the textfile collector of node_exporter.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::error::ExportError;

/// The collector takes files that end in `.prom`.
const NAME: &str = "shade_load.prom";

/// Writes the file into `folder`. A reader sees the one before, or the new one, each whole.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(folder: &Path, text: &str) -> Result<(), ExportError> {
    let path = folder.join(NAME);
    // Two exporters do not write into one file, and the collector does not take it.
    let part = folder.join(format!(".{NAME}.{}", std::process::id()));
    // What an exporter of this number has left; nobody else has the name.
    let _ = fs::remove_file(&part);
    let written = File::create_new(&part).and_then(|mut file| file.write_all(text.as_bytes()));
    let written = written.and_then(|()| fs::rename(&part, &path));
    written.map_err(|source| {
        let _ = fs::remove_file(&part);
        ExportError::Write { path, source }
    })
}
