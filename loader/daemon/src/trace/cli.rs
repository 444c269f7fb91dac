//! The arguments of `shade-load trace`.

use std::path::PathBuf;

use clap::Args;

/// Help below the options.
const HELP: &str = "\
Records what the daemon of a running training serves: which samples each batch asked for and how each
was served, when batches were opened, read, published and released, and the losses. Begin before the
first epoch where you can: what the daemon has learned and cached before is not in the trace. Where
the training starts its daemon itself, start this as soon as it runs, or start the daemon by hand
before (shade-load serve).

It ends with the daemon, or with Ctrl-C. The training goes on either way and does not wait for it:
lines that cannot be taken in time are left out, which is said in the file and here. The file of a
killed recorder can be read up to there. It takes some 10 bytes for each access and 10 for each loss,
as much once for each sample, and 1 KB a second with one rank.

  shade-load trace /data/train-shade --out run.trace
  shade-load simulate --trace run.trace --cache 10%,20%,40% --policy lru,app,lookahead
  shade-load report run.trace -o report.html
  shade-load trace run.trace --perfetto run.json    # for ui.perfetto.dev

The format is in formats/layout/TRACE.md: JSON, one object a line.

Exit codes: 0 recorded (to the daemon's end or Ctrl-C), 1 runtime error, 2 usage, 3 the dataset is
damaged.";

/// `shade-load trace`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Trace {
    /// The dataset of the training: a folder written by `shade-pack create`, or the dataset.shade
    /// in it. With --perfetto also a recording.
    #[arg(value_name = "DATASET|RUN")]
    pub dataset: PathBuf,

    /// The file to record into. It must not exist yet.
    #[arg(long, value_name = "FILE", required_unless_present = "perfetto")]
    pub out: Option<PathBuf>,

    /// Make a Chrome trace of the recording, once it has ended: a file for ui.perfetto.dev. Each
    /// rank has its batches there from opening to release, and its waits by cause. It must not
    /// exist yet.
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,

    /// The training's job: the value of `loader.job`, which need not have begun. Default: the only
    /// job that trains, or `default` while there is none.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,

    /// The daemon's socket file, if it was started with one. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}
