//! Strips and tiles as they are stored to samples.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress};
use weezl::{BitOrder, decode::Decoder};

use super::directory::{corrupt, unsupported};
use crate::ImageFault;

/// Most bytes that a stored byte becomes: LZW's longest strings, on average, are half as long.
pub(super) const EXPANSION_MAX: u64 = 4096;

/// How strips and tiles are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Lzw,
    Deflate,
    PackBits,
}

impl Compression {
    /// The compression with TIFF's number `value`.
    pub(super) fn from_tag(value: u64) -> Result<Self, ImageFault> {
        let other = match value {
            1 => return Ok(Self::None),
            5 => return Ok(Self::Lzw),
            8 | 32946 => return Ok(Self::Deflate),
            32773 => return Ok(Self::PackBits),
            2..=4 => "fax",
            6 | 7 => "JPEG",
            34925 => "LZMA",
            50000 => "zstd",
            50001 => "WebP",
            _ => return Err(unsupported(format_args!("compression {value}"))),
        };
        Err(unsupported(format_args!("{other} compression")))
    }

    /// Fills `samples` from `stored`, and ignores anything behind the bytes for that, as libtiff
    /// does. `is_reversed`: the first bit of each stored byte is its lowest (`FillOrder` 2).
    pub(super) fn unpack(
        self,
        stored: &[u8],
        is_reversed: bool,
        samples: &mut [u8],
    ) -> Result<(), ImageFault> {
        let stored = if is_reversed {
            Cow::Owned(stored.iter().map(|byte| byte.reverse_bits()).collect())
        } else {
            Cow::Borrowed(stored)
        };
        let filled = match self {
            Self::None => {
                let len = stored.len().min(samples.len());
                if let (Some(to), Some(from)) = (samples.get_mut(..len), stored.get(..len)) {
                    to.copy_from_slice(from);
                }
                len
            }
            Self::Lzw => lzw(&stored, samples)?,
            Self::Deflate => deflate(&stored, samples)?,
            Self::PackBits => pack_bits(&stored, samples),
        };
        if filled < samples.len() {
            return Err(corrupt("a strip or tile ends too early"));
        }
        Ok(())
    }
}

/// The number of bytes filled.
fn lzw(stored: &[u8], samples: &mut [u8]) -> Result<usize, ImageFault> {
    // The oldest files have the lowest bit first, and longer codes one code later.
    let is_old = matches!(stored, [0, second, ..] if second & 1 == 1);
    let mut decoder = if is_old {
        Decoder::new(BitOrder::Lsb, 8)
    } else {
        Decoder::with_tiff_size_switch(BitOrder::Msb, 8)
    };
    let (mut from, mut to) = (0, 0);
    while to < samples.len() {
        let (rest, room) =
            (stored.get(from..).unwrap_or_default(), samples.get_mut(to..).unwrap_or_default());
        let done = decoder.decode_bytes(rest, room);
        if done.status.is_err() {
            return Err(corrupt("a code of LZW that is none"));
        }
        if done.consumed_in == 0 && done.consumed_out == 0 {
            break;
        }
        from += done.consumed_in;
        to += done.consumed_out;
    }
    Ok(to)
}

/// The number of bytes filled.
fn deflate(stored: &[u8], samples: &mut [u8]) -> Result<usize, ImageFault> {
    let mut inflater = Decompress::new(true);
    let (mut from, mut to) = (0, 0);
    while to < samples.len() {
        let (rest, room) =
            (stored.get(from..).unwrap_or_default(), samples.get_mut(to..).unwrap_or_default());
        let done = inflater.decompress(rest, room, FlushDecompress::None);
        done.map_err(|_| corrupt("its deflated data are damaged"))?;
        let (consumed, made) = (inflater.total_in(), inflater.total_out());
        let [consumed, made] = [consumed, made].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        if (consumed, made) == (from, to) {
            break;
        }
        (from, to) = (consumed, made);
    }
    Ok(to)
}

