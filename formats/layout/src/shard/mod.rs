//! Shards: plain ustar tars whose members are records. `SHARD.md` has the byte diagram.

mod fields;
mod member;

pub use fields::{Field, LABEL_MEMBER, field_name_is_valid, parse_fields};
pub use member::{
    END_OF_ARCHIVE, MEMBER_HEADER_BYTES, Member, is_record_name, member_header, member_name, padded_len,
    parse_member_header, record_extension,
};
