//! Binary PPM (`P6`, colour) and PGM (`P5`, grey) of 8 bits: what `shade-pack` writes for decoded pixels.
//!
//! ```text
//! "P6" ws width ws height ws maxval one-ws  then height * width * 3 bytes    (ws: blanks, or '#' to the end of line)
//! ```

use shade_formats::index::Media;

use super::DecodeFault;
use super::fit::Size;
use super::limits::{check_size, scratch};

/// Decodes `bytes` into `rgb`.
pub(super) fn decode(bytes: &[u8], rgb: &mut Vec<u8>) -> Result<Size, DecodeFault> {
    let channels = match bytes.get(..2) {
        Some(b"P5") => 1,
        Some(b"P6") => 3,
        Some(b"P1" | b"P2" | b"P3" | b"P4") => return Err(unsupported("of netpbm's forms, P5 and P6 only")),
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
    let value_max = match value_max {
        0 => return Err(corrupt("a largest value of 0")),
        1..=255 => u8::try_from(value_max).unwrap_or(u8::MAX),
        _ => return Err(unsupported("of P5 and P6, 8 bits a sample only")),
    };
    let pixels = width as usize * height as usize;
    let samples = rest.get(..pixels * channels).ok_or_else(|| corrupt("it ends before its last row"))?;
    let rgb = scratch(rgb, pixels * 3);
    if channels == 3 {
        rgb.copy_from_slice(samples);
    } else {
        let (colours, _) = rgb.as_chunks_mut::<3>();
        colours.iter_mut().zip(samples).for_each(|(colour, &grey)| *colour = [grey; 3]);
    }
    if value_max != u8::MAX {
        rgb.iter_mut().for_each(|value| *value = stretch(*value, value_max));
    }
    Ok(Size { width, height })
}

/// The next decimal number of the header, after blanks and comments.
fn number(rest: &mut &[u8]) -> Result<u32, DecodeFault> {
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

/// A value of `0..=value_max` in `0..=255`, rounded; a larger one is white.
fn stretch(value: u8, value_max: u8) -> u8 {
    let (value, value_max) = (u32::from(value), u32::from(value_max));
    u8::try_from((value * 255 + value_max / 2) / value_max).unwrap_or(u8::MAX)
}

fn unsupported(detail: &'static str) -> DecodeFault {
    DecodeFault::Unsupported { media: Media::Ppm, detail }
}

fn corrupt(text: &str) -> DecodeFault {
    DecodeFault::Corrupt { media: Media::Ppm, text: text.to_owned() }
}
