//! Seats: which stratum a position of a plan is of.
//!
//! Position p of a plan of P strata has seat p mod P, and belongs to rank p mod W. Seat q has
//! stratum q, unless [`seats_for`](super::seats_for) found others to be cached at its rank's node.
//!
//! P need not divide the number of samples, S. Then the strata below S mod P have one sample more,
//! and the last row of a plan ends after the seat S mod P - 1. So the seats below S mod P have
//! these strata, whatever their order. No plan has a gap, and no rank a batch more than others.

use crate::SpecError;

/// Bytes of a stratum's number.
const STRATUM_BYTES: usize = 4;

/// The stratum of each seat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// By seat: its stratum. Empty if seat q has stratum q.
    strata: Vec<u32>,
    /// By stratum: its seat. Empty likewise.
    seats: Vec<u32>,
}

impl Seats {
    /// Seat q has stratum q.
    pub const IN_ORDER: Self = Self { strata: Vec::new(), seats: Vec::new() };

    /// Seats with these strata, in the plan of `samples` samples.
    ///
    /// # Errors
    /// A stratum is missing, or one with a sample more has a seat that the last row does not have.
    pub fn new(strata: Vec<u32>, samples: u32) -> Result<Self, SpecError> {
        let count = u32::try_from(strata.len()).unwrap_or(u32::MAX);
        let longer = samples.checked_rem(count).unwrap_or(0);
        let mut seats = vec![u32::MAX; strata.len()];
        for (seat, &stratum) in (0..).zip(&strata) {
            let fits = (seat < longer) == (stratum < longer);
            match seats.get_mut(stratum as usize) {
                Some(slot) if fits && *slot == u32::MAX => *slot = seat,
                _ => {
                    let got = format_args!("stratum {stratum} for seat {seat} of {count}");
                    let expected = format_args!(
                        "each stratum once, and those below {longer}, which have a sample more, in the first seats"
                    );
                    return Err(SpecError::new("seats", got, expected));
                }
            }
        }
        if (0..).zip(&strata).all(|(seat, &stratum)| seat == stratum) {
            return Ok(Self::IN_ORDER);
        }
        Ok(Self { strata, seats })
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes), for a plan of this many strata.
    ///
    /// # Errors
    /// They have another length, or those of [`new`](Self::new).
    pub fn from_bytes(bytes: &[u8], strata: u32, samples: u32) -> Result<Self, SpecError> {
        if bytes.is_empty() {
            return Ok(Self::IN_ORDER);
        }
        if bytes.len() != strata as usize * STRATUM_BYTES {
            let expected = format_args!("{STRATUM_BYTES} for each of {strata} strata, or none");
            return Err(SpecError::new("seats", format_args!("{} bytes", bytes.len()), expected));
        }
        Self::new(words(bytes).collect(), samples)
    }

    /// The stratum of each seat, 4 bytes each; nothing if seat q has stratum q.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.strata.iter().flat_map(|stratum| stratum.to_le_bytes()).collect()
    }

    /// The stratum of a seat.
    #[must_use]
    pub fn stratum(&self, seat: u32) -> u32 {
        self.strata.get(seat as usize).copied().unwrap_or(seat)
    }

    /// The seat of a stratum.
    #[must_use]
    pub fn seat(&self, stratum: u32) -> u32 {
        self.seats.get(stratum as usize).copied().unwrap_or(stratum)
    }
}

/// The numbers of 32 bits in `bytes`.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes
        .chunks_exact(STRATUM_BYTES)
        .filter_map(|word| word.first_chunk())
        .map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_in_order_are_no_bytes() {
        let seats = Seats::new(vec![0, 1, 2], 10).unwrap();
        assert_eq!((&seats, seats.to_bytes().len()), (&Seats::IN_ORDER, 0));
        assert_eq!(Seats::from_bytes(&[], 3, 10).unwrap(), seats);
        assert_eq!((seats.stratum(2), seats.seat(2)), (2, 2));
    }

    #[test]
    fn bytes_come_back() {
        // 11 samples: strata 0 and 1 have 4, stratum 2 has 3.
        let seats = Seats::new(vec![1, 0, 2], 11).unwrap();
        assert_eq!(Seats::from_bytes(&seats.to_bytes(), 3, 11).unwrap(), seats);
        assert_eq!([0, 1, 2].map(|seat| seats.stratum(seat)), [1, 0, 2]);
        assert_eq!([0, 1, 2].map(|stratum| seats.seat(stratum)), [1, 0, 2]);
    }

    #[test]
    fn seats_that_leave_a_gap_are_refused() {
        for (strata, samples) in [
            (vec![0, 0, 1], 9),
            (vec![0, 1, 3], 9),
            (vec![0, 1, u32::MAX], 9),
            // The last row has the seats 0 and 1 only, and stratum 2 has nothing for it.
            (vec![2, 1, 0], 11),
        ] {
            let text = Seats::new(strata, samples).unwrap_err().to_string();
            assert!(text.contains("seats") && text.contains("each stratum once"), "{text}");
        }
        for len in [1, 4, 11, 13] {
            assert!(Seats::from_bytes(&vec![0; len], 3, 9).is_err(), "{len} bytes");
        }
    }
}
