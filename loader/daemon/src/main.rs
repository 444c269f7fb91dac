//! `shade-load`: parses arguments, runs the command, prints errors and exits.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, Write, stdout};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use shade_formats::index::INDEX_FILE;
use shade_formats::printable::Lines;
use shade_load::ask::{self, AskError};
use shade_load::cli::{Cli, Command, Serve, default_socket};
use shade_load::daemon::{self, ServeConfig, serve};
use shade_load::detach::detach;
use shade_load::doctor::{DoctorError, doctor};
use shade_load::export::{ExportError, export};
use shade_load::log::{self, LastWords};
use shade_load::report::{ReportError, report};
use shade_load::running;
use shade_load::terminal::Terminal;
use shade_load::top::{TopError, top};
use shade_load::trace::{TraceError, trace};
use shade_simulate::{Simulate, SimulateError, simulate};

/// Variable that names the service manager's socket: a path, or `@name` for an abstract one.
const SERVICE_SOCKET: &str = "NOTIFY_SOCKET";

fn main() -> ExitCode {
    let command = Cli::parse_from(with_trace_named(std::env::args_os().collect())).command;
    if matches!(&command, Command::Serve(args) if args.detach) {
        return run_detached();
    }
    let is_private = matches!(&command, Command::Serve(args) if args.private);
    let inherited = daemon::Inherited::shed(is_private);
    // Dropped last: it waits until the errors below are written.
    // A private daemon's log goes to one training after the other, on terminals and elsewhere.
    let _log = match log::start(!is_private) {
        Ok(log) => log,
        Err(error) => {
            complain(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match command {
        Command::Serve(args) => run_serve(*args, &inherited),
        Command::Doctor(args) => exit(doctor(&args, &mut Terminal(stdout().lock())), DoctorError::exit_code),
        Command::Simulate(args) => exit(run_simulate(*args), SimulateError::exit_code),
        Command::Trace(args) => exit(trace(&args), TraceError::exit_code),
        Command::Status(args) => {
            exit(ask::status(&args, &mut Terminal(stdout().lock())), AskError::exit_code)
        }
        Command::Top(args) => exit(top(&args, &mut Terminal(stdout().lock())), TopError::exit_code),
        Command::Export(args) => exit(export(&args), ExportError::exit_code),
        Command::Report(args) => exit(report(&args), ReportError::exit_code),
        Command::Stop(args) => exit(ask::stop(&args, &mut Terminal(stdout().lock())), AskError::exit_code),
        Command::Drain(args) => exit(ask::drain(&args, &mut Terminal(stdout().lock())), AskError::exit_code),
        Command::Resize(args) => {
            exit(ask::resize(&args, &mut Terminal(stdout().lock())), AskError::exit_code)
        }
    }
}

/// The arguments, with `--trace` before a file that is `simulate`'s first one: a trace.
fn with_trace_named(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_trace = |file: &OsString| {
        let file = Path::new(file);
        file.is_file() && file.file_name().is_none_or(|name| name != INDEX_FILE)
    };
    if args.get(1).is_some_and(|command| command == "simulate") && args.get(2).is_some_and(is_trace) {
        args.insert(2, "--trace".into());
    }
    args
}

fn run_simulate(mut args: Simulate) -> Result<(), SimulateError> {
    if let Some(words) = running::fill_in(&mut args)? {
        tracing::info!("{words}");
    }
    simulate(&args, &mut Terminal(stdout().lock()))
}

/// Starts the daemon of `serve --detach`, and ends.
fn run_detached() -> ExitCode {
    let Err(error) = detach() else { return ExitCode::SUCCESS };
    let text = format!("cannot start shade-load again: {error}");
    if say(&serde_json::json!({ "error": text })).is_err() {
        complain(&text);
    }
    ExitCode::FAILURE
}

fn run_serve(args: Serve, inherited: &daemon::Inherited) -> ExitCode {
    let private = args.private;
    // The trainer may have gone, as in the lines below.
    let tell = |line: serde_json::Value| if private { say(&line) } else { Ok(()) };
    let _ = tell(serde_json::json!({ "starting": std::process::id() }));
    for line in inherited.lines() {
        tracing::warn!("{line}");
    }
    let outcome = serve(&config(args), |ready| {
        if private {
            // The trainer may be gone; another may have found the daemon by now.
            if let Err(error) = say(&serde_json::json!(ready)) {
                tracing::info!(
                    "the trainer that started this daemon does not hear that it is ready: {error}"
                );
            }
            LastWords::begin();
        } else if let Some(socket) = std::env::var_os(SERVICE_SOCKET)
            && let Err(error) = tell_service_manager(&socket)
        {
            // It goes on: the manager ends it, if it waits for this.
            tracing::warn!("{SERVICE_SOCKET} is {}, and nobody hears there: {error}", socket.display());
        }
    });
    let code = match outcome {
        Ok(()) => 0,
        Err(error) => {
            let is_told = private && !error.is_defect();
            if !is_told || say(&serde_json::json!({ "error": error.to_string() })).is_err() {
                tracing::error!("{error}");
            }
            error.exit_code()
        }
    };
    let ended = serde_json::json!({ "ended": code });
    if LastWords::has_begun() {
        // Nobody may read it any more, and this thread must not wait.
        log::copy(&format!("{ended}\n"));
    } else {
        let _ = tell(ended);
    }
    ExitCode::from(code)
}

/// Tells the service manager at `socket` that the daemon is ready: systemd's `Type=notify`.
fn tell_service_manager(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

/// Writes a line that a trainer waits for when it has started a daemon.
fn say(line: &serde_json::Value) -> io::Result<()> {
    let mut stdout = stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush())
}

/// Writes an error before there is a log.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{}", Lines(text));
}

/// The exit code of a command, whose error is logged.
fn exit<E: Display>(outcome: Result<(), E>, code: impl Fn(&E) -> u8) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    tracing::error!("{error}");
    ExitCode::from(code(&error))
}

fn config(args: Serve) -> ServeConfig {
    ServeConfig {
        dataset: args.dataset,
        settings: args.settings.of(args.preset),
        socket: args.socket.or_else(default_socket),
        is_private: args.private,
        replaces: args.replace,
        started_by: args.started_by,
    }
}
