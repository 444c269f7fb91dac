//! Reads and writes messages: little-endian fields in order, every length checked before use.

use crate::FormatError;
use crate::checksum::crc32c;
use crate::limits::MESSAGE_BYTES_MAX;

/// Version of the conversation as a whole. Both sides must speak the same one.
pub const PROTOCOL: u32 = 23;

/// Version of every message's fields; a message that changes gets a higher one.
pub(super) const MESSAGE_VERSION: u16 = 1;

/// Longest text of a reply, so that an error always fits into a message; longer ones are cut.
pub(super) const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Bytes that every opening message begins with, in every protocol: tag, version, protocol.
const OPENING_BYTES: usize = 8;

/// A value that a message can have.
pub(super) trait Field: Sized {
    fn write(&self, writer: &mut Writer);
    /// `name` is what an error calls it.
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError>;
}

/// One of several kinds of value, each with a code and fields of its own.
pub(super) trait Coded: Sized {
    type Code;

    fn code(&self) -> Self::Code;
    fn write_fields(&self, writer: &mut Writer);
    /// None if no kind has this code.
    fn read_fields(code: Self::Code, reader: &mut Reader<'_>) -> Result<Option<Self>, FormatError>;
}

/// The bytes of a message.
pub(super) fn encode(message: &impl Coded<Code = u16>) -> Vec<u8> {
    Writer::message(message.code(), |writer| message.write_fields(writer))
}

/// Reads a message, all of it.
pub(super) fn decode<T: Coded<Code = u16>>(bytes: &[u8]) -> Result<T, FormatError> {
    let (tag, mut reader) = Reader::message(bytes)?;
    let message = T::read_fields(tag, &mut reader)?
        .ok_or_else(|| FormatError::new("control message", 0, format_args!("tag {tag}"), "a known tag"))?;
    reader.finish()?;
    Ok(message)
}

/// The protocol of a message that has one of the tags `opening`, if it is another than
/// [`PROTOCOL`]. Only its first eight bytes are read: another protocol may have anything behind
/// them.
pub(super) fn other_protocol(bytes: &[u8], opening: &[u16]) -> Option<u32> {
    let start: &[u8; OPENING_BYTES] = bytes.first_chunk()?;
    let [tag_0, tag_1, _, _, protocol @ ..] = *start;
    let protocol = u32::from_le_bytes(protocol);
    (opening.contains(&u16::from_le_bytes([tag_0, tag_1])) && protocol != PROTOCOL).then_some(protocol)
}

/// Builds a message.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// The bytes of a message whose fields `write` writes.
    pub(super) fn message(tag: u16, write: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut writer = Self { bytes: Vec::with_capacity(64) };
        writer.put(&tag);
        writer.put(&MESSAGE_VERSION);
        write(&mut writer);
        writer.bytes
    }

    pub(super) fn put(&mut self, value: &impl Field) {
        value.write(self);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.len(text.len());
        self.bytes(text.as_bytes());
    }

    /// Writes a text for people, cut at a character.
    pub(super) fn short_text(&mut self, text: &str, most: usize) {
        let end = text.floor_char_boundary(most);
        self.text(text.get(..end).unwrap_or_default());
    }

    pub(super) fn array_of(&mut self, values: &[impl Field]) {
        self.len(values.len());
        values.iter().for_each(|value| self.put(value));
    }

    /// A trainer writes one for each row of each batch: all at once, not one by one.
    pub(super) fn numbers(&mut self, values: &[f32]) {
        self.len(values.len());
        let written = self.bytes.len();
        self.bytes.resize(written + size_of_val(values), 0);
        let (_, room) = self.bytes.split_at_mut(written);
        for (bytes, value) in room.as_chunks_mut().0.iter_mut().zip(values) {
            *bytes = value.to_le_bytes();
        }
    }

    /// Writes a length. One over `u32` makes a message over the limit, which no receiver accepts.
    fn len(&mut self, len: usize) {
        self.put(&u32::try_from(len).unwrap_or(u32::MAX));
    }
}

