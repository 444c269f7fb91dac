//! `shade-pack`, the program: reads the command line, runs it, prints the result, exits.

use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use shade_pack::cli::Cli;
use shade_pack::error::Error;
use shade_pack::interrupt::Stop;

fn main() -> ExitCode {
    shade_pack::memory::give_back_large_pieces();
    // Usage errors end here with exit code 2, --help and --version with 0.
    let cli = Cli::parse();
    let stop = Arc::new(Stop::default());
    let on_signal = Arc::clone(&stop);
    let handler = ctrlc::set_handler(move || {
        if on_signal.request() {
            // Asked twice: whatever hangs, such as a dead server, is not waited for.
            std::process::exit(Error::Interrupted.exit_code().into());
        }
    });
    let json = cli.json();
    // Without a handler a signal ends the process at once; what was begun then stays as OUT.part-ID.
    let result = handler.map_err(|fault| format!("warning: cannot catch Ctrl-C: {fault}"));
    if let Err(warning) = result {
        let _ = writeln!(std::io::stderr(), "shade-pack: {warning}");
    }
    match cli.run(&stop) {
        Ok(report) => {
            match report.write(json, &mut BufWriter::new(std::io::stdout().lock())) {
                Ok(()) => ExitCode::from(report.exit_code()),
                // The reader of our output went away: it has what it wanted of a listing, and nobody is left to tell.
                Err(fault) if fault.kind() == ErrorKind::BrokenPipe && report.is_listing() => {
                    ExitCode::SUCCESS
                }
                Err(fault) => {
                    let _ = writeln!(std::io::stderr(), "shade-pack: cannot write the result: {fault}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(fault) => {
            let _ = writeln!(std::io::stderr().lock(), "shade-pack: {fault}");
            ExitCode::from(fault.exit_code())
        }
    }
}
