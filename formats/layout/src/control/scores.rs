//! What a node tells the others of its strata after it has drawn an epoch, so that any of them may
//! save the whole training. `CONTROL.md` has the layout.

use super::codec::Reader;
use crate::FormatError;
use crate::checksum::crc32c;

const STRUCTURE: &str = "scores of a node";
const MAGIC: [u8; 8] = *b"SHADESD1";

/// What a node has learned of the samples of its strata since it told the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scores {
    /// Identity of the dataset's content.
    pub content_id: u128,
    /// Digest of the plan's parameters.
    pub plan_digest: u64,
    /// The epoch that was drawn.
    pub epoch: u32,
    /// The epoch in which samples were delivered, before that one.
    pub ended: u32,
    /// Number of strata of the plan.
    pub strata: u32,
    /// The node's own ones.
    pub of: Vec<OfStratum>,
}

/// The scores of one stratum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfStratum {
    /// Which one.
    pub stratum: u32,
    /// CRC32C of the list that was drawn: its sample ids, then their weights.
    pub list_crc32c: u32,
    /// By member of the stratum.
    pub members: Vec<Member>,
}

/// The score of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// It was delivered.
    pub delivered: bool,
    /// It has another score: that of the loss with this quantile, in 2⁻¹⁶.
    pub score: Option<u16>,
}

impl Scores {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { content_id, plan_digest, epoch, ended, strata, of } = self;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&content_id.to_le_bytes());
        bytes.extend_from_slice(&plan_digest.to_le_bytes());
        let count = u32::try_from(of.len()).unwrap_or(u32::MAX);
        bytes.extend([*epoch, *ended, *strata, count].iter().flat_map(|field| field.to_le_bytes()));
        for OfStratum { stratum, list_crc32c, members } in of {
            bytes.extend([stratum, list_crc32c].iter().flat_map(|field| field.to_le_bytes()));
            bytes.extend(bitmap(members, |member| member.delivered));
            bytes.extend(bitmap(members, |member| member.score.is_some()));
            bytes.extend(members.iter().filter_map(|member| member.score).flat_map(u16::to_le_bytes));
        }
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes), of a dataset of `samples` samples.
    ///
    /// # Errors
    /// They are no such bytes.
    pub fn from_bytes(bytes: &[u8], samples: u32) -> Result<Self, FormatError> {
        let wrong =
            |at, got: &dyn std::fmt::Display, expected| FormatError::new(STRUCTURE, at, got, expected);
        let mut reader = Reader::checked(STRUCTURE, &MAGIC, bytes)?;
        let (content_id, plan_digest) = (reader.get("content_id")?, reader.get("plan_digest")?);
        let (epoch, ended) = (reader.get("epoch")?, reader.get("ended")?);
        let (strata, count): (u32, u32) = (reader.get("strata")?, reader.get("count")?);
        let mut of: Vec<OfStratum> = Vec::new();
        for _ in 0..count {
            let at = reader.offset();
            let (stratum, list_crc32c): (u32, u32) = (reader.get("stratum")?, reader.get("list_crc32c")?);
            let follows = of.last().is_none_or(|last| last.stratum < stratum);
            if !follows || stratum >= strata.min(samples) {
                return Err(wrong(at, &stratum, "strata of the plan, in their order"));
            }
            let members = read_members(&mut reader, (samples - stratum).div_ceil(strata))?;
            of.push(OfStratum { stratum, list_crc32c, members });
        }
        reader.finish()?;
        Ok(Self { content_id, plan_digest, epoch, ended, strata, of })
    }
}

/// One bit for each of these, the lowest of a byte first.
pub(super) fn bitmap<T>(of: &[T], is_set: impl Fn(&T) -> bool) -> impl Iterator<Item = u8> {
    of.chunks(8).map(move |eight| {
        (0..8).zip(eight).map(|(bit, one)| u8::from(is_set(one)) << bit).fold(0, |byte, bit| byte | bit)
    })
}

/// Reads the bits of `len` members, as [`bitmap`] writes them.
pub(super) fn read_bitmap(
    structure: &'static str,
    reader: &mut Reader<'_>,
    len: u32,
) -> Result<Vec<bool>, FormatError> {
    let (at, len) = (reader.offset(), len as usize);
    let bytes = reader.bytes(len.div_ceil(8))?;
    let mut bits: Vec<bool> =
        bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect();
    if bits.drain(len..).any(|is_set| is_set) {
        return Err(FormatError::new(structure, at, "a bit behind the last member", "0"));
    }
    Ok(bits)
}

