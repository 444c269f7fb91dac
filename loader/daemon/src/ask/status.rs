//! `shade-load status`.

use std::io::Write;
use std::path::Path;

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
    let Answers { answers, errors } = Answers::of(args.socket.as_deref())?;
    errors.iter().for_each(|error| tracing::error!("{error}"));
    show(args.json, &answers, out)?;
    let (failed, all) = (errors.len(), answers.len() + errors.len());
    if failed > 0 { Err(AskError::Some { failed, all }) } else { Ok(()) }
}

/// What daemons tell of themselves.
pub(crate) struct Answers {
    /// In JSON.
    pub(crate) answers: Vec<String>,
    /// Why other daemons do not answer.
    pub(crate) errors: Vec<CallError>,
}

impl Answers {
    /// Those of the daemon at this socket, by default at `$SHADE_SOCKET`, else of all daemons of
    /// this user.
    ///
    /// # Errors
    /// The daemon at the socket does not answer, or sockets cannot be listed.
    pub(crate) fn of(socket: Option<&Path>) -> Result<Self, AskError> {
        let ask = |address: &Address| Call::connect(address).and_then(|call| call.status());
        if let Some(socket) = socket.map(Path::to_owned).or_else(default_socket) {
            return Ok(Self { answers: vec![ask(&Address::given(&socket))?], errors: Vec::new() });
        }
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        for address in find::daemons()? {
            match ask(&address) {
                Ok(answer) => answers.push(answer),
                // It has ended since.
                Err(CallError::NoDaemon { .. }) => {}
                Err(error) => errors.push(error),
            }
        }
        Ok(Self { answers, errors })
    }
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
