//! `shade-load status`.

use std::io::Write;

use serde_json::Value;

use super::cli::Status;
use super::error::AskError;
use super::find;
use super::table::table;
use super::told::DaemonStatus;
use crate::control::{Address, Call, CallError};
use crate::names::default_socket;

/// Lists daemons and their jobs.
///
/// # Errors
/// A daemon does not answer; those that do are listed then, too.
pub fn status(args: &Status, out: &mut impl Write) -> Result<(), AskError> {
    let socket = args.socket.clone().or_else(default_socket);
    let asked = match &socket {
        Some(socket) => vec![Call::connect(&Address::given(socket)).and_then(|call| call.status())?],
        None => Vec::new(),
    };
    let found = if socket.is_some() { Vec::new() } else { find::daemons()? };
    let (all, mut answers, mut failed) = (found.len(), asked, 0);
    for address in found {
        match Call::connect(&address).and_then(|call| call.status()) {
            Ok(answer) => answers.push(answer),
            // It has ended since.
            Err(CallError::NoDaemon { .. }) => {}
            Err(error) => {
                tracing::error!("{error}");
                failed += 1;
            }
        }
    }
    show(args.json, &answers, out)?;
    if failed > 0 { Err(AskError::Some { failed, all }) } else { Ok(()) }
}

fn show(as_json: bool, answers: &[String], out: &mut impl Write) -> Result<(), AskError> {
    if as_json {
        let values = answers.iter().map(|json| serde_json::from_str::<Value>(json));
        let list = values.collect::<Result<Value, _>>().map_err(AskError::Status)?;
        return Ok(writeln!(out, "{list}")?);
    }
    let daemons = answers.iter().map(|json| DaemonStatus::parse(json)).collect::<Result<Vec<_>, _>>()?;
    if daemons.is_empty() {
        let uid = rustix::process::geteuid().as_raw();
        return Ok(writeln!(out, "no daemon of user {uid} runs here")?);
    }
    Ok(write!(out, "{}", table(&daemons))?)
}
