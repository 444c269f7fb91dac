//! The command: its arguments and errors; reads a recording, and writes its page.

use std::io;
use std::path::PathBuf;

use clap::Args;
use shade_dataset::regular;
use shade_simulate::{RecordedLines, SimulateError};

use super::page::page;
use super::recorded::Recorded;

/// Help below the options.
const HELP: &str = "\
The page is one file without scripts, and loads nothing from anywhere: mail it, or keep it beside the
checkpoint. Its first line says whether the training waited, for what, and what to do, as `top` does.

  shade-load trace /data/train-shade --out run.trace    # while the training runs; then Ctrl-C
  shade-load report run.trace -o report.html

Exit codes: 0 written, 1 runtime error, 2 usage.";

/// `shade-load report`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Report {
    /// The recording: a file that `shade-load trace` wrote, or - for standard input.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// The page to write. One that exists is replaced.
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] SimulateError),
    /// The page cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The page.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ReportError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}

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
