//! `shade-pack`, the program: reads the command line, runs it, prints the result, exits.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use shade_dataset::on_stop_signal;
use shade_formats::printable::Lines;
use shade_images::caught;
use shade_pack::cli::Cli;
use shade_pack::error::Error;
use shade_pack::interrupt::{Stop, wait_for_standstill};

fn main() -> ExitCode {
    shade_pack::memory::give_back_large_pieces();
    // Usage errors end here with exit code 2, --help and --version with 0.
    let cli = Cli::parse();
    let stop = Arc::new(Stop::default());
    let on_signal = Arc::clone(&stop);
    let handler = on_stop_signal(move || {
        // The second Ctrl-C does not wait for what hangs, such as a dead server.
        let is_second = on_signal.request();
        if is_second || std::thread::Builder::new().spawn(end_at_standstill).is_err() {
            end();
        }
    });
    // Without a handler a signal ends the process at once and leaves OUT.part-ID behind.
    if let Err(fault) = handler {
        complain(&format_args!("warning: cannot catch Ctrl-C: {fault}"));
    }
    let run = || cli.run(&stop);
    let (json, outcome) = match caught(run).unwrap_or_else(|text| Err(Error::Defect(text))) {
        Ok(done) => done,
        Err(fault) => {
            complain(&fault);
            return ExitCode::from(fault.exit_code());
        }
    };
    match outcome.write(json, &mut BufWriter::new(std::io::stdout().lock())) {
        Ok(()) => ExitCode::from(outcome.exit_code()),
        // The reader of a listing has seen what it wanted and gone away.
        Err(fault) if fault.kind() == ErrorKind::BrokenPipe && outcome.is_listing() => ExitCode::SUCCESS,
        Err(fault) => {
            complain(&format_args!("cannot write the result: {fault}"));
            ExitCode::FAILURE
        }
    }
}

/// Nor does the first one wait for ever.
fn end_at_standstill() {
    wait_for_standstill();
    complain(&Error::Interrupted);
    end();
}

fn end() -> ! {
    std::process::exit(Error::Interrupted.exit_code().into())
}

fn complain(what: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "shade-pack: {}", Lines(what));
}
