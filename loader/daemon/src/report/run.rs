//! Reads a recording, and writes its page.

use super::cli::Report;
use super::error::ReportError;
use super::page::page;
use super::recorded::Recorded;
use shade_dataset::regular;
use shade_simulate::RecordedLines;

/// Writes the page of a recorded training.
///
/// # Errors
/// The recording cannot be read, or the page not be written.
pub fn report(args: &Report) -> Result<(), ReportError> {
    let recorded = Recorded::read(RecordedLines::open(&args.run)?)?;
    let written = regular::write(&args.out, page(&recorded).as_bytes());
    written.map_err(|source| ReportError::Write { path: args.out.clone(), source })?;
    tracing::info!("the report is in {}", args.out.display());
    Ok(())
}
