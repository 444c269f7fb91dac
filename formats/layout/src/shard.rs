//! Shards: plain ustar tars whose members are records. `SHARD.md` has the byte diagram.
//!
//! A member has a name, a 512-byte header, and padding behind its bytes. The `tar` crate knows the
//! header's offsets, octal numbers and checksum. This file decides which of tar's forms a shard may
//! have: ustar, regular files, short names, no extensions. A sample's extra fields are members that
//! follow its record, under the same key.

use tar::{EntryType, Header};

use crate::error::FormatError;
use crate::index::{Entry, Media};
use crate::limits::{FIELD_NAME_BYTES_MAX, FIELDS_BYTES_MAX, RECORD_BYTES_MAX, SHARD_ALIGN_BYTES};

const HEADER: &str = "tar header";

/// Bytes of a member's header: one of tar's blocks.
pub const MEMBER_HEADER_BYTES: usize = 512;

/// The end of a tar: two blocks of zeros.
pub const END_OF_ARCHIVE: [u8; 1024] = [0; 1024];

/// The content of a member's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's name, such as `000000000042.jpg`.
    pub name: String,
    /// Bytes of the record as stored, without padding.
    pub stored_len: u64,
}

/// The name of a sample's member: its key in twelve digits, a dot, `extension` (`jpg`, or `bmp.zst`
/// when compressed; a field's name). The key is what [`Index::key`](crate::index::Index::key) says:
/// the sample's id, unless the sample came from elsewhere.
///
/// WebDataset also takes the text before the first dot as the sample's key, and consecutive members
/// of one key as one sample.
#[must_use]
pub fn member_name(key: u32, extension: &str) -> String {
    format!("{key:012}.{extension}")
}

/// The extension of a record's member: its source file's in lower case or, once it was transformed,
/// that of the new format. `.zst` follows if it is compressed.
#[must_use]
pub fn record_extension(path: &str, entry: &Entry, transformed: bool) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    let extension = match (transformed, entry.media, file.rsplit_once('.')) {
        (true, Media::Jpeg, _) => "jpg".to_owned(),
        (true, Media::Ppm, _) => "ppm".to_owned(),
        (_, _, Some((_, extension))) => extension.to_ascii_lowercase(),
        _ => "bin".to_owned(),
    };
    if entry.codec.is_compressed() { format!("{extension}.zst") } else { extension }
}

/// Whether a member may have this name: the record's key, and the extension of its source or of its
/// new format.
#[must_use]
pub fn is_record_name(name: &str, key: u32, path: &[u8], entry: &Entry) -> bool {
    let path = String::from_utf8_lossy(path);
    let named = |transformed| name == member_name(key, &record_extension(&path, entry, transformed));
    named(false) || named(true)
}

/// The header of a regular file: mode 0644, owner and time 0, so that equal records give equal
/// bytes.
///
/// # Errors
/// `name` does not fit ustar's name field (100 bytes, relative), or `stored_len` is above
/// [`RECORD_BYTES_MAX`].
pub fn member_header(name: &str, stored_len: u64) -> Result<[u8; 512], FormatError> {
    if stored_len > RECORD_BYTES_MAX {
        let expected = format_args!("at most {RECORD_BYTES_MAX} bytes");
        return Err(FormatError::new(HEADER, 0, stored_len, expected));
    }
    if name.is_empty() || name.len() > 100 {
        return Err(FormatError::new(HEADER, 0, name, "a member name of 1 to 100 bytes"));
    }
    let mut header = Header::new_ustar();
    header
        .set_path(name)
        .map_err(|fault| FormatError::new(HEADER, 0, format_args!("{name}: {fault}"), "a relative name"))?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(stored_len);
    header.set_cksum();
    Ok(*header.as_bytes())
}

