//! A server's answer as a value (RESP, version 2). Untrusted: lengths are bounded before memory is
//! taken.

use crate::stream::Stream;

/// Longest line: a status or an error.
const LINE_BYTES_MAX: usize = 4096;
/// Most bytes of one answer that is no record: the slots of a cluster with a range for each.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Bytes that a part of an answer counts as, at least. So arrays of nothing have a limit, too.
const PART_BYTES: usize = 16;
/// Arrays within arrays; the slots of a cluster have four levels.
const LEVELS_MAX: u32 = 8;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Status(String),
    /// `-MOVED 3999 127.0.0.1:6381`.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several answers.
    List(Vec<Reply>),
    /// Nothing.
    Nil,
}

/// How an answer begins.
pub(crate) enum Head {
    /// This many bytes follow, and an end of line.
    Bytes(u64),
    /// This many answers follow.
    List(u64),
    /// It is complete.
    Whole(Reply),
}

/// The beginning of the next answer.
pub(crate) fn head(stream: &mut Stream) -> std::io::Result<Head> {
    let line = stream.line(LINE_BYTES_MAX)?;
    let bad = || std::io::Error::new(std::io::ErrorKind::InvalidData, "an answer that is none");
    let (kind, rest) = line.split_first().ok_or_else(bad)?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok()).ok_or_else(bad);
    Ok(match kind {
        b'+' => Head::Whole(Reply::Status(text())),
        b'-' => Head::Whole(Reply::Error(text())),
        b':' => Head::Whole(Reply::Number(number()?)),
        b'$' => u64::try_from(number()?).map_or(Head::Whole(Reply::Nil), Head::Bytes),
        b'*' => u64::try_from(number()?).map_or(Head::Whole(Reply::Nil), Head::List),
        _ => return Err(bad()),
    })
}

/// The next answer, whatever it is.
pub(crate) fn reply(stream: &mut Stream) -> std::io::Result<Reply> {
    part(stream, LEVELS_MAX, &mut { ANSWER_BYTES_MAX })
}

fn part(stream: &mut Stream, levels: u32, left: &mut usize) -> std::io::Result<Reply> {
    let large = || std::io::Error::new(std::io::ErrorKind::InvalidData, "an answer is too large");
    let mut take = |bytes: u64| {
        let bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_add(PART_BYTES));
        *left = bytes.and_then(|bytes| left.checked_sub(bytes)).ok_or_else(large)?;
        Ok::<(), std::io::Error>(())
    };
    match head(stream)? {
        Head::Whole(reply) => take(0).map(|()| reply),
        Head::Bytes(len) => {
            take(len)?;
            let mut bytes = vec![0; usize::try_from(len).map_err(|_| large())?];
            stream.read(&mut bytes)?;
            stream.skip(2)?;
            Ok(Reply::Bytes(bytes))
        }
        Head::List(count) => {
            take(0)?;
            let levels = levels.checked_sub(1).ok_or_else(large)?;
            (0..count).map(|_| part(stream, levels, left)).collect::<Result<_, _>>().map(Reply::List)
        }
    }
}

impl Reply {
    /// As text, if it is text.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Status(text) => Some(text.clone()),
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Self::Number(number) => Some(number.to_string()),
            Self::Error(_) | Self::List(_) | Self::Nil => None,
        }
    }
}

/// A command of these words, as a server reads it, without the bytes of a last word that follow.
pub(crate) fn command(words: &[&[u8]], last_word_bytes: Option<u32>) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len() + usize::from(last_word_bytes.is_some())).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes.extend(last_word_bytes.into_iter().flat_map(|len| format!("${len}\r\n").into_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use shade_job::Address;

    /// No test waits as long.
    const LONG: Duration = Duration::from_secs(60);

    /// What a server says that sends these bytes, piece by piece, and then closes or waits.
    fn said(pieces: &[&[u8]], closes: bool) -> std::io::Result<Reply> {
        said_within(LONG, pieces, closes)
    }

    fn said_within(patience: Duration, pieces: &[&[u8]], closes: bool) -> std::io::Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let (done_in, done) = crossbeam_channel::bounded::<()>(0);
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_nodelay(true).unwrap();
            for piece in pieces {
                // Fails once the other side has seen enough.
                let _ = stream.write_all(&piece);
            }
            if !closes {
                let _ = done.recv();
            }
        });
        let mut stream = Stream::open(&address, None, patience).unwrap();
        let said = reply(&mut stream);
        drop((stream, done_in));
        server.join().unwrap();
        said
    }

    #[test]
    fn answers() {
        let text = |text: &str| Reply::Bytes(text.into());
        for (bytes, expected) in [
            ("+OK\r\n", Reply::Status("OK".into())),
            ("-OOM no room\r\n", Reply::Error("OOM no room".into())),
            (":-7\r\n", Reply::Number(-7)),
            ("$5\r\na\r\nbc\r\n", text("a\r\nbc")),
            ("$0\r\n\r\n", text("")),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            (
                "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
                Reply::List(vec![Reply::Number(1), Reply::List(vec![text("x")])]),
            ),
        ] {
            assert_eq!(said(&[bytes.as_bytes()], false).unwrap(), expected, "{bytes:?}");
            let single: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
            assert_eq!(said(&single, true).unwrap(), expected, "{bytes:?}, byte by byte");
        }
        let large = vec![b'x'; 100_000];
        let bytes = [b"$100000\r\n".as_slice(), &large, b"\r\n"].concat();
        assert_eq!(said(&[&bytes], false).unwrap(), Reply::Bytes(large));
    }

    #[test]
    fn what_is_no_answer_is_an_error_and_takes_no_memory() {
        let long = vec![b'+'; LINE_BYTES_MAX + 2];
        let deep = b"*1\r\n".repeat(20);
        let bad: [&[u8]; 9] = [
            b"\r\n",
            b"?\r\n",
            b":x\r\n",
            b"$99999999999999\r\n",
            b"*99999999999\r\n:1\r\n",
            b"$9999999999999999999\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            &long,
            &deep,
        ];
        for bytes in bad {
            assert!(said(&[bytes], true).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(said(&[b"$5\r\nab"], true).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        let late = said_within(Duration::from_millis(200), &[b"$5\r\nab"], false).unwrap_err().kind();
        assert!([std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut].contains(&late), "{late}");
        // Numbers without end, each of a few bytes.
        let many = [b"*9999999\r\n".to_vec(), b":1\r\n".repeat(ANSWER_BYTES_MAX / PART_BYTES + 1)].concat();
        assert!(said(&[&many], true).unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn commands() {
        assert_eq!(command(&[b"GET", b"a"], None), b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        assert_eq!(command(&[b"SET", b"a"], Some(4)), b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n");
    }
}
