//! Reads a tar that can be read only once, from a pipe, and leaves it on disk in pieces: tars of
//! their own, each with some whole samples.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::rc::Rc;

use shade_formats::shard::{END_OF_ARCHIVE, MEMBER_HEADER_BYTES, padded_len};
use tar::{Archive, Entry};

use super::groups::{READ_BYTES_MAX, TarFault, compression, is_content, kind_holds_data, sparse_name};
use super::names;
use crate::catalogue::STREAM;
use crate::error::Error;
use crate::files::PartialFile;
use crate::interrupt::Stop;
use crate::plan::shard_name;
use crate::progress::CommandProgress;

/// Bytes of one read behind the end mark: of zeros, as tar fills up with.
const TRAILER_PIECE_BYTES: usize = 64 << 10;

/// Bytes of a member that are read together, and of a piece that are written together.
const COPY_BYTES: usize = 256 << 10;

/// How a stream is cut into pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'a> {
    /// Where pieces are written, each a temporary file.
    pub(crate) folder: &'a Path,
    /// A piece ends with the sample before the one that would take it over this, unless that is its
    /// first.
    pub(crate) bytes_max: u64,
    /// Bytes that a sample takes in a shard beyond those that it has in the stream.
    pub(crate) more_bytes: u64,
    /// Counts samples and bytes as they are read.
    pub(crate) progress: &'a CommandProgress,
    pub(crate) stop: &'a Stop,
}

/// Some whole samples of a stream. The file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPiece {
    file: PartialFile,
    base: u64,
}

impl StreamPiece {
    pub(super) fn path(&self) -> &Path {
        self.file.temporary_path()
    }

    /// The place of its first byte in the stream.
    pub(super) fn base(&self) -> u64 {
        self.base
    }
}

/// Reads `stream` to its end and gives each piece of it to `take`.
///
/// # Errors
/// The stream is no tar, is cut short, or goes on behind its end mark; it cannot be read, or a
/// piece cannot be written; [`Error::Interrupted`]; or `take` fails. What `take` got before is then
/// a part of the stream and no more.
pub(crate) fn each_piece(
    stream: impl Read,
    cut: &Cut<'_>,
    take: &mut dyn FnMut(StreamPiece) -> Result<(), Error>,
) -> Result<(), Error> {
    let piece = OpenPiece::create(cut, 0, 0)?;
    let state = Rc::new(RefCell::new(TapState::new(piece)));
    let mut archive = Archive::new(Tap { stream, stop: cut.stop, state: Rc::clone(&state) });
    let mut cutter = Cutter { cut, take, state, group: None, content: vec![0; COPY_BYTES] };
    let members = cutter.members(&mut archive);
    let (fault, at, has_ended) = {
        let mut state = cutter.state.borrow_mut();
        (state.fault.take(), state.at, state.has_ended)
    };
    // What the stream itself met comes before what the tar's reader makes of it.
    fault.map_or(members, Err)?;
    if at == 0 {
        return Err(Error::source(Path::new(STREAM), "is empty: it should be a tar"));
    }
    if has_ended {
        return Err(of_stream(TarFault::NoEnd(at)));
    }
    drain(&mut archive.into_inner().stream, at, cut.stop)?;
    cutter.finish()
}

fn of_stream(fault: TarFault) -> Error {
    Error::source(Path::new(STREAM), fault)
}

/// Reads what follows the end mark, so that the writer of a pipe can end well.
fn drain(stream: &mut impl Read, mut at: u64, stop: &Stop) -> Result<(), Error> {
    let mut rest = vec![0; TRAILER_PIECE_BYTES];
    loop {
        let read = stream.read(&mut rest);
        stop.check()?;
        let count = read.map_err(Error::io("read", Path::new(STREAM)))?;
        if count == 0 {
            return Ok(());
        }
        if let Some(found) = rest.iter().take(count).position(|byte| *byte != 0) {
            return Err(of_stream(TarFault::GoesOn(at.saturating_add(found as u64))));
        }
        at = at.saturating_add(count as u64);
    }
}

/// A piece that is being written.
#[derive(Debug)]
struct OpenPiece {
    file: PartialFile,
    writer: BufWriter<File>,
    number: u32,
    base: u64,
    /// What its samples take in a shard beyond what they have here.
    more_bytes: u64,
}

