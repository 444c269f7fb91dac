//! The daemons that a command is for.

use shade_dataset::Dataset;
use shade_formats::printable::{OneLine, is_obeyed};

use super::cli::Target;
use super::error::AskError;
use super::find;
use crate::control::{Address, Call, CallError, default_socket};
use crate::status::DaemonStatus;

/// What the daemon says of itself.
pub(super) fn status_of(address: &Address) -> Result<DaemonStatus, AskError> {
    DaemonStatus::parse(&Call::connect(address)?.status()?).map_err(AskError::Status)
}

/// How a command line names the daemon of this dataset at this address, for a shell.
pub(crate) fn target_of(address: &str, dataset: &str) -> String {
    match address {
        "" => quoted(dataset),
        address if address.starts_with('@') => quoted(dataset),
        socket => format!("--socket {}", quoted(socket)),
    }
}

/// The text, as a shell takes it for one word.
fn quoted(text: &str) -> String {
    if text.chars().any(is_obeyed) {
        // Any bytes may be in a path, and this goes to a terminal.
        return OneLine(text).to_string();
    }
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./@%+=:,".contains(letter);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Does it to each daemon of the target. One that fails does not keep the others.
pub(super) fn each(
    target: &Target,
    mut act: impl FnMut(&Address) -> Result<(), AskError>,
) -> Result<(), AskError> {
    let is_named = target.dataset.is_some() || target.all;
    let default = || default_socket().filter(|_| !is_named);
    if let Some(socket) = target.socket.clone().or_else(default) {
        return act(&Address::given(&socket));
    }
    if let Some(dataset) = &target.dataset {
        let folder = Dataset::folder(dataset)?;
        return act(&Address::of_dataset(&folder)).map_err(|error| match error {
            AskError::Call(CallError::NoDaemon { address }) => {
                AskError::NoDaemon { dataset: folder, address }
            }
            other => other,
        });
    }
    let found = find::daemons()?;
    let mut failed = 0;
    for address in &found {
        match act(address) {
            // It has ended since.
            Ok(()) | Err(AskError::Call(CallError::NoDaemon { .. })) => {}
            Err(error) => {
                tracing::error!("{error}");
                failed += 1;
            }
        }
    }
    if failed > 0 { Err(AskError::Some { failed, all: found.len() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_named_as_a_shell_needs_it() {
        assert_eq!(target_of("@shade-load/7/ab", "/data/a-b.shade"), "/data/a-b.shade");
        assert_eq!(target_of("/run/x.sock", "/data/a"), "--socket /run/x.sock");
        assert_eq!(target_of("@a", "/my data/it's"), "'/my data/it'\\''s'");
    }
}
