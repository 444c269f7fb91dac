//! The socket where no option names one.

use std::path::PathBuf;

/// Default of `--socket`: what SHADE_SOCKET names. Empty is as if it were not set.
///
/// Not by clap, which would see it beside a dataset or `--all` as a second target.
#[must_use]
pub fn default_socket() -> Option<PathBuf> {
    std::env::var_os("SHADE_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}