impl OpenPiece {
    fn create(cut: &Cut<'_>, number: u32, base: u64) -> Result<Self, Error> {
        let (file, writer) = PartialFile::create(cut.folder.join(shard_name(number)))?;
        Ok(Self { file, writer: BufWriter::with_capacity(COPY_BYTES, writer), number, base, more_bytes: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.writer.write_all(bytes).map_err(self.file.fault("write"))
    }
}

/// What a [`Tap`] has seen.
#[derive(Debug)]
struct TapState {
    /// Bytes read.
    at: u64,
    /// The first bytes of the stream.
    start: [u8; 6],
    /// Headers since the last member's content. They are not in a piece yet: they may be the first
    /// of the next one.
    headers: Vec<u8>,
    /// Bytes of the present member's content and padding that are still to come.
    content_left: u64,
    piece: OpenPiece,
    has_ended: bool,
    fault: Option<Error>,
}

impl TapState {
    fn new(piece: OpenPiece) -> Self {
        let (at, start, headers, content_left, has_ended) = (0, [0; 6], Vec::new(), 0, false);
        Self { at, start, headers, content_left, piece, has_ended, fault: None }
    }

    /// Where the headers begin that are in no piece yet.
    fn headers_at(&self) -> u64 {
        self.at.saturating_sub(self.headers.len() as u64)
    }

    fn see(&mut self, bytes: &[u8]) -> io::Result<()> {
        let seen = usize::try_from(self.at).unwrap_or(usize::MAX);
        for (to, from) in self.start.iter_mut().skip(seen).zip(bytes) {
            *to = *from;
        }
        self.at = self.at.saturating_add(bytes.len() as u64);
        let content = usize::try_from(self.content_left).unwrap_or(usize::MAX).min(bytes.len());
        let (content, headers) = bytes.split_at_checked(content).unwrap_or((bytes, &[]));
        self.content_left = self.content_left.saturating_sub(content.len() as u64);
        if let Err(fault) = self.piece.write(content) {
            self.fault.get_or_insert(fault);
            return Err(io::Error::other("cannot be kept"));
        }
        self.headers.extend_from_slice(headers);
        if self.headers.len() as u64 > READ_BYTES_MAX {
            return Err(io::Error::other(format!("a name or header of more than {READ_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

/// A reader that leaves what it reads in the present piece.
struct Tap<'a, R> {
    stream: R,
    stop: &'a Stop,
    state: Rc<RefCell<TapState>>,
}

impl<R: Read> Read for Tap<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into);
        let mut state = self.state.borrow_mut();
        let count = match read {
            Ok(count) => count,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => return Err(fault),
            Err(fault) => {
                let interrupted = self.stop.check().err();
                let fault = interrupted.unwrap_or_else(|| Error::io("read", Path::new(STREAM))(fault));
                state.fault.get_or_insert(fault);
                return Err(io::Error::other("cannot be read"));
            }
        };
        state.has_ended |= count == 0 && !into.is_empty();
        state.see(into.get(..count).unwrap_or_default())?;
        Ok(count)
    }
}

/// The sample that is being read.
struct OpenGroup {
    key: String,
    /// Where its first header begins.
    at: u64,
}

struct Cutter<'a> {
    cut: &'a Cut<'a>,
    take: &'a mut dyn FnMut(StreamPiece) -> Result<(), Error>,
    state: Rc<RefCell<TapState>>,
    group: Option<OpenGroup>,
    /// Memory for what is read; the [`Tap`] keeps it.
    content: Vec<u8>,
}

impl Cutter<'_> {
    fn members<R: Read>(&mut self, archive: &mut Archive<Tap<'_, R>>) -> Result<(), Error> {
        let entries = archive.entries().map_err(|fault| self.unreadable(fault))?;
        for entry in entries {
            self.cut.stop.check()?;
            let entry = entry.map_err(|fault| self.unreadable(fault))?;
            self.member(entry)?;
        }
        Ok(())
    }

    /// Keeps a member, in a new piece if it begins a sample that the present one has no room for.
    fn member<R: Read>(&mut self, mut entry: Entry<'_, R>) -> Result<(), Error> {
        let (kind, at) = (entry.header().entry_type(), entry.raw_header_position());
        let sparse = sparse_name(&mut entry);
        let name = sparse.unwrap_or_else(|| entry.path_bytes().into_owned());
        // Listing will refuse a name that is not UTF-8.
        let name = String::from_utf8(name);
        if is_content(kind)
            && let Some((key, _)) = name.as_deref().ok().and_then(names::split)
        {
            self.turn_to(key)?;
        }
        let holds_data = kind_holds_data(kind);
        {
            let mut state = self.state.borrow_mut();
            let headers = std::mem::take(&mut state.headers);
            state.piece.write(&headers)?;
            // Bytes on disk: those of a sparse file are fewer than it has.
            let bytes = if holds_data { entry.size() } else { entry.header().entry_size().unwrap_or(0) };
            state.content_left = padded_len(bytes);
        }
        if holds_data {
            let expected = entry.size();
            let mut copied = 0u64;
            loop {
                match entry.read(&mut self.content) {
                    Ok(0) => break,
                    Ok(count) => copied = copied.saturating_add(count as u64),
                    Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                    Err(fault) => return Err(self.unreadable(fault)),
                }
            }
            if copied < expected {
                let bytes = self.state.borrow().at;
                let end = entry.raw_file_position().saturating_add(expected);
                let name = name.unwrap_or_default();
                return Err(of_stream(TarFault::CutMember { bytes, name, at, end }));
            }
        }
        Ok(())
    }

    /// Begins the sample of `key`, unless it is the present one.
    fn turn_to(&mut self, key: &str) -> Result<(), Error> {
        if self.group.as_ref().is_some_and(|group| group.key == key) {
            return Ok(());
        }
        self.end_group()?;
        let at = self.state.borrow().headers_at();
        self.group = Some(OpenGroup { key: key.to_owned(), at });
        Ok(())
    }

    /// Ends the present sample. If it took its piece over the limit, the piece ends before it, and
    /// the next one begins with it.
    fn end_group(&mut self) -> Result<(), Error> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let Cut { bytes_max, more_bytes, progress, .. } = *self.cut;
        let end = self.state.borrow().headers_at();
        progress.add(1, end.saturating_sub(group.at));
        let (base, more) = {
            let piece = &mut self.state.borrow_mut().piece;
            piece.more_bytes = piece.more_bytes.saturating_add(more_bytes);
            (piece.base, piece.more_bytes)
        };
        let bytes = end.saturating_sub(base).saturating_add(more);
        let room = bytes_max.saturating_sub(END_OF_ARCHIVE.len() as u64);
        if bytes > room && group.at > base {
            self.next_piece(group.at)?;
            self.state.borrow_mut().piece.more_bytes = more_bytes;
        }
        Ok(())
    }

    /// Ends the present piece at `at` and begins the next one with what it has behind that.
    fn next_piece(&mut self, at: u64) -> Result<(), Error> {
        let number = self.state.borrow().piece.number.saturating_add(1);
        let next = OpenPiece::create(self.cut, number, at)?;
        let done = std::mem::replace(&mut self.state.borrow_mut().piece, next);
        let OpenPiece { file, writer, base, .. } = done;
        let mut written = writer.into_inner().map_err(|fault| file.fault("write")(fault.into_error()))?;
        let length = at.saturating_sub(base);
        written.seek(SeekFrom::Start(length)).map_err(file.fault("read"))?;
        {
            let next = &mut self.state.borrow_mut().piece;
            io::copy(&mut written, &mut next.writer).map_err(next.file.fault("write"))?;
        }
        written.set_len(length).map_err(file.fault("write"))?;
        give(file, written, base, self.take)
    }

    /// Hands on what is left when the stream has ended.
    fn finish(mut self) -> Result<(), Error> {
        {
            // The end mark is in no piece: each gets one of its own.
            let state = &mut *self.state.borrow_mut();
            let mark = state.headers.len().min(MEMBER_HEADER_BYTES);
            state.headers.truncate(state.headers.len().saturating_sub(mark));
            state.at = state.at.saturating_sub(mark as u64);
        }
        self.end_group()?;
        let Self { take, state, .. } = self;
        let state =
            Rc::into_inner(state).ok_or_else(|| Error::Defect("a stream is still read".to_owned()))?;
        let OpenPiece { file, writer, base, .. } = state.into_inner().piece;
        let written = writer.into_inner().map_err(|fault| file.fault("write")(fault.into_error()))?;
        give(file, written, base, take)
    }

    /// Says what is there instead of a header.
    fn unreadable(&self, fault: io::Error) -> Error {
        let state = self.state.borrow();
        match compression(&state.start).filter(|_| state.at <= MEMBER_HEADER_BYTES as u64) {
            Some(with) => Error::source(
                Path::new(STREAM),
                format!(
                    "is compressed with {}: decompress it, as by `{} | shade-pack create - OUT`",
                    with.name, with.cat
                ),
            ),
            None => of_stream(TarFault::Header { at: state.headers_at(), fault }),
        }
    }
}

/// Ends the tar in a piece's file and hands it on.
fn give(
    file: PartialFile,
    mut written: File,
    base: u64,
    take: &mut dyn FnMut(StreamPiece) -> Result<(), Error>,
) -> Result<(), Error> {
    written.seek(SeekFrom::End(0)).map_err(file.fault("write"))?;
    written.write_all(&END_OF_ARCHIVE).map_err(file.fault("write"))?;
    drop(written);
    take(StreamPiece { file, base })
}
