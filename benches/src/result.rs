//! The result of every bench.

/// A bench that cannot run, or whose run is void, ends with this error.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
