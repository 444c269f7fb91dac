//! Reads NumPy's .npy: one array of floats, a row at a time, and nothing else that the format can hold.
//!
//! ```text
//! magic "\x93NUMPY" | version u8 u8 | header length u16 (version 1) or u32 (2, 3), little-endian | header | data
//! header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 10), }
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::SimulateError;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The header of an array of floats has some 100 bytes.
const HEADER_BYTES_MAX: u32 = 1 << 16;
/// Read at a time. A multiple of both widths.
const PART_BYTES: usize = 1 << 16;
const SINGLE_BYTES: usize = 4;
const DOUBLE_BYTES: usize = 8;

/// An array of shape (rows, columns) in a file.
#[derive(Debug)]
pub(super) struct Npy {
    path: PathBuf,
    file: File,
    data_at: u64,
    is_double: bool,
    rows: u32,
    columns: u32,
}

impl Npy {
    /// Opens an array of shape (rows, columns) or (columns,).
    ///
    /// # Errors
    /// The file cannot be read or is no such array.
    pub(super) fn open(path: &Path) -> Result<Self, SimulateError> {
        let read = |source| SimulateError::Read { path: path.to_owned(), source };
        let refuse = |what| SimulateError::File { path: path.to_owned(), what };
        let mut file = File::open(path).map_err(read)?;
        let (header, data_at) = read_header(&mut file).map_err(read)?.ok_or_else(|| {
            refuse("no .npy file and no Parquet file: it does not begin as NumPy's versions 1 to 3 do, or Parquet".to_owned())
        })?;
        let header = parse_header(&header).map_err(refuse)?;
        let width = if header.is_double { DOUBLE_BYTES } else { SINGLE_BYTES } as u64;
        let expected = u64::from(header.rows)
            .checked_mul(u64::from(header.columns))
            .and_then(|values| values.checked_mul(width)?.checked_add(data_at));
        let got = file.metadata().map_err(read)?.len();
        if expected != Some(got) {
            let expected = expected.map_or("more than any file has".to_owned(), |bytes| bytes.to_string());
            return Err(refuse(format!("it has {got} bytes, but its header asks for {expected}")));
        }
        let Header { is_double, rows, columns } = header;
        Ok(Self { path: path.to_owned(), file, data_at, is_double, rows, columns })
    }

    /// How many rows there are, at least 1.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// How many values a row has.
    pub(super) fn columns(&self) -> u32 {
        self.columns
    }

    /// Replaces `values` by those of `row`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read_row(&self, row: u32, values: &mut Vec<f32>) -> Result<(), SimulateError> {
        let width = if self.is_double { DOUBLE_BYTES } else { SINGLE_BYTES };
        values.clear();
        values.reserve_exact(self.columns as usize);
        let mut part = vec![0; PART_BYTES];
        let mut left = self.columns as usize * width;
        let mut at = self.data_at + u64::from(row) * left as u64;
        while left > 0 {
            let (now, _) = part.split_at_mut(left.min(PART_BYTES));
            self.file
                .read_exact_at(now, at)
                .map_err(|source| SimulateError::Read { path: self.path.clone(), source })?;
            at += now.len() as u64;
            left -= now.len();
            if self.is_double {
                values.extend(now.as_chunks::<DOUBLE_BYTES>().0.iter().map(|value| narrow(*value)));
            } else {
                values
                    .extend(now.as_chunks::<SINGLE_BYTES>().0.iter().map(|value| f32::from_le_bytes(*value)));
            }
        }
        Ok(())
    }
}

/// Losses are f32 from here on; one beyond its range is infinite.
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
fn narrow(value: [u8; DOUBLE_BYTES]) -> f32 {
    f64::from_le_bytes(value) as f32
}

/// The header's text and where the data begin; `None` if the file begins otherwise.
fn read_header(file: &mut File) -> io::Result<Option<(String, u64)>> {
    let mut start = [0; 8];
    if !fill(file, &mut start)? {
        return Ok(None);
    }
    let [magic @ .., major, minor] = start;
    if magic != *MAGIC || !(1..=3).contains(&major) || minor != 0 {
        return Ok(None);
    }
    let (mut short, mut long) = ([0; 2], [0; 4]);
    let (len, begins_at) = if major == 1 {
        (fill(file, &mut short)?.then(|| u32::from(u16::from_le_bytes(short))), 10)
    } else {
        (fill(file, &mut long)?.then(|| u32::from_le_bytes(long)), 12)
    };
    let Some(len) = len.filter(|len| *len <= HEADER_BYTES_MAX) else { return Ok(None) };
    let mut header = vec![0; len as usize];
    let whole = fill(file, &mut header)?;
    let text = String::from_utf8(header).ok().filter(|_| whole);
    Ok(text.map(|text| (text, begins_at + u64::from(len))))
}

/// Whether the file went on for as long as `bytes`.
fn fill(file: &mut File, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}

#[derive(Debug, PartialEq)]
struct Header {
    is_double: bool,
    rows: u32,
    columns: u32,
}

