//! `shade-load`: parses arguments, runs the command, and is the one place that prints errors and exits.

use std::process::ExitCode;

use clap::Parser;
use shade_load::cli::{Cli, Command, Serve};
use shade_load::daemon::{ServeConfig, serve};
use shade_load::doctor::{Doctor, doctor};
use shade_load::reads::{PATIENCE, ReadsConfig};
use shade_load::simulate::{Simulate, simulate};
use shade_load::trace::{Trace, trace};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let filter = tracing_subscriber::EnvFilter::try_from_env("SHADE_LOG").unwrap_or_else(|_| "info".into());
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
    match command {
        Command::Serve(args) => run_serve(*args),
        Command::Doctor(args) => run_doctor(&args),
        Command::Simulate(args) => run_simulate(&args),
        Command::Trace(args) => run_trace(&args),
    }
}

#[expect(clippy::print_stdout, reason = "the one line a trainer waits for when it has started a daemon")]
fn run_serve(args: Serve) -> ExitCode {
    let private = args.private;
    let outcome = serve(&config(args), |ready| {
        if private {
            println!("{}", serde_json::json!(ready));
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if private {
                println!("{}", serde_json::json!({ "error": error.to_string() }));
            } else {
                tracing::error!("{error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
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
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
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
        workers: args.workers.map_or(cores, usize::from),
        socket: args.socket,
        job: args.job,
        linger: args.private.then_some(args.linger),
    }
}
