//! What a rank hands to the successor of a daemon that died: what it was given and what it said
//! since its last [base](super::Reply::Base). `CONTROL.md` has the layout.
//!
//! All of it may be taken in again by a daemon that knows it already: the latest place in the plan
//! decides a sample's score, not the order in which reports come.

use super::codec::Reader;
use crate::checksum::crc32c;
use crate::limits::BATCH_SAMPLES_MAX;
use crate::{FormatError, SampleId};

const STRUCTURE: &str = "redo record";
const MAGIC: [u8; 8] = *b"SHADERD1";

/// One thing that a rank was given or said.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It asked for this epoch.
    Started {
        /// The epoch.
        epoch: u32,
    },
    /// It was given a batch.
    Delivered {
        /// The batch's epoch.
        epoch: u32,
        /// The batch.
        batch: u32,
        /// Sample and flags of each row, in the batch's order; at most
        /// [`BATCH_SAMPLES_MAX`].
        rows: Vec<RedoRow>,
    },
    /// It reported losses.
    Reported {
        /// The batch's epoch.
        epoch: u32,
        /// The batch.
        batch: u32,
        /// One loss a row, of the batch's first rows.
        losses: Vec<f32>,
    },
    /// It reported a validation score.
    Validated {
        /// The score.
        score: f64,
    },
    /// It handed in what another node has told: the bytes of [`Scores`](super::Scores).
    Heard {
        /// The bytes.
        scores: Vec<u8>,
    },
}

/// A row of a batch that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoRow {
    /// Its sample.
    pub sample: SampleId,
    /// As the batch's column has them: [`FLAG_PADDING`](crate::ring::FLAG_PADDING) and
    /// [`FLAG_SUBSTITUTED`](crate::ring::FLAG_SUBSTITUTED).
    pub flags: u32,
}

/// The bytes of these steps.
#[must_use]
pub fn redo_to_bytes<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for step in steps {
        write(step, &mut bytes);
    }
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes
}

/// Reads the bytes of [`redo_to_bytes`].
///
/// # Errors
/// They are no such bytes.
pub fn redo_from_bytes(bytes: &[u8]) -> Result<Vec<Step>, FormatError> {
    let mut reader = Reader::checked(STRUCTURE, &MAGIC, bytes)?;
    let mut steps = Vec::new();
    while !reader.is_at_end() {
        steps.push(read(&mut reader)?);
    }
    Ok(steps)
}

