//! A descriptor: 128 bytes that say what was published and where in the payload it lies.

use super::batch_layout::{BatchLayout, COLUMN_ALIGN_BYTES, Layout};
use super::field_columns::{FieldColumns, FieldWidth};
use super::fields::{LINE_BYTES, Line, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::layout::{DESCRIPTORS, ERROR_TEXT_BYTES_MAX, line_crc};
use crate::FormatError;
use crate::limits::PAYLOAD_ALIGN_BYTES;

/// What a descriptor announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A batch at `offset..offset + len`.
    #[default]
    Batch = 1,
    /// The epoch has no further batch.
    EpochEnd = 2,
    /// The epoch ends here with an error; its UTF-8 text is at `offset..offset + len`.
    Error = 3,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Batch, Self::EpochEnd, Self::Error];

    fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == code)
    }
}

/// One published batch, epoch end or error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of the descriptor since the ring's start.
    pub seq: u64,
    /// The `StartEpoch` this belongs to; the client drops what an older one left.
    pub generation: u32,
    /// What is announced.
    pub kind: Kind,
    /// What the data is; of batches only.
    pub layout: Layout,
    /// Epoch, from 0.
    pub epoch: u32,
    /// Batch within the epoch, from 0; for an epoch end the number of batches.
    pub batch: u32,
    /// Byte in the payload where the block starts, a multiple of [`PAYLOAD_ALIGN_BYTES`].
    pub offset: u64,
    /// Bytes of the block.
    pub len: u64,
    /// Rows delivered, at most `capacity`.
    pub records: u32,
    /// Rows planned; the columns are laid out for it.
    pub capacity: u32,
    /// Views of each image; 0 for raw batches and images of their own sizes.
    pub views: u32,
    /// Rows whose record was resident.
    pub hits: u32,
    /// Rows whose record was read for this batch.
    pub misses: u32,
    /// Rows planned but left out, their records being unreadable.
    pub skipped: u32,
    /// Rows where another sample stands in.
    pub substituted: u32,
    /// How long the batch waited for reads, ns.
    pub read_wait_ns: u64,
    /// Time spent by workers copying or decoding, ns, summed over workers.
    pub fill_ns: u64,
    /// How long the batch waited for room in the ring, ns.
    pub slot_wait_ns: u64,
    /// Byte of the block at which the extra fields of the rows begin; 0 where the job has none.
    pub fields: u64,
    /// Number of the mark that releases it. `Producer::publish` chooses it, whatever stands here.
    pub mark: u32,
}

const SEQ: usize = 0;
const OFFSET: usize = 8;
const LEN: usize = 16;
const READ_WAIT_NS: usize = 24;
const FILL_NS: usize = 32;
const SLOT_WAIT_NS: usize = 40;
const GENERATION: usize = 48;
const KIND: usize = 52;
const LAYOUT: usize = 54;
const EPOCH: usize = 56;
const BATCH: usize = 60;
const RECORDS: usize = 64;
const CAPACITY: usize = 68;
const VIEWS: usize = 72;
const HITS: usize = 76;
const MISSES: usize = 80;
const SKIPPED: usize = 84;
const SUBSTITUTED: usize = 88;
const MARK: usize = 92;
const FIELDS: usize = 96;
const CRC: usize = LINE_BYTES - 4;

/// Every field's place, for the layout hash.
pub(super) const PLACES: [u64; 20] = [
    SEQ as u64,
    OFFSET as u64,
    LEN as u64,
    READ_WAIT_NS as u64,
    FILL_NS as u64,
    SLOT_WAIT_NS as u64,
    GENERATION as u64,
    KIND as u64,
    LAYOUT as u64,
    EPOCH as u64,
    BATCH as u64,
    RECORDS as u64,
    CAPACITY as u64,
    VIEWS as u64,
    HITS as u64,
    MISSES as u64,
    SKIPPED as u64,
    SUBSTITUTED as u64,
    MARK as u64,
    FIELDS as u64,
];

