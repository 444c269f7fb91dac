//! The arguments and errors of `shade-load export`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shade_job::parse_time;

/// Help below the options.
const HELP: &str = "\
One exporter a node is enough: each scrape asks all your daemons on this machine. Daemons that come or
go are no matter. docs/monitoring.md has the table of metrics, a configuration for Prometheus, and a
dashboard for Grafana.

  shade-load export
  curl http://127.0.0.1:9432/metrics

Clients that reach the address read paths of datasets and names of jobs. There is no password, so it is
the loopback by default. A request must name this machine in its Host header, by an IP address,
localhost, the host's name or --host: else a page in a browser could read along. Ctrl-C ends it.

Exit codes: 0 ended by its user, 1 the address or the folder cannot be used, 2 usage.";

/// `shade-load export`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Export {
    /// Answer GET /metrics at this address. Port 0: any free one; a log line says which. Default:
    /// 127.0.0.1:9432, unless --textfile is given alone.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// Another name by which clients reach this machine, as Prometheus' targets have it: without a
    /// port. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Write DIR/shade_load.prom, for the textfile collector of node_exporter. Each file is whole.
    #[arg(long, value_name = "DIR")]
    pub textfile: Option<PathBuf>,

    /// Time between two files. Scrapes come when Prometheus wants them.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time, requires = "textfile")]
    pub interval: Duration,

    /// Export the daemon at this socket file, or at this abstract name (@shade-load/...), instead
    /// of all of yours. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}; give another one with --listen")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A signal handler or a thread cannot be had.
    #[error("cannot start: {0}")]
    Start(io::Error),
}

impl ExportError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}