fn write(step: &Step, bytes: &mut Vec<u8>) {
    let mut put = |fields: &[u32]| bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    match step {
        Step::Started { epoch } => put(&[1, *epoch]),
        Step::Delivered { epoch, batch, rows } => {
            put(&[2, *epoch, *batch, count(rows.len())]);
            bytes.extend(rows.iter().flat_map(|row| row.sample.0.to_le_bytes()));
            bytes.extend(rows.iter().flat_map(|row| row.flags.to_le_bytes()));
        }
        Step::Reported { epoch, batch, losses } => {
            put(&[3, *epoch, *batch, count(losses.len())]);
            bytes.extend(losses.iter().flat_map(|loss| loss.to_le_bytes()));
        }
        Step::Validated { score } => {
            put(&[4]);
            bytes.extend_from_slice(&score.to_le_bytes());
        }
        Step::Heard { scores } => {
            put(&[5, count(scores.len())]);
            bytes.extend_from_slice(scores);
        }
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Step, FormatError> {
    let at = reader.offset();
    let kind: u32 = reader.get("kind of step")?;
    Ok(match kind {
        1 => Step::Started { epoch: reader.get("epoch")? },
        2 => {
            let (epoch, batch) = (reader.get("epoch")?, reader.get("batch")?);
            let count = rows(reader)?;
            let ids: Vec<u32> = numbers(reader, count, u32::from_le_bytes)?;
            let flags = numbers(reader, count, u32::from_le_bytes)?;
            let row = |(id, flags)| RedoRow { sample: SampleId(id), flags };
            Step::Delivered { epoch, batch, rows: ids.into_iter().zip(flags).map(row).collect() }
        }
        3 => {
            let (epoch, batch) = (reader.get("epoch")?, reader.get("batch")?);
            let count = rows(reader)?;
            Step::Reported { epoch, batch, losses: numbers(reader, count, f32::from_le_bytes)? }
        }
        4 => Step::Validated { score: reader.get("score")? },
        5 => {
            let count: u32 = reader.get("length of scores")?;
            Step::Heard { scores: reader.bytes(count as usize)?.to_vec() }
        }
        kind => return Err(FormatError::new(STRUCTURE, at, format_args!("a step of kind {kind}"), "1 to 5")),
    })
}

/// The number of a batch's rows.
fn rows(reader: &mut Reader<'_>) -> Result<usize, FormatError> {
    let at = reader.offset();
    let count: u32 = reader.get("number of rows")?;
    if count > BATCH_SAMPLES_MAX {
        let expected = format_args!("at most {BATCH_SAMPLES_MAX}");
        return Err(FormatError::new(STRUCTURE, at, format_args!("{count} rows"), expected));
    }
    Ok(count as usize)
}

fn numbers<T>(reader: &mut Reader<'_>, count: usize, of: fn([u8; 4]) -> T) -> Result<Vec<T>, FormatError> {
    // Bounded by `rows`.
    let bytes = reader.bytes(count * 4)?;
    Ok(bytes.as_chunks().0.iter().map(|number| of(*number)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step() -> impl Strategy<Value = Step> {
        let row = (any::<u32>(), 0..4_u32).prop_map(|(id, flags)| RedoRow { sample: SampleId(id), flags });
        prop_oneof![
            any::<u32>().prop_map(|epoch| Step::Started { epoch }),
            (any::<(u32, u32)>(), prop::collection::vec(row, 0..40))
                .prop_map(|((epoch, batch), rows)| Step::Delivered { epoch, batch, rows }),
            (any::<(u32, u32)>(), prop::collection::vec(-9.0..9.0_f32, 0..40))
                .prop_map(|((epoch, batch), losses)| Step::Reported { epoch, batch, losses }),
            (-9.0..9.0_f64).prop_map(|score| Step::Validated { score }),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|scores| Step::Heard { scores }),
        ]
    }

    /// A change of these bytes needs another magic.
    #[test]
    fn the_bytes_never_change() {
        let rows =
            vec![RedoRow { sample: SampleId(7), flags: 2 }, RedoRow { sample: SampleId(0x102), flags: 0 }];
        let steps = [
            Step::Started { epoch: 1 },
            Step::Delivered { epoch: 1, batch: 3, rows },
            Step::Reported { epoch: 1, batch: 3, losses: vec![1.0] },
            Step::Validated { score: 1.0 },
            Step::Heard { scores: vec![9, 8] },
        ];
        let mut expected = b"SHADERD1".to_vec();
        expected.extend([1, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend([2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        expected.extend([7, 0, 0, 0, 2, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([3, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3f]);
        expected.extend([4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        expected.extend([5, 0, 0, 0, 2, 0, 0, 0, 9, 8]);
        expected.extend(crc32c(&expected).to_le_bytes());
        assert_eq!(redo_to_bytes(&steps), expected);
        assert_eq!(redo_from_bytes(&expected).unwrap(), steps);
    }

    proptest! {
        #[test]
        fn steps_come_back(steps in prop::collection::vec(step(), 0..20)) {
            prop_assert_eq!(redo_from_bytes(&redo_to_bytes(&steps)).unwrap(), steps);
        }

        #[test]
        fn damage_is_found(
            steps in prop::collection::vec(step(), 0..9),
            at: prop::sample::Index,
            bit in 0..8_u8,
        ) {
            let mut bytes = redo_to_bytes(&steps);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(redo_from_bytes(&bytes).is_err());
            prop_assert!(redo_from_bytes(&redo_to_bytes(&steps)[..at]).is_err());
        }

        /// With a right checksum, too, they never panic, and take no more memory than they have.
        #[test]
        fn other_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = [&MAGIC[..], &bytes].concat();
            bytes.extend(crc32c(&bytes).to_le_bytes());
            if let Ok(steps) = redo_from_bytes(&bytes) {
                prop_assert_eq!(redo_to_bytes(&steps), bytes);
            }
        }
    }
}