impl Descriptor {
    /// Refuses a descriptor that promises what a payload of `payload_bytes` cannot hold.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn check(&self, payload_bytes: u64) -> Result<(), FormatError> {
        match self.offset.checked_add(self.len) {
            Some(end) if end <= payload_bytes && self.offset.is_multiple_of(PAYLOAD_ALIGN_BYTES) => {}
            _ => {
                return Err(fault(
                    OFFSET,
                    format_args!("{} bytes at {}", self.len, self.offset),
                    format_args!("a page-aligned block within {payload_bytes} bytes"),
                ));
            }
        }
        if self.mark as usize >= DESCRIPTORS {
            return Err(fault(MARK, self.mark, format_args!("a mark below {DESCRIPTORS}")));
        }
        match self.kind {
            Kind::Batch => self.check_batch(),
            Kind::EpochEnd if self.len == 0 => Ok(()),
            Kind::EpochEnd => Err(fault(LEN, self.len, "0 at an epoch's end")),
            Kind::Error if self.len <= ERROR_TEXT_BYTES_MAX => Ok(()),
            Kind::Error => {
                Err(fault(LEN, self.len, format_args!("a text of up to {ERROR_TEXT_BYTES_MAX} bytes")))
            }
        }
    }

    fn check_batch(&self) -> Result<(), FormatError> {
        let columns = BatchLayout::columns_bytes(self.layout, self.capacity, self.view_count())?;
        if self.len < columns {
            let expected = format_args!("at least {columns} bytes, the columns of {} rows", self.capacity);
            return Err(fault(LEN, self.len, expected));
        }
        let is_place = || (columns..=self.len).contains(&self.fields);
        if self.fields != 0 && !(is_place() && self.fields.is_multiple_of(COLUMN_ALIGN_BYTES)) {
            let expected =
                format_args!("0, or a multiple of {COLUMN_ALIGN_BYTES} from {columns} to {}", self.len);
            return Err(fault(FIELDS, self.fields, expected));
        }
        if self.records > self.capacity {
            return Err(fault(
                RECORDS,
                self.records,
                format_args!("at most the capacity, {}", self.capacity),
            ));
        }
        Ok(())
    }

    /// Place and length of the table of views in a batch's block, for
    /// [`Descriptor::batch_layout`]; `None` where there is none. It lies within the block once
    /// [`Descriptor::check`] passed.
    #[must_use]
    pub fn view_table(&self) -> Option<(u64, usize)> {
        BatchLayout::table_place(self.layout, self.capacity, self.view_count())
    }

    /// Where the batch's columns and data lie within its block. `table` is what the block has at
    /// [`Descriptor::view_table`], else empty.
    ///
    /// # Errors
    /// When `capacity` or `len` is impossible, or does not fit the table. Without a table never
    /// after [`Descriptor::check`] passed for a batch.
    pub fn batch_layout(&self, table: &[u8]) -> Result<BatchLayout, FormatError> {
        let total = if self.fields == 0 { self.len } else { self.fields };
        BatchLayout::of_block(self.layout, self.capacity, total, table)
    }

    /// Where the extra fields of a batch's rows lie, from `fields` on: those of the job have these
    /// widths. `None` without fields.
    ///
    /// # Errors
    /// The job has fields and the batch has none, or the other way round, and as for
    /// [`FieldColumns::of_part`].
    pub fn field_columns(&self, widths: &[FieldWidth]) -> Result<Option<FieldColumns>, FormatError> {
        match (self.fields, widths) {
            (0, []) => Ok(None),
            (0, _) | (_, []) => {
                Err(fault(FIELDS, self.fields, format_args!("the place of {} fields", widths.len())))
            }
            (at, _) => FieldColumns::of_part(widths, self.capacity, self.len.saturating_sub(at)).map(Some),
        }
    }

    fn view_count(&self) -> usize {
        usize::try_from(self.views).unwrap_or(usize::MAX)
    }

    /// The 128 bytes of the descriptor.
    #[must_use]
    pub fn encode(&self) -> Line {
        let mut line: Line = [0; LINE_BYTES];
        put_u64::<SEQ>(&mut line, self.seq);
        put_u64::<OFFSET>(&mut line, self.offset);
        put_u64::<LEN>(&mut line, self.len);
        put_u64::<READ_WAIT_NS>(&mut line, self.read_wait_ns);
        put_u64::<FILL_NS>(&mut line, self.fill_ns);
        put_u64::<SLOT_WAIT_NS>(&mut line, self.slot_wait_ns);
        put_u32::<GENERATION>(&mut line, self.generation);
        put_u16::<KIND>(&mut line, self.kind as u16);
        put_u16::<LAYOUT>(&mut line, self.layout as u16);
        put_u32::<EPOCH>(&mut line, self.epoch);
        put_u32::<BATCH>(&mut line, self.batch);
        put_u32::<RECORDS>(&mut line, self.records);
        put_u32::<CAPACITY>(&mut line, self.capacity);
        put_u32::<VIEWS>(&mut line, self.views);
        put_u32::<HITS>(&mut line, self.hits);
        put_u32::<MISSES>(&mut line, self.misses);
        put_u32::<SKIPPED>(&mut line, self.skipped);
        put_u32::<SUBSTITUTED>(&mut line, self.substituted);
        put_u32::<MARK>(&mut line, self.mark);
        put_u64::<FIELDS>(&mut line, self.fields);
        let crc = line_crc(&line);
        put_u32::<CRC>(&mut line, crc);
        line
    }

    /// Reads a descriptor; ranges are for [`Descriptor::check`].
    ///
    /// # Errors
    /// When its checksum is wrong, or kind or layout unknown.
    pub fn decode(line: &Line) -> Result<Self, FormatError> {
        let crc = u32_at::<CRC>(line);
        if crc != line_crc(line) {
            return Err(fault(CRC, format_args!("{crc:08x}"), format_args!("{:08x}", line_crc(line))));
        }
        let (kind, layout) = (u16_at::<KIND>(line), u16_at::<LAYOUT>(line));
        Ok(Self {
            seq: u64_at::<SEQ>(line),
            generation: u32_at::<GENERATION>(line),
            kind: Kind::from_code(kind).ok_or_else(|| fault(KIND, kind, "kind 1 to 3"))?,
            layout: Layout::from_code(layout).ok_or_else(|| fault(LAYOUT, layout, "layout 1 to 5"))?,
            epoch: u32_at::<EPOCH>(line),
            batch: u32_at::<BATCH>(line),
            offset: u64_at::<OFFSET>(line),
            len: u64_at::<LEN>(line),
            records: u32_at::<RECORDS>(line),
            capacity: u32_at::<CAPACITY>(line),
            views: u32_at::<VIEWS>(line),
            hits: u32_at::<HITS>(line),
            misses: u32_at::<MISSES>(line),
            skipped: u32_at::<SKIPPED>(line),
            substituted: u32_at::<SUBSTITUTED>(line),
            read_wait_ns: u64_at::<READ_WAIT_NS>(line),
            fill_ns: u64_at::<FILL_NS>(line),
            slot_wait_ns: u64_at::<SLOT_WAIT_NS>(line),
            mark: u32_at::<MARK>(line),
            fields: u64_at::<FIELDS>(line),
        })
    }
}