/// Reads a message.
pub(super) struct Reader<'a> {
    whole: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads fields that are no message.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { whole: bytes, rest: bytes }
    }

    /// Reads the fields of a `structure` that begins with `magic` and ends with the CRC32C of all
    /// before it.
    pub(super) fn checked(
        structure: &'static str,
        magic: &[u8; 8],
        bytes: &'a [u8],
    ) -> Result<Self, FormatError> {
        let (fields, crc) = bytes
            .split_last_chunk()
            .ok_or_else(|| FormatError::new(structure, 0, bytes.len(), "4 bytes or more"))?;
        if crc32c(fields) != u32::from_le_bytes(*crc) {
            let at = fields.len() as u64;
            return Err(FormatError::new(structure, at, "a wrong checksum", "that of the bytes before"));
        }
        let mut reader = Self::of(fields);
        if reader.array()? != *magic {
            return Err(FormatError::new(structure, 0, "no magic", String::from_utf8_lossy(magic)));
        }
        Ok(reader)
    }

    /// Reads the tag and checks the version.
    pub(super) fn message(bytes: &'a [u8]) -> Result<(u16, Self), FormatError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            let got = format_args!("{} bytes", bytes.len());
            let expected = format_args!("at most {MESSAGE_BYTES_MAX}");
            return Err(FormatError::new("control message", 0, got, expected));
        }
        let mut reader = Self::of(bytes);
        let tag = reader.get("tag")?;
        let version: u16 = reader.get("version")?;
        if version != MESSAGE_VERSION {
            let got = format_args!("version {version} of message {tag}");
            let expected = format_args!("version {MESSAGE_VERSION}");
            return Err(FormatError::new("control message", 2, got, expected));
        }
        Ok((tag, reader))
    }

    /// The next field, which errors call `name`.
    pub(super) fn get<T: Field>(&mut self, name: &'static str) -> Result<T, FormatError> {
        T::read(self, name)
    }

    /// A text of up to `most` bytes.
    pub(super) fn text(&mut self, most: usize) -> Result<String, FormatError> {
        let at = self.offset();
        let len = self.len(most)?;
        let bytes = self.bytes(len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(FormatError::new("control message", at, error, "UTF-8 text")),
        }
    }

    /// An array of up to `most` numbers of four bytes.
    pub(super) fn fours(&mut self, most: usize) -> Result<&'a [[u8; 4]], FormatError> {
        let len = self.len(most)?;
        // `most` is small, so no overflow. Memory is allocated only once the bytes are known to be
        // there.
        let bytes = self.bytes(len.saturating_mul(4))?;
        let (values, _) = bytes.as_chunks::<4>();
        Ok(values)
    }

    /// One of a choice's values.
    pub(super) fn choice<T>(
        &mut self,
        what: &'static str,
        from_code: impl Fn(u8) -> Option<T>,
    ) -> Result<T, FormatError> {
        let at = self.offset();
        let code = self.get(what)?;
        from_code(code).ok_or_else(|| FormatError::new(what, at, code, "a known code"))
    }

    /// Refuses bytes after the last field.
    pub(super) fn finish(self) -> Result<(), FormatError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let got = format_args!("{} more bytes", self.rest.len());
        Err(FormatError::new("control message", self.offset(), got, "the message's end"))
    }

    fn len(&mut self, most: usize) -> Result<usize, FormatError> {
        let at = self.offset();
        let len: u32 = self.get("length")?;
        match usize::try_from(len) {
            Ok(len) if len <= most => Ok(len),
            _ => Err(FormatError::new(
                "control message",
                at,
                format_args!("length {len}"),
                format_args!("at most {most}"),
            )),
        }
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.short(len))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(N))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn short(&self, len: usize) -> FormatError {
        let got = format_args!("{} bytes left", self.rest.len());
        FormatError::new("control message", self.offset(), got, format_args!("{len} bytes"))
    }

    /// Whether nothing is left to read.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn offset(&self) -> u64 {
        (self.whole.len() - self.rest.len()) as u64
    }
}

/// Yes or no on the wire.
pub(super) fn flag(code: u8) -> Option<bool> {
    (code < 2).then_some(code == 1)
}
