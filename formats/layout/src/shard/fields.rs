//! Extra fields of a sample: members that follow its record in the shard, under the same key.

use super::member::{padded_len, parse_member_header};
use crate::error::FormatError;
use crate::limits::{FIELD_NAME_BYTES_MAX, FIELDS_BYTES_MAX, SHARD_ALIGN_BYTES};

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
    use crate::shard::{member_header, member_name};

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
