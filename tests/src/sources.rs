//! The repository's own source files, for the tests of its rules.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
///
/// # Panics
/// Never.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Source files with this extension, by path relative to the root.
///
/// # Panics
/// When there is none, or one is no text.
#[must_use]
pub fn sources(extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["formats", "images", "packer", "loader", "trainer-bridge", "tests", "benches", "demo", "studies"]
            .map(|d| root().join(d))
            .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let made = ["target", "__pycache__", ".venv"].iter().any(|name| path.ends_with(name));
            if path.is_dir() && !made {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no .{extension} files below {}", root().display());
    found.sort();
    found
}

/// A file without the tests at its end.
#[must_use]
pub fn production(text: &str) -> &str {
    const MARK: &str = "\n#[cfg(test)]\n";
    // `mod NAME;` declares a file of tests, and production code follows it.
    let declares = |at: usize| text[at + MARK.len()..].lines().next().is_some_and(|line| line.ends_with(';'));
    text.match_indices(MARK).map(|(at, _)| at).find(|&at| !declares(at)).map_or(text, |end| &text[..end])
}

/// A file without its comment lines.
#[must_use]
pub fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}
