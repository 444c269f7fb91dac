//! Passes bytes between processes in a memfd: a run's state, and others that are longer than a
//! message may be.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use shade_shm::{SegmentError, memfd};

use crate::ClientError;

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
