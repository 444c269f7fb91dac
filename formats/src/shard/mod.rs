//! Shards: plain ustar tars whose members are records. `SHARD.md` is the byte diagram.

mod member;

pub use member::{END_OF_ARCHIVE, Member, member_header, member_name, padded_len, parse_member_header};