/// Reads the header that starts `bytes`; `offset` is its place in the shard, for the error.
///
/// # Errors
/// Fewer than 512 bytes, not ustar, not a regular file, a wrong header checksum, a size that is not
/// octal or is above [`RECORD_BYTES_MAX`], or a name that is not UTF-8.
pub fn parse_member_header(bytes: &[u8], offset: u64) -> Result<Member, FormatError> {
    let wrong = |got: &dyn std::fmt::Display, expected: &str| FormatError::new(HEADER, offset, got, expected);
    let block: &[u8; 512] =
        bytes.first_chunk().ok_or_else(|| wrong(&format_args!("{} bytes", bytes.len()), "512 bytes"))?;
    if block.iter().all(|&byte| byte == 0) {
        return Err(wrong(&"the end of the archive", "a member"));
    }
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(block);
    let Some(ustar) = header.as_ustar() else { return Err(wrong(&"no ustar magic", "a ustar header")) };
    if ustar.typeflag != *b"0" {
        return Err(wrong(
            &format_args!("type {:#04x}", u32::from(ustar.typeflag[0])),
            "a regular file (type '0')",
        ));
    }
    // Base-256 numbers are GNU's extension; ustar has octal digits only.
    if !ustar.size.iter().all(|byte| matches!(byte, b'0'..=b'7' | b' ' | 0)) {
        return Err(wrong(&"a size that is not octal", "octal digits"));
    }
    let mut summed = header.clone();
    summed.set_cksum();
    let got = header.cksum().map_err(|fault| wrong(&fault, "a header checksum"))?;
    let expected = summed.cksum().map_err(|fault| wrong(&fault, "a header checksum"))?;
    if got != expected {
        return Err(wrong(&format_args!("checksum {got}"), &format!("checksum {expected}")));
    }
    let stored_len = header.entry_size().map_err(|fault| wrong(&fault, "a size"))?;
    if stored_len > RECORD_BYTES_MAX {
        return Err(wrong(&format_args!("{stored_len} bytes"), &format!("at most {RECORD_BYTES_MAX} bytes")));
    }
    let name =
        String::from_utf8(header.path_bytes().into_owned()).map_err(|fault| wrong(&fault, "a UTF-8 name"))?;
    if name.is_empty() {
        return Err(wrong(&"an empty name", "a member name"));
    }
    Ok(Member { name, stored_len })
}

/// `stored_len` rounded up to tar's 512-byte blocks: the distance to the next header. Saturates
/// near `u64::MAX`.
#[must_use]
pub fn padded_len(stored_len: u64) -> u64 {
    stored_len.checked_next_multiple_of(SHARD_ALIGN_BYTES).unwrap_or(u64::MAX)
}

const FIELD: &str = "field member";

/// WebDataset's name for a sample's label. It is in a shard for readers without the index, and is
/// no field.
pub const LABEL_MEMBER: &str = "cls";

/// One extra field of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The member's name after key and dot: `json`, `caption.txt`.
    pub name: &'a str,
    /// Its bytes, as they were packed.
    pub bytes: &'a [u8],
}

/// Whether a field may have this name: 1 to 64 of `A-Z a-z 0-9 _ . -`, no dot at either end, not
/// `cls`.
///
/// The name of its record's extension (`jpg`) passes here, but a tar may not have two members of
/// one name: a writer of shards must refuse it.
#[must_use]
pub fn field_name_is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=FIELD_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('.')
        && !name.ends_with('.')
        && name != LABEL_MEMBER
}

/// The fields in `span`, the bytes that [`Index::fields`](crate::index::Index::fields) names, in
/// their order on disk. They must all belong to the sample with this `key`; `offset` is the span's
/// place in the shard, for the error.
///
/// # Errors
/// The bytes are not whole members one after the other; a member has another key, an invalid name
/// or one that occurs twice; or there are more bytes than [`FIELDS_BYTES_MAX`].
pub fn parse_fields(span: &[u8], key: u32, offset: u64) -> Result<Vec<Field<'_>>, FormatError> {
    if span.len() as u64 > FIELDS_BYTES_MAX {
        let got = format_args!("{} bytes", span.len());
        return Err(FormatError::new(FIELD, offset, got, format_args!("at most {FIELDS_BYTES_MAX} bytes")));
    }
    let mut fields = Vec::new();
    let mut rest = span;
    while !rest.is_empty() {
        let at = offset.saturating_add((span.len() - rest.len()) as u64);
        let wrong = |got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(FIELD, at, got, expected)
        };
        let member = parse_member_header(rest, at)?;
        let short = || {
            let room = (rest.len() as u64).saturating_sub(SHARD_ALIGN_BYTES);
            wrong(
                &format_args!("{} of {} bytes", member.name, member.stored_len),
                &format_args!("at most {room}"),
            )
        };
        let len = usize::try_from(member.stored_len).map_err(|_| short())?;
        let padded = usize::try_from(padded_len(member.stored_len)).map_err(|_| short())?;
        let (header, behind) = rest.split_first_chunk::<512>().ok_or_else(short)?;
        let (data, behind) = behind.split_at_checked(padded).ok_or_else(short)?;
        let name = field_name(header, &member.name, key)
            .ok_or_else(|| wrong(&format_args!("{:?}", member.name), &format_args!("{key:012}.<field>")))?;
        if name != LABEL_MEMBER {
            fields.push(Field { name, bytes: data.get(..len).ok_or_else(short)? });
        }
        rest = behind;
    }
    let mut names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.array_windows().find(|[name, next]| name == next) {
        return Err(FormatError::new(FIELD, offset, format_args!("two fields {name:?}"), "one of each name"));
    }
    Ok(fields)
}