fn read_members(reader: &mut Reader<'_>, len: u32) -> Result<Vec<Member>, FormatError> {
    let delivered = read_bitmap(STRUCTURE, reader, len)?;
    let scored = read_bitmap(STRUCTURE, reader, len)?;
    let member = |(delivered, is_scored): (bool, bool)| {
        let score = is_scored.then(|| reader.get("score")).transpose()?;
        Ok(Member { delivered, score })
    };
    delivered.into_iter().zip(scored).map(member).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: u32 = 100;

    fn scores() -> impl Strategy<Value = Scores> {
        let member = (any::<bool>(), any::<Option<u16>>());
        let of =
            prop::collection::btree_map(0..12_u32, (any::<u32>(), prop::collection::vec(member, 9)), 0..12);
        (of, any::<(u128, u64, u32, u32)>()).prop_map(|(of, (content_id, plan_digest, epoch, ended))| {
            let of = of.into_iter().map(|(stratum, (list_crc32c, members))| {
                let len = (SAMPLES - stratum).div_ceil(12) as usize;
                let member = |(delivered, score)| Member { delivered, score };
                OfStratum {
                    stratum,
                    list_crc32c,
                    members: members.into_iter().map(member).take(len).collect(),
                }
            });
            Scores { content_id, plan_digest, epoch, ended, strata: 12, of: of.collect() }
        })
    }

    /// A change of these bytes needs another magic.
    #[test]
    fn the_bytes_never_change() {
        let members = [(true, Some(0x1234)), (false, None), (false, Some(0xffff))];
        let members = members.map(|(delivered, score)| Member { delivered, score }).to_vec();
        let of = vec![OfStratum { stratum: 1, list_crc32c: 0x0506_0708, members }];
        let scores = Scores { content_id: 2, plan_digest: 3, epoch: 5, ended: 4, strata: 2, of };
        let mut expected = b"SHADESD1".to_vec();
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, 8, 7, 6, 5, 0b001, 0b101, 0x34, 0x12, 0xff, 0xff]);
        expected.extend(crc32c(&expected).to_le_bytes());
        assert_eq!(scores.to_bytes(), expected);
        assert_eq!(Scores::from_bytes(&expected, 7).unwrap(), scores);
    }

    /// After an epoch by importance, which delivers 63 % of the samples: 1.6 bytes for each.
    #[test]
    fn few_bytes_a_sample() {
        let (samples, strata) = (1_281_167_u32, 4_032_u32);
        let of = (0..strata).map(|stratum| {
            let delivered = |at: u32| (at * 41 + stratum) % 100 < 63;
            let member = |at| Member { delivered: delivered(at), score: delivered(at).then_some(7) };
            let members = (0..(samples - stratum).div_ceil(strata)).map(member).collect();
            OfStratum { stratum, list_crc32c: 0, members }
        });
        let scores = Scores { strata, of: of.collect(), ..Scores::default() };
        let bytes = scores.to_bytes();
        assert!(bytes.len() as f64 <= 1.6 * f64::from(samples), "{}", bytes.len());
        assert_eq!(Scores::from_bytes(&bytes, samples).unwrap(), scores);
    }

    proptest! {
        #[test]
        fn scores_come_back(scores in scores()) {
            prop_assert_eq!(Scores::from_bytes(&scores.to_bytes(), SAMPLES).unwrap(), scores);
        }

        #[test]
        fn damage_is_found(scores in scores(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = scores.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Scores::from_bytes(&bytes, SAMPLES).is_err());
            prop_assert!(Scores::from_bytes(&scores.to_bytes()[..at], SAMPLES).is_err());
        }

        /// With a right checksum, too, they never panic, and take no more memory than they have.
        #[test]
        fn any_bytes_are_read_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            samples in any::<u32>(),
            cut in any::<prop::sample::Index>(),
            scores in scores(),
        ) {
            for begins_well in [false, true] {
                if begins_well {
                    let good = scores.to_bytes();
                    bytes.splice(..0, good[..cut.index(good.len())].iter().copied());
                }
                let crc = crc32c(&bytes).to_le_bytes();
                let all: Vec<u8> = bytes.iter().copied().chain(crc).collect();
                let _ = Scores::from_bytes(&all, samples);
            }
        }
    }
}