/// The number of bytes filled.
fn pack_bits(mut stored: &[u8], samples: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < samples.len()
        && let Some((&count, rest)) = stored.split_first()
    {
        let room = samples.get_mut(filled..).unwrap_or_default();
        let wanted = match count {
            0..128 => usize::from(count) + 1,
            128 => 0,
            129.. => 257 - usize::from(count),
        };
        let run = wanted.min(room.len());
        if count < 128 {
            let Some(plain) = rest.get(..run) else { break };
            room.iter_mut().zip(plain).for_each(|(to, &from)| *to = from);
            stored = rest.get(wanted..).unwrap_or_default();
        } else if count > 128 {
            let Some((&value, behind)) = rest.split_first() else { break };
            room.iter_mut().take(run).for_each(|to| *to = value);
            stored = behind;
        } else {
            stored = rest;
        }
        filled += run;
    }
    filled
}

/// Turns words of 16 bits so that the high byte comes first.
pub(super) fn high_byte_first(samples: &mut [u8]) {
    samples.as_chunks_mut::<2>().0.iter_mut().for_each(|word| word.swap(0, 1));
}

/// Undoes Predictor 2: each sample was stored as its difference from that of the pixel before.
/// `channels` are those of a pixel in this strip or tile; words have the high byte first.
pub(super) fn undo_differences(row: &mut [u8], bits: u32, channels: usize) {
    if bits == 16 {
        let (words, _) = row.as_chunks_mut::<2>();
        let mut before = vec![0_u16; channels];
        for pixel in words.chunks_exact_mut(channels.max(1)) {
            for (word, sum) in pixel.iter_mut().zip(&mut before) {
                *sum = sum.wrapping_add(u16::from_be_bytes(*word));
                *word = sum.to_be_bytes();
            }
        }
        return;
    }
    let mut before = vec![0_u8; channels];
    for pixel in row.chunks_exact_mut(channels.max(1)) {
        for (sample, sum) in pixel.iter_mut().zip(&mut before) {
            *sum = sum.wrapping_add(*sample);
            *sample = *sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(compression: Compression, stored: &[u8], len: usize) -> Result<Vec<u8>, ImageFault> {
        let mut samples = vec![0; len];
        compression.unpack(stored, false, &mut samples).map(|()| samples)
    }

    #[test]
    fn runs_and_plain_bytes_are_unpacked() {
        let packed = [2, 1, 2, 3, 128, 254, 9, 0, 7, 255, 5];
        assert_eq!(unpacked(Compression::PackBits, &packed, 7).unwrap(), [1, 2, 3, 9, 9, 9, 7]);
        // More than is needed is left out, less is a fault.
        assert_eq!(unpacked(Compression::PackBits, &[254, 9], 2).unwrap(), [9, 9]);
        for short in [&[][..], &[2, 1], &[254], &[0, 7], &[128, 128]] {
            assert!(unpacked(Compression::PackBits, short, 2).is_err(), "{short:?}");
        }
    }

    #[test]
    fn lzw_needs_no_end_and_may_be_of_the_old_style() {
        let plain: Vec<u8> = (0..2000_u32).map(|at| (at * at / 7 % 251) as u8).collect();
        let new = weezl::encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&plain).unwrap();
        let old = weezl::encode::Encoder::new(BitOrder::Lsb, 8).encode(&plain).unwrap();
        for packed in [&new, &old] {
            assert_eq!(unpacked(Compression::Lzw, packed, plain.len()).unwrap(), plain);
            assert_eq!(unpacked(Compression::Lzw, &packed[..packed.len() - 1], 1990).unwrap(), plain[..1990]);
            assert!(unpacked(Compression::Lzw, &packed[..packed.len() / 2], plain.len()).is_err());
        }
    }

    #[test]
    fn bits_may_be_stored_from_the_lowest_on() {
        let mut samples = [0; 2];
        Compression::None.unpack(&[0b1000_0000, 0b0000_0110], true, &mut samples).unwrap();
        assert_eq!(samples, [1, 0b0110_0000]);
    }

    #[test]
    fn differences_run_along_each_channel() {
        let mut row = [1, 2, 3, 4, 250, 6];
        undo_differences(&mut row, 8, 2);
        assert_eq!(row, [1, 2, 4, 6, 254, 12]);
        let mut row = [0, 255, 0, 1, 255, 255];
        undo_differences(&mut row, 16, 1);
        assert_eq!(row, [0, 255, 1, 0, 0, 255]);
    }
}
