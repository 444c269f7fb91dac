//! What a node tells the others before an epoch is drawn, where all nodes draw one plan by losses.
//! `CONTROL.md` has the layout.

use super::codec::Reader;
use super::scores::{bitmap, read_bitmap};
use crate::FormatError;
use crate::checksum::crc32c;

const STRUCTURE: &str = "pooled scores";
/// What [`Pooled::to_bytes`] begins with.
const MAGIC: [u8; 8] = *b"SHADEPO1";
/// The epoch of a node that has delivered none.
const NO_EPOCH: u32 = u32::MAX;

/// What a node has learned since all nodes drew a plan from one table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pooled {
    /// Identity of the dataset's content.
    pub content_id: u128,
    /// Digest of the plan's parameters.
    pub plan_digest: u64,
    /// Digest of the state that all ranks have loaded last; 0: none.
    pub state: u64,
    /// The epoch that will be drawn.
    pub epoch: u32,
    /// The epoch in which samples were delivered, before that one.
    pub ended: Option<u32>,
    /// CRC32C of the list that was drawn for `ended`, if the node has drawn it: all have drawn the
    /// same.
    pub list_crc32c: Option<u32>,
    /// A loss was reported that the epoch goes by.
    pub has_losses: bool,
    /// The ranks of the node, in their order.
    pub ranks: Vec<u32>,
    /// By sample of the dataset.
    pub samples: Vec<PooledSample>,
}

/// What a node has learned of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PooledSample {
    /// It was delivered in the epoch that has ended.
    pub delivered: bool,
    /// It has another score.
    pub scored: Option<PlacedScore>,
}

/// A score, and when it came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacedScore {
    /// The place in the order of plans that decided it: of several nodes' scores the latest counts.
    pub place: u32,
    /// The score.
    pub score: f32,
}

