//! `shade-load`: parses arguments, runs the command, and is the one place that prints errors and exits.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use shade_load::cli::{Cli, Command, Serve};
use shade_load::daemon::{self, ServeConfig, serve};
use shade_load::doctor::{Doctor, doctor};
use shade_load::last_words::LastWords;
use shade_load::log;
use shade_load::trace::{Trace, trace};
use shade_reads::{PATIENCE, ReadsConfig};
use shade_simulate::{Simulate, simulate};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let inherited = daemon::Inherited::shed(matches!(&command, Command::Serve(args) if args.private));
    // The last to be dropped: it waits until the errors below are written.
    let _log = match log::start() {
        Ok(log) => log,
        Err(error) => {
            complain(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match command {
        Command::Serve(args) => run_serve(*args, &inherited),
        Command::Doctor(args) => run_doctor(&args),
        Command::Simulate(args) => run_simulate(&args),
        Command::Trace(args) => run_trace(&args),
    }
}

fn run_serve(args: Serve, inherited: &daemon::Inherited) -> ExitCode {
    let private = args.private;
    for line in inherited.lines() {
        tracing::warn!("{line}");
    }
    let outcome = serve(&config(args), |ready| {
        if private {
            // A trainer that is gone does not need it; another may have found the daemon by now.
            if let Err(error) = say(&serde_json::json!(ready)) {
                tracing::info!("nobody hears that the daemon is there: {error}");
            }
            LastWords::begin();
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_told = private && !error.is_defect();
            if !is_told || say(&serde_json::json!({ "error": error.to_string() })).is_err() {
                tracing::error!("{error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// The one line that a trainer waits for when it has started a daemon.
fn say(line: &serde_json::Value) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush())
}

/// Says what goes wrong before there is a log.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn run_doctor(args: &Doctor) -> ExitCode {
    match doctor(args, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run_simulate(args: &Simulate) -> ExitCode {
    match simulate(args, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run_trace(args: &Trace) -> ExitCode {
    match trace(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn config(args: Serve) -> ServeConfig {
    ServeConfig {
        dataset: args.dataset,
        cache: args.cache,
        policy: args.policy.unwrap_or(args.preset.policy()),
        lookahead: args.lookahead,
        reads: ReadsConfig {
            engine: args.engine.into(),
            io: args.io.into(),
            depth: args.depth,
            store: args.store,
            patience: PATIENCE,
        },
        hedge: args.hedge,
        workers: args.workers.map(usize::from),
        jpeg: args.jpeg,
        socket: args.socket,
        job: args.job,
        linger: args.private.then_some(args.linger),
    }
}
