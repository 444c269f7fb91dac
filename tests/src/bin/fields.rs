//! Adds extra fields to a packed dataset, for the Python tests.
#![expect(clippy::unwrap_used, reason = "part of a test: fails by panicking")]

use std::fs;
use std::path::PathBuf;

use shade_tests::add_fields;

/// `shade-test-fields DATASET FIELDS OUT`: a sample's fields are the files in the folder
/// `FIELDS/<the sample's path>`, sorted and named by file name.
fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [dataset, fields, out] = arguments.try_into().unwrap();
    add_fields(&dataset, &out, |_, path| {
        let files = fs::read_dir(fields.join(path)).into_iter().flatten().map(Result::unwrap);
        let mut found: Vec<_> = files
            .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
            .collect();
        found.sort();
        found
    });
}
