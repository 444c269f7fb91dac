//! The arguments of `shade-load report`.

use std::path::PathBuf;

use clap::Args;

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
