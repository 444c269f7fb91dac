//! What each daemon told last. One that does not answer keeps its figures, and is told as silent.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::ask::{Answered, ask_all};
use crate::control::CallError;
use crate::status::DaemonStatus;

/// A daemon's figures.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) daemon: DaemonStatus,
    /// They are those of now, and not of an earlier answer.
    pub(super) answers: bool,
}

/// What was told by all daemons, and how many tell nothing.
#[derive(Debug, Default)]
pub(super) struct AllTold {
    pub(super) told: Vec<Told>,
    pub(super) silent: usize,
}

/// The last answers, by address.
pub(super) struct LastAnswers {
    /// The only daemon that is asked; `None`: all.
    socket: Option<PathBuf>,
    last: BTreeMap<String, DaemonStatus>,
    /// Why daemons are silent: each is logged when it becomes so.
    silent: BTreeMap<String, String>,
}

impl LastAnswers {
    pub(super) fn of(socket: Option<PathBuf>) -> Self {
        Self { socket, last: BTreeMap::new(), silent: BTreeMap::new() }
    }

    /// Asks daemons.
    ///
    /// # Errors
    /// They cannot be looked for.
    pub(super) fn ask(&mut self) -> io::Result<AllTold> {
        let asked = ask_all(self.socket.as_deref())?;
        Ok(self.take(asked))
    }

    fn take(&mut self, asked: Vec<Answered>) -> AllTold {
        let (mut all, mut last, mut silent) = (AllTold::default(), BTreeMap::new(), BTreeMap::new());
        for Answered { address, answer } in asked {
            let address = address.to_string();
            let read = match answer {
                Ok(json) => DaemonStatus::parse(&json).map_err(|error| error.to_string()),
                // It has ended, and with it what it told. One that was named is down.
                Err(error @ CallError::NoDaemon { .. }) => {
                    self.last.remove(&address);
                    if self.socket.is_none() {
                        continue;
                    }
                    Err(error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            let (daemon, answers) = match read {
                Ok(read) => (Some(read), true),
                Err(why) => {
                    if !self.silent.contains_key(&address) {
                        tracing::warn!("{why}: what it told last stays");
                    }
                    silent.insert(address.clone(), why);
                    all.silent += 1;
                    (self.last.remove(&address), false)
                }
            };
            if let Some(daemon) = daemon {
                last.insert(address, daemon.clone());
                all.told.push(Told { daemon, answers });
            }
        }
        (self.last, self.silent) = (last, silent);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control::Address;

    const STATUS: &str = include_str!("../../tests/data/top-now.json");

    fn asked(address: &str, answer: Option<&str>) -> Answered {
        let silent = CallError::Silent { address: address.to_owned(), patience: Duration::from_secs(3) };
        let address = Address::Abstract(address.as_bytes().to_vec());
        Answered { address, answer: answer.map(str::to_owned).ok_or(silent) }
    }

    #[test]
    fn a_silent_daemon_keeps_its_last_figures_until_it_has_ended() {
        let answers = |all: &AllTold| all.told.iter().map(|told| told.answers).collect::<Vec<_>>();
        let mut last = LastAnswers::of(None);
        let all = last.take(vec![asked("a", Some(STATUS)), asked("b", None)]);
        assert_eq!((answers(&all), all.silent), (vec![true], 1));
        for _ in 0..2 {
            let all = last.take(vec![asked("a", None), asked("b", Some(STATUS))]);
            assert_eq!((answers(&all), all.silent), (vec![false, true], 1));
        }
        let all = last.take(vec![asked("b", Some(STATUS))]);
        assert_eq!((answers(&all), all.silent), (vec![true], 0));
        let all = last.take(vec![asked("a", None), asked("b", Some(STATUS))]);
        assert_eq!((answers(&all), all.silent), (vec![true], 1), "it had ended");
    }
}