impl Pooled {
    /// Whether the bytes say that they are of this kind.
    #[must_use]
    pub fn is(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { content_id, plan_digest, state, epoch, ended, list_crc32c, has_losses, ranks, samples } =
            self;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&content_id.to_le_bytes());
        bytes.extend_from_slice(&plan_digest.to_le_bytes());
        bytes.extend_from_slice(&state.to_le_bytes());
        let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let list = [u32::from(list_crc32c.is_some()), list_crc32c.unwrap_or_default()];
        let header = [*epoch, ended.unwrap_or(NO_EPOCH), list[0], list[1], u32::from(*has_losses), count];
        bytes.extend(header.iter().chain(ranks).flat_map(|field| field.to_le_bytes()));
        bytes.extend(bitmap(samples, |sample| sample.delivered));
        bytes.extend(bitmap(samples, |sample| sample.scored.is_some()));
        for PlacedScore { place, score } in samples.iter().filter_map(|sample| sample.scored) {
            bytes.extend_from_slice(&place.to_le_bytes());
            bytes.extend_from_slice(&score.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes), of a dataset of `samples` samples.
    ///
    /// # Errors
    /// They are no such bytes.
    pub fn from_bytes(bytes: &[u8], samples: u32) -> Result<Self, FormatError> {
        let mut reader = Reader::checked(STRUCTURE, &MAGIC, bytes)?;
        let (content_id, plan_digest) = (reader.get("content_id")?, reader.get("plan_digest")?);
        let state = reader.get("state")?;
        let (epoch, ended): (u32, u32) = (reader.get("epoch")?, reader.get("ended")?);
        let (has_list, list_crc32c): (bool, u32) = (read_flag(&mut reader)?, reader.get("list_crc32c")?);
        let has_losses = read_flag(&mut reader)?;
        let count: u32 = reader.get("count")?;
        let mut ranks: Vec<u32> = Vec::new();
        for _ in 0..count {
            let (at, rank): (_, u32) = (reader.offset(), reader.get("rank")?);
            if ranks.last().is_some_and(|&last| last >= rank) {
                return Err(FormatError::new(STRUCTURE, at, rank, "different ranks, in their order"));
            }
            ranks.push(rank);
        }
        let delivered = read_bitmap(STRUCTURE, &mut reader, samples)?;
        let is_scored = read_bitmap(STRUCTURE, &mut reader, samples)?;
        let of_sample = |(delivered, is_scored): (bool, bool)| {
            let scored = is_scored.then(|| read_score(&mut reader)).transpose()?;
            Ok(PooledSample { delivered, scored })
        };
        let samples: Result<_, FormatError> = delivered.into_iter().zip(is_scored).map(of_sample).collect();
        let (samples, ended) = (samples?, (ended != NO_EPOCH).then_some(ended));
        reader.finish()?;
        let list_crc32c = has_list.then_some(list_crc32c);
        Ok(Self { content_id, plan_digest, state, epoch, ended, list_crc32c, has_losses, ranks, samples })
    }
}

fn read_flag(reader: &mut Reader<'_>) -> Result<bool, FormatError> {
    let (at, flag): (_, u32) = (reader.offset(), reader.get("flag")?);
    if flag < 2 { Ok(flag == 1) } else { Err(FormatError::new(STRUCTURE, at, flag, "0 or 1")) }
}

fn read_score(reader: &mut Reader<'_>) -> Result<PlacedScore, FormatError> {
    let (place, bits) = (reader.get("place")?, reader.get("score")?);
    Ok(PlacedScore { place, score: f32::from_bits(bits) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: u32 = 21;

    fn pooled() -> impl Strategy<Value = Pooled> {
        let scored = prop::option::of((any::<u32>(), -9.0..9.0_f32));
        let samples = prop::collection::vec((any::<bool>(), scored), SAMPLES as usize);
        let ranks = prop::collection::btree_set(0..99_u32, 0..5);
        let header = any::<(u128, u64, u64, u32, Option<u32>, bool)>();
        (header, prop::option::of(0..u32::MAX), ranks, samples).prop_map(|(header, ended, ranks, samples)| {
            let (content_id, plan_digest, state, epoch, list_crc32c, has_losses) = header;
            let of_sample = |(delivered, scored): (bool, Option<(u32, f32)>)| PooledSample {
                delivered,
                scored: scored.map(|(place, score)| PlacedScore { place, score }),
            };
            Pooled {
                content_id,
                plan_digest,
                state,
                epoch,
                ended,
                list_crc32c,
                has_losses,
                ranks: ranks.into_iter().collect(),
                samples: samples.into_iter().map(of_sample).collect(),
            }
        })
    }

    /// A change of these bytes needs another magic.
    #[test]
    fn the_bytes_never_change() {
        let scored = Some(PlacedScore { place: 0x0102_0304, score: 2.5 });
        let samples = [(true, scored), (false, None), (true, None)];
        let samples = samples.map(|(delivered, scored)| PooledSample { delivered, scored }).to_vec();
        let pooled = Pooled {
            content_id: 2,
            plan_digest: 3,
            state: 9,
            epoch: 5,
            ended: Some(4),
            list_crc32c: Some(0x0506_0708),
            has_losses: true,
            ranks: vec![2, 3],
            samples,
        };
        let mut expected = b"SHADEPO1".to_vec();
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([9, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 8, 7, 6, 5, 1, 0, 0, 0]);
        expected.extend([2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0b101, 0b001, 4, 3, 2, 1, 0, 0, 0x20, 0x40]);
        expected.extend(crc32c(&expected).to_le_bytes());
        assert_eq!(pooled.to_bytes(), expected);
        assert_eq!(Pooled::from_bytes(&expected, 3).unwrap(), pooled);
    }

    proptest! {
        #[test]
        fn pooled_scores_come_back(pooled in pooled()) {
            let bytes = pooled.to_bytes();
            prop_assert!(Pooled::is(&bytes));
            prop_assert_eq!(Pooled::from_bytes(&bytes, SAMPLES).unwrap(), pooled);
        }

        #[test]
        fn damage_is_found(pooled in pooled(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = pooled.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Pooled::from_bytes(&bytes, SAMPLES).is_err());
            prop_assert!(Pooled::from_bytes(&pooled.to_bytes()[..at], SAMPLES).is_err());
        }

        /// With a right checksum, too, they never panic, and take no more memory than they have.
        #[test]
        fn any_bytes_are_read_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            samples in any::<u32>(),
            cut in any::<prop::sample::Index>(),
            pooled in pooled(),
        ) {
            for begins_well in [false, true] {
                if begins_well {
                    let good = pooled.to_bytes();
                    bytes.splice(..0, good[..cut.index(good.len())].iter().copied());
                }
                let crc = crc32c(&bytes).to_le_bytes();
                let all: Vec<u8> = bytes.iter().copied().chain(crc).collect();
                let _ = Pooled::from_bytes(&all, samples);
            }
        }
    }
}
