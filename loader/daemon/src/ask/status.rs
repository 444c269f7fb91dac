//! `shade-load status`.

use std::io::{self, Write};
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::cli::Status;
use super::error::AskError;
use super::find;
use super::table::table;
use crate::control::{Address, Call, CallError, LOOK_TIMEOUT, default_socket};
use crate::status::DaemonStatus;

/// Longest wait of a daemon that starts for another one's answer. Two that start at once wait for
/// each other, and so does what has started them.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(500);

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

/// A daemon that was asked what it tells of itself.
pub(crate) struct Answered {
    pub(crate) address: Address,
    /// In JSON.
    pub(crate) answer: Result<String, CallError>,
}

/// Asks the daemon at this socket, by default at `$SHADE_SOCKET`, else all daemons of this user.
/// All are asked at once, so that one which does not answer keeps nobody.
///
/// # Errors
/// Sockets cannot be listed.
pub(crate) fn ask_all(socket: Option<&Path>) -> io::Result<Vec<Answered>> {
    let named = socket.map(Path::to_owned).or_else(default_socket);
    let addresses = match named {
        Some(socket) => vec![Address::given(&socket)],
        None => find::daemons()?,
    };
    Ok(ask_each(addresses, LOOK_TIMEOUT))
}

/// Asks the daemons at these addresses at once, each for no longer than this.
fn ask_each(addresses: Vec<Address>, patience: Duration) -> Vec<Answered> {
    let ask = |address: &Address| Call::connect_with(address, patience).and_then(|call| call.status());
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asking: Vec<_> = addresses
            .iter()
            .map(|address| std::thread::Builder::new().spawn_scoped(scope, move || ask(address)))
            .collect();
        let heard = |thread: io::Result<ScopedJoinHandle<'_, _>>| match thread.map(ScopedJoinHandle::join) {
            Ok(Ok(answer)) => answer,
            // Without a thread it is not asked.
            Err(error) => Err(CallError::Io(error)),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
        };
        asking.into_iter().map(heard).collect()
    });
    addresses.into_iter().zip(answers).map(|(address, answer)| Answered { address, answer }).collect()
}

/// Bytes that the caches of this user's other daemons on this machine may still take from what is
/// free: those of their capacity that they do not use yet. A daemon that does not answer at once is
/// not counted.
pub(crate) fn promised_to_others(own: &str) -> u64 {
    let mut others = find::daemons().unwrap_or_default();
    others.retain(|address| address.to_string() != own);
    let answers = ask_each(others, OTHERS_TIMEOUT).into_iter().filter_map(|asked| asked.answer.ok());
    let statuses = answers.filter_map(|json| DaemonStatus::parse(&json).ok());
    let promised = statuses.map(|status| status.cache_bytes.saturating_sub(status.cache_used_bytes));
    promised.fold(0, u64::saturating_add)
}

/// What daemons tell of themselves.
pub(crate) struct Answers {
    /// In JSON.
    pub(crate) answers: Vec<String>,
    /// Why other daemons do not answer.
    pub(crate) errors: Vec<CallError>,
}

impl Answers {
    /// The answers of the daemon at this socket, by default at `$SHADE_SOCKET`, else of all daemons
    /// of this user.
    ///
    /// # Errors
    /// The daemon at the socket does not answer, or sockets cannot be listed.
    pub(crate) fn of(socket: Option<&Path>) -> Result<Self, AskError> {
        let is_named = socket.is_some() || default_socket().is_some();
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        for Answered { answer, .. } in ask_all(socket)? {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) if is_named => return Err(error.into()),
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
    let daemons = DaemonStatus::all(answers).map_err(AskError::Status)?;
    if daemons.is_empty() {
        let uid = rustix::process::geteuid().as_raw();
        return Ok(writeln!(out, "no daemon of user {uid} runs here")?);
    }
    Ok(write!(out, "{}", table(&daemons))?)
}
