//! The error of bytes that break a format: which structure, where, what was found and expected.

/// A structure read from disk, shared memory or a socket breaks its format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure} at byte {offset}: got {got}, expected {expected}")]
pub struct FormatError {
    /// The structure, such as "index header" or "tar header".
    pub structure: &'static str,
    /// Byte offset of the structure or field in its file, segment or message.
    pub offset: u64,
    /// What stands there.
    pub got: String,
    /// What the format demands there.
    pub expected: String,
}

impl FormatError {
    /// Names the broken `structure` at `offset`.
    pub fn new(
        structure: &'static str,
        offset: u64,
        got: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> Self {
        Self { structure, offset, got: got.to_string(), expected: expected.to_string() }
    }
}