/// Understands the header, a Python dictionary of three entries in any order.
fn parse_header(text: &str) -> Result<Header, String> {
    let no_header = || format!("its header is none that NumPy writes: {}", text.trim_end());
    let mut rest =
        text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(no_header)?;
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    while !rest.trim().is_empty() {
        let (name, value) = rest.split_once(':').ok_or_else(no_header)?;
        let value = value.trim_start();
        // Only a tuple has commas inside.
        let end = if value.starts_with('(') { value.find(')').map(|at| at + 1) } else { value.find(',') };
        let (value, after) = value.split_at_checked(end.unwrap_or(value.len())).ok_or_else(no_header)?;
        let entry = match name.trim() {
            "'descr'" => &mut descr,
            "'fortran_order'" => &mut fortran_order,
            "'shape'" => &mut shape,
            _ => return Err(no_header()),
        };
        if entry.replace(value.trim()).is_some() {
            return Err(no_header());
        }
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let (Some(descr), Some(fortran_order), Some(shape)) = (descr, fortran_order, shape) else {
        return Err(no_header());
    };
    let is_double = match descr {
        "'<f4'" => false,
        "'<f8'" => true,
        _ => return Err(format!("its values are {descr}: save float32 ('<f4') or float64 ('<f8')")),
    };
    match fortran_order {
        "False" => {}
        "True" => return Err("it is in Fortran order: save numpy.ascontiguousarray(losses)".to_owned()),
        _ => return Err(no_header()),
    }
    let wrong_shape =
        || format!("its shape is {shape}: save (epochs, samples) or (samples,), none of them 0");
    let inner = shape.strip_prefix('(').and_then(|shape| shape.strip_suffix(')')).ok_or_else(no_header)?;
    let inner = inner.trim_end();
    let sides: Option<Vec<u32>> = inner
        .strip_suffix(',')
        .unwrap_or(inner)
        .split(',')
        .map(|side| side.trim().parse().ok().filter(|&side| side > 0))
        .collect();
    match sides.as_deref() {
        Some(&[columns]) => Ok(Header { is_double, rows: 1, columns }),
        Some(&[rows, columns]) => Ok(Header { is_double, rows, columns }),
        _ => Err(wrong_shape()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes()),
            _ => bytes.extend(u32::try_from(header.len()).unwrap().to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        file.write_all(&bytes).unwrap();
        file
    }

    fn row(npy: &Npy, row: u32) -> Vec<f32> {
        let mut values = vec![9.0];
        npy.read_row(row, &mut values).unwrap();
        values
    }

    #[test]
    fn rows_of_both_widths_are_read() {
        let data: Vec<u8> = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n";
        let single = file(1, header, &data);
        let npy = Npy::open(single.path()).unwrap();
        assert_eq!((npy.rows(), npy.columns()), (2, 3));
        assert_eq!((row(&npy, 0), row(&npy, 1)), (vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]));

        // More than is read at a time.
        let values: Vec<f64> = (0..20_000).map(f64::from).collect();
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let double = file(2, "{'shape':(20000,),'fortran_order':False,'descr':'<f8'}\n", &data);
        let npy = Npy::open(double.path()).unwrap();
        assert_eq!((npy.rows(), npy.columns()), (1, 20_000));
        assert!(row(&npy, 0).iter().zip(&values).all(|(got, value)| f64::from(*got) == *value));
    }

    #[test]
    fn headers() {
        let header = |rows, columns| Ok(Header { is_double: true, rows, columns });
        assert_eq!(parse_header("{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }\n"), header(1, 5));
        assert_eq!(parse_header("{'shape': (2, 5), 'descr': '<f8', 'fortran_order': False}"), header(2, 5));
        for (text, hint) in [
            ("", "NumPy writes"),
            ("{'descr': '<f8', 'fortran_order': False}", "NumPy writes"),
            ("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", "NumPy writes"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), 'more': 1}", "NumPy writes"),
            ("{'descr': '>f8', 'fortran_order': False, 'shape': (2,)}", "float32"),
            ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,)}", "NumPy writes"),
            ("{'descr': '<f8', 'fortran_order': True, 'shape': (2,)}", "ascontiguousarray"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", "(epochs, samples)"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3)}", "(epochs, samples)"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 3)}", "(epochs, samples)"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,)}", "(epochs, samples)"),
        ] {
            let error = parse_header(text).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_of_another_length_or_kind_is_refused() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        for data in [&[0u8; 7][..], &[0; 9]] {
            let error = Npy::open(file(1, header, data).path()).unwrap_err().to_string();
            assert!(error.contains("its header asks for"), "{error}");
        }
        for bytes in [
            &b""[..],
            b"\x93NUMPY",
            b"\x93NUMPY\x01\x00\xff\xff{",
            b"\x93NUMPY\x04\x00\x02\x00{}",
            b"PK\x03\x04.....",
        ] {
            let mut other = tempfile::NamedTempFile::new().unwrap();
            other.write_all(bytes).unwrap();
            let error = Npy::open(other.path()).unwrap_err().to_string();
            assert!(error.contains("no .npy file"), "{error}");
        }
    }
}
