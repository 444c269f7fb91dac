//! NumPy's file format, as far as a field of numbers may be such a file: `NAME.npy`.
//!
//! The format: numpy.lib.format, versions 1.0 to 3.0. Eight bytes of magic and version, the length
//! of the header, the header (a dict as Python writes it), and the numbers, rows one by one.
#![warn(clippy::indexing_slicing)]

use crate::numbers::NumberType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Array<'a> {
    /// Type of its numbers.
    pub(crate) number: NumberType,
    /// Its dimensions.
    pub(crate) shape: Vec<u32>,
    /// Its numbers: as many as the shape says.
    pub(crate) numbers: &'a [u8],
}

/// Reads a file.
///
/// # Errors
/// It is no such file, or its numbers are of another type or order than a batch may have.
pub(crate) fn read(file: &[u8]) -> Result<Array<'_>, String> {
    let (header, numbers) = parts(file).ok_or("no file of NumPy")?;
    let header = std::str::from_utf8(header).map_err(|_| "a file of NumPy without a header in UTF-8")?;
    let said = || format!("a file of NumPy with the header {:?}", header.trim());
    if value(header, "fortran_order").is_none_or(|order| !order.starts_with("False")) {
        return Err(said());
    }
    let number = value(header, "descr").and_then(number_of).ok_or_else(said)?;
    let shape = value(header, "shape").and_then(shape_of).ok_or_else(said)?;
    let bytes =
        shape.iter().try_fold(u64::from(number.bytes()), |bytes, &side| bytes.checked_mul(side.into()));
    if bytes != Some(numbers.len() as u64) {
        return Err(format!("{} with {} bytes of numbers", said(), numbers.len()));
    }
    Ok(Array { number, shape, numbers })
}

/// Header and numbers.
fn parts(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[major, _], rest) = file.strip_prefix(MAGIC)?.split_first_chunk()?;
    let (len, rest) = match major {
        1 => rest.split_first_chunk().map(|(len, rest)| (u32::from(u16::from_le_bytes(*len)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len), rest)),
        _ => None,
    }?;
    rest.split_at_checked(len as usize)
}

/// What follows a key of the header.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, behind) = header.split_once(&format!("'{key}':"))?;
    Some(behind.trim_start())
}

/// The type that a `descr` names. Numbers of one byte have no order.
fn number_of(descr: &str) -> Option<NumberType> {
    let (name, _) = descr.strip_prefix('\'')?.split_once('\'')?;
    match name {
        "|u1" | "|b1" => Some(NumberType::Uint8),
        "|i1" => Some(NumberType::Int8),
        "<i2" => Some(NumberType::Int16),
        "<i4" => Some(NumberType::Int32),
        "<i8" => Some(NumberType::Int64),
        "<f2" => Some(NumberType::Float16),
        "<f4" => Some(NumberType::Float32),
        "<f8" => Some(NumberType::Float64),
        _ => None,
    }
}

/// The dimensions of a tuple.
fn shape_of(tuple: &str) -> Option<Vec<u32>> {
    let (sides, _) = tuple.strip_prefix('(')?.split_once(')')?;
    sides.split(',').map(str::trim).filter(|side| !side.is_empty()).map(|side| side.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file as NumPy writes it.
    fn file(descr: &str, order: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let len = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &len, header.as_bytes(), numbers].concat()
    }

    #[test]
    fn arrays_are_what_numpy_has_written() {
        for (descr, number, shape, sides) in [
            ("<f4", NumberType::Float32, "(2, 3)", vec![2, 3]),
            ("<i8", NumberType::Int64, "(3,)", vec![3]),
            ("|u1", NumberType::Uint8, "()", vec![]),
            ("<f2", NumberType::Float16, "(0, 4)", vec![0, 4]),
        ] {
            let count: u32 = sides.iter().product();
            let numbers = vec![7; (count * number.bytes()) as usize];
            let written = file(descr, "False", shape, &numbers);
            assert_eq!(read(&written), Ok(Array { number, shape: sides, numbers: &numbers }));
            assert!(read(&written[..written.len() - 1]).is_err() || numbers.is_empty());
        }
        for (descr, order, shape) in [
            (">f4", "False", "(1,)"),
            ("<f4", "True", "(1,)"),
            ("<U4", "False", "(1,)"),
            ("<f4", "False", "(-1,)"),
            ("<f4", "False", "(4294967295, 4294967295)"),
        ] {
            let error = read(&file(descr, order, shape, &[0; 4])).unwrap_err();
            assert!(error.contains("header"), "{error}");
        }
        assert_eq!(read(b"PNG"), Err("no file of NumPy".to_owned()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_array_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_file: bool) {
            if is_file {
                bytes.splice(0..0, file("<f4", "False", "(2,)", &[0; 8]));
            }
            if let Ok(array) = read(&bytes) {
                let count: u64 = array.shape.iter().map(|&side| u64::from(side)).product();
                prop_assert_eq!(count * u64::from(array.number.bytes()), array.numbers.len() as u64);
            }
        }
    }
}
