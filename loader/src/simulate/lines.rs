//! Text files of numbers, a line at a time: blank lines and comments are left out, errors name file and line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::error::SimulateError;

/// More than a line of two numbers and a long comment.
const LINE_BYTES_MAX: u64 = 4096;
/// The path that means standard input.
const STDIN: &str = "-";

/// Gives `take` every line of the file at `path` that says something, without its comment and trimmed. What `take` has
/// against a line becomes an error with the line's number.
///
/// # Errors
/// The file cannot be read, or a line is too long, no UTF-8, or refused.
pub(super) fn each_line(
    path: &Path,
    take: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), SimulateError> {
    if path.as_os_str() == STDIN {
        return each_line_of(std::io::stdin().lock(), Path::new("standard input"), take);
    }
    let file = File::open(path).map_err(|source| SimulateError::Read { path: path.to_owned(), source })?;
    each_line_of(BufReader::with_capacity(1 << 16, file), path, take)
}

fn each_line_of(
    mut reader: impl BufRead,
    path: &Path,
    mut take: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), SimulateError> {
    let mut bytes = Vec::new();
    for line in 1.. {
        let refused = |what| SimulateError::Line { file: path.display().to_string(), line, what };
        bytes.clear();
        reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
            .map_err(|source| SimulateError::Read { path: path.to_owned(), source })?;
        if bytes.is_empty() {
            break;
        }
        if bytes.len() as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            return Err(refused(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| refused("no text (UTF-8)".to_owned()))?;
        let text = text.split('#').next().unwrap_or_default().trim();
        if !text.is_empty() {
            take(text).map_err(refused)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let take = |line: &str| {
            if line == "bad" {
                return Err("it is bad".to_owned());
            }
            found.push(line.to_owned());
            Ok(())
        };
        each_line_of(text, Path::new("f.txt"), take).map_err(|error| error.to_string())?;
        Ok(found)
    }

    #[test]
    fn blank_lines_and_comments_are_left_out() {
        assert_eq!(lines(b"1\n\n # 2\r\n  3 # three\r\n4").unwrap(), ["1", "3", "4"]);
        assert_eq!(lines(b"").unwrap(), [""; 0]);
    }

    #[test]
    fn errors_name_the_line_that_the_file_has() {
        assert_eq!(lines(b"1\n# c\n\nbad\n").unwrap_err(), "f.txt line 4: it is bad");
        assert_eq!(lines(b"1\n\xff\n").unwrap_err(), "f.txt line 2: no text (UTF-8)");
        let long = lines(&[b"1\n".as_slice(), &[b'7'; 5000]].concat()).unwrap_err();
        assert!(long.starts_with("f.txt line 2: longer"), "{long}");
    }
}