/// The field's name in `header`. `whole` is the member's name as tar reads it. A prefix (ustar's
/// first half of a long name) would make it longer than the name in the header; no member of a
/// shard has one.
fn field_name<'a>(header: &'a [u8; 512], whole: &str, key: u32) -> Option<&'a str> {
    let name = header.first_chunk::<100>()?.split(|&byte| byte == 0).next()?;
    let name = std::str::from_utf8(name).ok().filter(|&name| name == whole)?;
    let (digits, name) = name.split_once('.')?;
    let known = field_name_is_valid(name) || name == LABEL_MEMBER;
    (digits == format!("{key:012}") && known).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ShardId;
    use crate::index::Codec;

    #[test]
    fn names_are_twelve_digits_and_sort_as_numbers() {
        assert_eq!(member_name(42, "jpg"), "000000000042.jpg");
        assert_eq!(member_name(u32::MAX - 1, "bmp.zst"), "004294967294.bmp.zst");
    }

    #[test]
    fn padding_reaches_the_next_block() {
        let cases = [(0, 0), (1, 512), (511, 512), (512, 512), (513, 1024), (u64::MAX, u64::MAX)];
        for (len, padded) in cases {
            assert_eq!(padded_len(len), padded, "{len}");
        }
    }

    #[test]
    fn headers_round_trip() {
        for len in [0, 1, 512, 110_000, RECORD_BYTES_MAX] {
            let header = member_header("000000000007.png", len).unwrap();
            let member = parse_member_header(&header, 512).unwrap();
            assert_eq!(member, Member { name: "000000000007.png".into(), stored_len: len });
        }
        assert!(member_header("a.png", RECORD_BYTES_MAX + 1).is_err());
        assert!(member_header("../a.png", 1).is_err());
        assert!(member_header(&"a".repeat(101), 1).is_err());
        assert!(member_header("", 1).is_err());
    }

    #[test]
    fn other_tar_forms_are_refused_and_placed() {
        let mut gnu = Header::new_gnu();
        gnu.set_path("a.jpg").unwrap();
        gnu.set_size(1);
        gnu.set_cksum();
        assert_eq!(parse_member_header(gnu.as_bytes(), 1024).unwrap_err().offset, 1024);
        let mut folder = Header::new_ustar();
        folder.set_path("a").unwrap();
        folder.set_size(0);
        folder.set_entry_type(EntryType::Directory);
        folder.set_cksum();
        assert!(parse_member_header(folder.as_bytes(), 0).unwrap_err().to_string().contains("regular file"));
        assert!(parse_member_header(&END_OF_ARCHIVE, 0).unwrap_err().got.contains("end of the archive"));
        assert!(parse_member_header(&[0; 511], 0).is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_an_error() {
        let header = member_header("000000000007.png", 12_345).unwrap();
        for byte in 0..512 {
            for bit in 0..8 {
                let mut bent = header;
                bent[byte] ^= 1 << bit;
                // The checksum field itself may be spelled with other padding bytes for the same
                // number.
                if let Ok(member) = parse_member_header(&bent, 0) {
                    assert!((148..156).contains(&byte), "byte {byte} bit {bit} went unnoticed");
                    assert_eq!(member.stored_len, 12_345);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_blocks_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_member_header(&bytes, 0);
        }

        #[test]
        fn arbitrary_fields_in_a_valid_header_never_panic(at in 0usize..512, value in any::<u8>()) {
            let mut header = member_header("000000000007.png", 12_345).unwrap();
            header[at] = value;
            let mut summed = Header::new_old();
            summed.as_mut_bytes().copy_from_slice(&header);
            summed.set_cksum();
            let _ = parse_member_header(summed.as_bytes(), 0);
        }
    }

    #[test]
    fn records_are_named_after_their_source_or_what_became_of_it() {
        let entry = Entry {
            shard: ShardId(0),
            offset: 512,
            stored_len: 1,
            raw_len: 1,
            crc32c: Some(0),
            label: 0,
            width: 0,
            height: 0,
            codec: Codec::None,
            media: Media::Jpeg,
        };
        let cases = [("a/x.JPG", "jpg"), ("a/.png", "png"), ("a.b/c", "bin"), ("a/x.tar.tiff", "tiff")];
        for (path, extension) in cases {
            assert_eq!(record_extension(path, &entry, false), extension);
            assert_eq!(record_extension(path, &entry, true), "jpg");
        }
        let zstd = Entry { codec: Codec::Zstd, media: Media::Ppm, ..entry };
        assert!(is_record_name("000000000007.bmp.zst", 7, b"a/x.bmp", &zstd));
        assert!(is_record_name("000000000007.ppm.zst", 7, b"a/x.bmp", &zstd));
        assert!(!is_record_name("000000000008.bmp.zst", 7, b"a/x.bmp", &zstd));
        assert!(!is_record_name("000000000007.bmp", 7, b"a/x.bmp", &zstd));
    }

    fn span(key: u32, members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut span = Vec::new();
        for (name, bytes) in members {
            span.extend(member_header(&member_name(key, name), bytes.len() as u64).unwrap());
            span.extend_from_slice(bytes);
            span.resize(span.len().next_multiple_of(512), 0);
        }
        span
    }

    #[test]
    fn fields_come_back_in_order_and_the_label_is_none_of_them() {
        let full = [7; 512];
        let span = span(42, &[("json", b"{}"), ("cls", b"3"), ("a.txt", b""), ("b", &full)]);
        let fields = parse_fields(&span, 42, 1024).unwrap();
        let expected: [(&str, &[u8]); 3] = [("json", b"{}"), ("a.txt", b""), ("b", &full)];
        assert_eq!(fields, expected.map(|(name, bytes)| Field { name, bytes }));
        assert_eq!(parse_fields(&[], 42, 0).unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let good = span(42, &[("json", b"{}"), ("txt", b"abc")]);
        let refused = |span: &[u8], key, say: &str| {
            let text = parse_fields(span, key, 4096).unwrap_err().to_string();
            assert!(text.contains(say), "{text} does not say {say}");
        };
        refused(&good, 41, "at byte 4096: got \"000000000042.json\"");
        refused(&span(42, &[("json", b""), ("json", b"")]), 42, "two fields \"json\"");
        refused(&good[..good.len() - 512], 42, "at byte 5120");
        refused(&good[..good.len() - 1], 42, "000000000042.txt of 3 bytes");
        refused(&[&good[..], &[0; 512]].concat(), 42, "end of the archive");
        refused(&vec![0; 64 << 20 | 512], 42, "at most 67108864");
        let mut prefixed = tar::Header::new_ustar();
        prefixed.set_path(format!("{}/000000000042.txt", "a".repeat(99))).unwrap();
        prefixed.set_entry_type(tar::EntryType::Regular);
        prefixed.set_size(0);
        prefixed.set_cksum();
        refused(prefixed.as_bytes(), 42, "expected 000000000042.<field>");
    }

    #[test]
    fn names_of_fields() {
        let long = "a".repeat(64);
        for name in ["json", "a.b", "A_b-9", "cls2", "x.cls", &long] {
            assert!(field_name_is_valid(name), "{name}");
        }
        for name in ["", "cls", ".a", "a.", ".", "a/b", "a b", "é", &format!("{long}a")] {
            assert!(!field_name_is_valid(name), "{name}");
            if !name.is_empty() && name != "cls" && name.len() < 80 && name.is_ascii() {
                assert!(parse_fields(&span(1, &[(name, b"")]), 1, 0).is_err(), "{name}");
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1600), key: u32) {
            let _ = parse_fields(&bytes, key, u64::MAX);
        }

        #[test]
        fn a_bent_span_never_panics(at in 0usize..2048, value: u8, cut in 0usize..2049) {
            let mut bytes = span(1, &[("json", b"{}"), ("txt", b"abc")]);
            bytes[at] = value;
            let _ = parse_fields(&bytes[..cut.min(bytes.len())], 1, 0);
        }
    }
}