fn fault(at: usize, got: impl std::fmt::Display, expected: impl std::fmt::Display) -> FormatError {
    FormatError::new("ring descriptor", at as u64, got, expected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Dtype, ViewShape};

    const VIEW: ViewShape = ViewShape { height: 32, width: 48, channels: 3, dtype: Dtype::Uint8 };

    fn sample() -> Descriptor {
        let layout = BatchLayout::of_views(Layout::Nchw, 64, &[VIEW; 2]).unwrap();
        Descriptor {
            seq: 1 << 40,
            generation: 3,
            kind: Kind::Batch,
            layout: Layout::Nchw,
            epoch: 4,
            batch: 5,
            offset: 8192,
            len: layout.total,
            records: 60,
            capacity: 64,
            views: 2,
            hits: 40,
            misses: 20,
            skipped: 4,
            substituted: 1,
            read_wait_ns: 6,
            fill_ns: 7,
            slot_wait_ns: 8,
            fields: 0,
            mark: 9,
        }
    }

    #[test]
    fn round_trips_and_places_do_not_overlap() {
        let descriptor = sample();
        descriptor.check(1 << 20).unwrap();
        assert_eq!(Descriptor::decode(&descriptor.encode()).unwrap(), descriptor);
        // 7 u64, 2 u16 and 11 u32 fields fill bytes 0 to 104 without a gap.
        assert_eq!(FIELDS + 8, 7 * 8 + 2 * 2 + 11 * 4);
    }

    #[test]
    fn fields_lie_behind_all_else() {
        let widths = [FieldWidth::Fixed(8), FieldWidth::Varying];
        let none = sample();
        assert_eq!(none.field_columns(&[]), Ok(None));
        assert!(none.field_columns(&widths).is_err(), "the job wants fields");
        let fields = FieldColumns::new(&widths, 64, 1000).unwrap();
        let with = Descriptor { fields: none.len, len: none.len + fields.total, ..none };
        with.check(1 << 20).unwrap();
        assert_eq!(Descriptor::decode(&with.encode()).unwrap(), with);
        assert_eq!(with.field_columns(&widths), Ok(Some(fields)));
        assert!(with.field_columns(&[]).is_err(), "the job wants none");
        let layout = BatchLayout::of_views(Layout::Nchw, 64, &[VIEW; 2]).unwrap();
        assert_eq!(with.batch_layout(&layout.table().unwrap().1), Ok(layout));
        for fields in [1, 64, none.len - 1, none.len + 1, with.len + 64, u64::MAX] {
            assert!(Descriptor { fields, ..with }.check(1 << 20).is_err(), "{fields}");
        }
        let short = Descriptor { len: with.fields + 10, ..with };
        assert!(short.field_columns(&widths).is_err());
    }

    #[test]
    fn every_layout_round_trips_and_others_are_refused() {
        for layout in Layout::ALL {
            let descriptor = Descriptor { layout, ..sample() };
            assert_eq!(Descriptor::decode(&descriptor.encode()).unwrap(), descriptor);
        }
        assert_eq!([0, 6].map(Layout::from_code), [None, None]);
        assert_eq!([0, 4].map(Kind::from_code), [None, None]);
    }

    #[test]
    fn images_of_their_own_sizes_need_room_for_their_columns_only() {
        let block = BatchLayout::new(Layout::RaggedChw, 64, 0).unwrap();
        let ragged = Descriptor { layout: Layout::RaggedChw, views: 0, len: block.total, ..sample() };
        ragged.check(1 << 20).unwrap();
        assert!(Descriptor { len: block.total - 1, ..ragged }.check(1 << 20).is_err());
        assert!(Descriptor { records: 65, ..ragged }.check(1 << 20).is_err());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let line = sample().encode();
        for bit in 0..line.len() * 8 {
            let mut torn = line;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(Descriptor::decode(&torn).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn promises_that_the_payload_cannot_keep_are_refused() {
        let good = sample();
        let bad = [
            Descriptor { offset: 100, ..good },
            Descriptor { offset: 1 << 20, ..good },
            Descriptor { offset: u64::MAX - 4095, ..good },
            Descriptor { len: u64::MAX, ..good },
            Descriptor { len: 10, ..good },
            Descriptor { records: 65, ..good },
            Descriptor { capacity: 0, ..good },
            Descriptor { capacity: u32::MAX, ..good },
            Descriptor { views: 0, ..good },
            Descriptor { views: 17, ..good },
            Descriptor { views: u32::MAX, ..good },
            Descriptor { layout: Layout::Raw, ..good },
            Descriptor { mark: 64, ..good },
            Descriptor { kind: Kind::EpochEnd, ..good },
            Descriptor { kind: Kind::Error, ..good },
        ];
        for descriptor in bad {
            assert!(descriptor.check(1 << 20).is_err(), "{descriptor:?}");
        }
    }

    #[test]
    fn a_table_that_does_not_fit_the_block_is_refused() {
        let good = sample();
        let block = BatchLayout::of_views(good.layout, 64, &[VIEW; 2]).unwrap();
        let (at, table) = block.table().unwrap();
        assert_eq!(good.view_table(), Some((at, table.len())));
        assert_eq!(good.batch_layout(&table), Ok(block));
        assert!(Descriptor { len: good.len - 64, ..good }.batch_layout(&table).is_err());
        let (_, other) = BatchLayout::of_views(good.layout, 64, &[VIEW, ViewShape { width: 49, ..VIEW }])
            .unwrap()
            .table()
            .unwrap();
        for table in [&table[..16], &table[..31], &[0; 32], &[0xff; 32], &other, &[]] {
            assert!(good.batch_layout(table).is_err(), "{table:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_lines_with_a_good_checksum_never_panic(bytes: [u8; 32], fill: u8, payload in 0_u64..1 << 41) {
            let mut line = [fill; LINE_BYTES];
            line[..32].copy_from_slice(&bytes);
            line[KIND..KIND + 4].copy_from_slice(&[1 + fill % 3, 0, 1 + fill % 5, 0]);
            let crc = line_crc(&line);
            put_u32::<CRC>(&mut line, crc);
            if let Ok(descriptor) = Descriptor::decode(&line) {
                let _ = (descriptor.check(payload), descriptor.view_table(), descriptor.batch_layout(&bytes));
            }
        }
    }
}
