//! A batch whose rows have all ended: its columns, the moves that close gaps, its descriptor.

use shade_formats::ring::{Descriptor, Kind};

use super::batch::{Batch, BatchStage};
use crate::action::Action;
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::{Columns, FinalizeOrder, Move, Ticket};

impl<M: Memory> Batch<M> {
    /// Goes on once no row is pending: to the columns, or straight to completion if nothing is
    /// delivered.
    pub(super) fn settle(&mut self, ticket: Ticket, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if self.pending > 0 || self.stage != BatchStage::Filling {
            return;
        }
        self.check_all_ended();
        self.read_ns = self.read_ns.min(now_ns);
        if self.abandoned || self.failure.is_some() || self.is_void() {
            self.stage = BatchStage::Complete;
            return;
        }
        self.stage = BatchStage::Finalizing;
        actions.push(Action::Finalize(Box::new(self.finalize_order(ticket))));
    }

    /// The columns of the delivered rows, and the moves that close the gaps of skipped ones.
    fn finalize_order(&self, ticket: Ticket) -> FinalizeOrder {
        let data_start = self.offset + self.layout.data;
        let mut columns = Columns::default();
        for row in self.delivered() {
            columns.ids.push(i64::from(row.sample.0));
            columns.labels.push(i64::from(row.entry.label));
            columns.weights.push(row.weight);
            columns.flags.push(row.flags);
            columns.offsets.extend(self.layout.offsets().map(|_| row.offset - data_start));
            columns.lens.extend(self.layout.lens().map(|_| row.len));
            columns.heights.extend(self.layout.heights().map(|_| row.size.height));
            columns.widths.extend(self.layout.widths().map(|_| row.size.width));
        }
        self.geometry_columns(&mut columns);
        let moves = self.moves();
        FinalizeOrder { ticket, block_offset: self.offset, layout: self.layout, columns, moves }
    }

    /// Adds the columns of what each view shows.
    fn geometry_columns(&self, columns: &mut Columns) {
        let views = self.layout.views().len();
        for view in 0..views {
            let places = self.delivered_positions().map(|position| position * views + view);
            for geometry in places.map(|at| &self.geometry[at]) {
                columns.crops.push(geometry.crop);
                columns.flipped.push(geometry.flipped);
            }
        }
        assert_eq!(columns.crops.len(), views * columns.ids.len(), "each view of each row has its crop");
    }

    /// The moves that close the gaps of skipped rows, view by view, then field by field. Where each
    /// row has its own length and offset, none is moved.
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (start, len) in self.by_position() {
            let place = |row: usize| start + row as u64 * len;
            for (to, from) in self.delivered_positions().enumerate().filter(|(to, from)| to != from) {
                moves.push(Move { from: place(from), to: place(to), len });
            }
        }
        moves
    }

    /// What workers write by position: the first row's place in the payload, and a row's bytes.
    fn by_position(&self) -> impl Iterator<Item = (u64, u64)> {
        let views = self.layout.views().iter().enumerate();
        let images = views.filter_map(|(view, shape)| Some((self.layout.images(view)?, shape.bytes())));
        let images = images.map(|(at, len)| (self.offset + at, len));
        let fields = self
            .fields
            .iter()
            .flat_map(|fields| fields.columns.by_position().map(|(at, len)| (fields.at + at, len)));
        images.chain(fields)
    }

    pub(crate) fn descriptor(&self, now_ns: u64) -> Descriptor {
        let is_empty = self.abandoned || self.failure.is_some() || self.is_void();
        let records = if is_empty { 0 } else { self.delivered().count() };
        // Generations count from 1, and no trainer takes a batch of generation 0. A rank whose
        // epoch another rank has ended is still in the generation of its batches.
        let is_for_nobody = self.abandoned || (self.failure.is_none() && self.is_void());
        let generation = if is_for_nobody { 0 } else { self.generation };
        let fields = self.fields.as_ref();
        Descriptor {
            seq: self.seq,
            generation,
            kind: if self.failure.is_some() { Kind::Error } else { Kind::Batch },
            layout: self.layout.layout,
            epoch: self.id.epoch,
            batch: self.id.number,
            offset: self.offset,
            len: fields.map_or(self.layout.total, |fields| fields.at - self.offset + fields.columns.total),
            fields: fields.map_or(0, |fields| fields.at - self.offset),
            records: to_u32(records),
            capacity: self.layout.capacity,
            views: to_u32(self.layout.views().len()),
            hits: self.hits,
            misses: self.misses,
            skipped: self.skipped,
            substituted: self.substituted(),
            read_wait_ns: self.read_ns.min(now_ns).saturating_sub(self.opened_ns),
            fill_ns: self.fill_ns,
            slot_wait_ns: self.slot_wait_ns,
            // Set when it is published.
            mark: 0,
        }
    }
}
