//! `shade-load resize`.

use std::io::Write;

use indicatif::BinaryBytes;
use shade_formats::printable::OneLine;

use super::cli::Resize;
use super::error::AskError;
use super::target::{each, told_of};
use crate::control::{Call, Resized};

/// Gives the caches of daemons another size.
///
/// # Errors
/// There is no such daemon, or one refuses: it has not as much memory.
pub fn resize(args: &Resize, out: &mut impl Write) -> Result<(), AskError> {
    each(&args.target, |address| {
        let daemon = told_of(address)?;
        let Resized { before_bytes, cache_bytes } = Call::connect(address)?.resize(&args.size)?;
        let (before, now) = (BinaryBytes(before_bytes), BinaryBytes(cache_bytes));
        let (pid, dataset) = (daemon.pid, OneLine(&daemon.dataset));
        Ok(writeln!(out, "process {pid}, which serves {dataset}, has a cache of {now} now, {before} before")?)
    })
}
