//! Binary PPM (`P6`, colour) and PGM (`P5`, grey) of 8 or 16 bits: the format in which `shade-pack`
//! stores decoded pixels.
//!
//! ```text
//! "P6" ws width ws height ws maxval one-ws  then height * width * 3 samples
//! ```
//!
//! `ws` is blanks, or `#` to the end of the line. A sample is one byte, or two (the high one first)
//! where maxval exceeds 255.

use shade_formats::index::Media;

use super::colour::{each, grey, saturate};
use crate::limits::{check_size, scratch};
use crate::{ImageFault, Size};

/// Decodes `bytes` into `rgb`. Pixels that need no conversion are not copied: they are returned,
/// too.
pub(crate) fn decode<'a>(bytes: &'a [u8], rgb: &mut Vec<u8>) -> Result<(Size, Option<&'a [u8]>), ImageFault> {
    let channels = match bytes.get(..2) {
        Some(b"P5") => 1,
        Some(b"P6") => 3,
        Some(b"P1" | b"P2" | b"P3" | b"P4") => {
            return Err(ImageFault::unsupported(Media::Ppm, "another form than P5 and P6"));
        }
        _ => return Err(corrupt("neither P5 nor P6 at its start")),
    };
    let mut rest = bytes.get(2..).unwrap_or_default();
    let width = number(&mut rest)?;
    let height = number(&mut rest)?;
    let value_max = number(&mut rest)?;
    let blank = rest.split_off_first();
    if !blank.is_some_and(u8::is_ascii_whitespace) {
        return Err(corrupt("no blank after the header"));
    }
    check_size(width.into(), height.into())?;
    let value_max = match u16::try_from(value_max) {
        Ok(0) => return Err(corrupt("a largest value of 0")),
        Ok(value_max) => value_max,
        Err(_) => return Err(corrupt("a largest value of more than 65535")),
    };
    let sample_bytes = if value_max > 255 { 2 } else { 1 };
    let pixels = width as usize * height as usize;
    let samples =
        rest.get(..pixels * channels * sample_bytes).ok_or_else(|| corrupt("it ends before its last row"))?;
    let size = Size { width, height };
    if (channels, sample_bytes, value_max) == (3, 1, 255) {
        return Ok((size, Some(samples)));
    }
    let rgb = scratch(rgb, pixels * 3);
    let word = u16::from_be_bytes;
    match (channels, sample_bytes) {
        (3, 1) => each(samples, rgb, |pixel| pixel.map(|value: u8| to_byte(value.into(), value_max))),
        (3, _) => each(samples, rgb, |&[a, b, c, d, e, f]| {
            [word([a, b]), word([c, d]), word([e, f])].map(|value| to_byte(value, value_max))
        }),
        (_, 1) => each(samples, rgb, |&[value]| grey(to_byte(value.into(), value_max))),
        // Grey of 16 bits is first stretched to 16 bits, then cut off at 255: see `saturate`.
        _ => each(samples, rgb, |&pixel| grey(saturate(stretch(word(pixel), value_max, u16::MAX)))),
    }
    Ok((size, None))
}

/// The next decimal number of the header, after blanks and comments.
fn number(rest: &mut &[u8]) -> Result<u32, ImageFault> {
    let mut is_comment = false;
    while let Some(&byte) = rest.first() {
        match byte {
            b'\n' | b'\r' => is_comment = false,
            b'#' => is_comment = true,
            _ if is_comment || byte.is_ascii_whitespace() => {}
            _ => break,
        }
        rest.split_off_first();
    }
    let mut value = None::<u32>;
    while let Some(digit) = rest.first().filter(|byte| byte.is_ascii_digit()) {
        let grown =
            value.unwrap_or(0).checked_mul(10).and_then(|tens| tens.checked_add(u32::from(digit - b'0')));
        value = Some(grown.ok_or_else(|| corrupt("a number in its header exceeds 32 bits"))?);
        rest.split_off_first();
    }
    value.ok_or_else(|| corrupt("a number is missing in its header"))
}

/// A value of `0..=value_max` in `0..=255`.
fn to_byte(value: u16, value_max: u16) -> u8 {
    saturate(stretch(value, value_max, u8::MAX.into()))
}

/// A value of `0..=from` in `0..=to`, in Python's arithmetic: `round(value / from * to)`, halves to
/// even. A value larger than `from` becomes `to`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most `to`, at least 0, and whole"
)]
fn stretch(value: u16, from: u16, to: u16) -> u16 {
    if from == to {
        return value;
    }
    let stretched = f64::from(value) / f64::from(from) * f64::from(to);
    stretched.round_ties_even().min(to.into()) as u16
}

fn corrupt(text: &str) -> ImageFault {
    ImageFault::corrupt(Media::Ppm, text)
}
