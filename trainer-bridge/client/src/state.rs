//! A run's state, and what else is longer than a message may be: passed in a memfd.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use shade_formats::control::{Pooled, Reply, Request, Step};
use shade_formats::limits::state_bytes_max;
use shade_shm::{SegmentError, memfd};

use crate::ClientError;
use crate::session::Session;

/// Where a loaded state goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The epoch.
    pub epoch: u32,
    /// Its first batch that is not delivered.
    pub first_batch: u32,
    /// Its batches, with those before.
    pub batches: u32,
}

impl Session {
    /// The state of a run that goes on before batch `batch` of `epoch`, for
    /// [`Session::load_state`].
    ///
    /// # Errors
    /// As for [`Session::stats`]. The state is too long for the dataset and the job's epochs.
    pub fn save_state(&self, epoch: u32, batch: u32) -> Result<Vec<u8>, ClientError> {
        self.ask_for_bytes("save_state", &Request::SaveState { epoch, batch }, "the state")
    }

    /// Restores a state of [`Session::save_state`], also one of another batch size or world size.
    /// Call it before the epoch is started, at the batch that it returns. Unless `strata` is 0, a
    /// state with a plan of another number of strata is refused.
    ///
    /// # Errors
    /// As for [`Session::stats`], and [`ClientError::Failed`] when the daemon finds the state
    /// wrong.
    pub fn load_state(&self, bytes: &[u8], strata: u32) -> Result<Resumed, ClientError> {
        let request = Request::LoadState { strata };
        self.load(
            &request,
            || write(bytes),
            |(reply, _)| match reply {
                Reply::StateLoaded { epoch, first_batch, batches } => {
                    Ok(Resumed { epoch, first_batch, batches })
                }
                other => Err(other),
            },
        )
    }

    /// Tells which stratum each seat of the job's plans has: the bytes of
    /// [`Seats`](shade_job::Seats). All ranks tell the same, before the first epoch.
    ///
    /// # Errors
    /// As for [`Session::stats`], and [`ClientError::Failed`] when the daemon refuses them.
    pub fn seat(&self, bytes: &[u8]) -> Result<(), ClientError> {
        self.hand_in("seat", &Request::Seat, bytes)?;
        self.note_seats(bytes);
        Ok(())
    }

    /// What other nodes need to know of the scores here once `epoch` is drawn: the bytes of
    /// [`Scores`](shade_formats::control::Scores), or none.
    ///
    /// # Errors
    /// As for [`Session::save_state`].
    pub fn tell_scores(&self, epoch: u32) -> Result<Vec<u8>, ClientError> {
        let told = self.ask_for_bytes("tell_scores", &Request::TellScores { epoch }, "the scores")?;
        // A successor may not know all of it: what was published, and nobody has taken.
        if Pooled::is(&told) {
            self.note(Step::Heard { scores: told.clone() });
        }
        Ok(told)
    }

    /// Hands in what another node has told.
    ///
    /// # Errors
    /// As for [`Session::seat`].
    pub fn take_scores(&self, bytes: &[u8]) -> Result<(), ClientError> {
        // Taken twice it changes nothing.
        self.note(Step::Heard { scores: bytes.to_vec() });
        self.hand_in("take_scores", &Request::TakeScores, bytes)
    }

    fn hand_in(&self, what: &'static str, request: &Request, bytes: &[u8]) -> Result<(), ClientError> {
        let fd = write(bytes)?;
        self.ask(what, request, Some(&fd), |(reply, _)| match reply {
            Reply::Taken => Ok(()),
            other => Err(other),
        })
    }

    fn ask_for_bytes(
        &self,
        what: &'static str,
        request: &Request,
        segment: &'static str,
    ) -> Result<Vec<u8>, ClientError> {
        let (bytes, fds) = self.ask(what, request, None, |(reply, fds)| match reply {
            Reply::State { bytes } => Ok((bytes, fds)),
            other => Err(other),
        })?;
        read(segment, bytes, &fds, state_bytes_max(self.samples(), self.positions))
    }
}

/// Reads `bytes` bytes, at most `most`, from the one descriptor in `fds`. `segment` names them.
pub(crate) fn read(
    segment: &'static str,
    bytes: u64,
    fds: &[OwnedFd],
    most: u64,
) -> Result<Vec<u8>, ClientError> {
    let refused =
        |got: String, expected: String| ClientError::Segment(SegmentError::Unfit { segment, got, expected });
    let [fd] = fds else {
        return Err(refused(format!("{} descriptors", fds.len()), "one".to_owned()));
    };
    let len = match usize::try_from(bytes) {
        Ok(len) if bytes <= most => len,
        _ => return Err(refused(format!("{bytes} bytes"), format!("at most {most}"))),
    };
    let mut state = vec![0; len];
    let mut filled = 0;
    while let Some(rest) = state.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(fd, rest, filled as u64) {
            Ok(0) => return Err(refused(format!("{filled} bytes"), format!("{bytes} bytes"))),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(source) => return Err(ClientError::System { what: "reading what the daemon sent", source }),
        }
    }
    Ok(state)
}

/// A sealed memfd with `bytes` in it.
pub(crate) fn write(bytes: &[u8]) -> Result<OwnedFd, ClientError> {
    memfd::holding("shade-state", bytes).map_err(|error| ClientError::NoState { error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_cannot_change_on_the_way() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let fd = write(&bytes).unwrap();
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
        assert_eq!(read("the state", bytes.len() as u64, &[fd], 1 << 20).unwrap(), bytes);
    }

    #[test]
    fn wrong_lengths_and_descriptors_are_refused() {
        let state = || write(b"state").unwrap();
        assert!(read("the state", 6, &[state()], 9).is_err(), "longer than it is");
        assert!(read("the state", u64::MAX, &[state()], 9).is_err());
        assert!(read("the state", 5, &[], 9).is_err());
        assert!(read("the state", 5, &[state(), state()], 9).is_err());
        assert_eq!(read("the state", 0, &[state()], 0).unwrap(), b"");
    }
}
