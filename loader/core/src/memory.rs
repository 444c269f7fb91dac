//! The memory of records as the core sees it. The daemon's is an arena; a simulation has none.

/// Memory for records. Room is taken for a read, then holds the record, and is given back.
pub trait Memory {
    /// Room for a record, with one owner.
    type Room;
    /// A record in memory, shared by the cache and by rows that are being filled.
    type Record: Clone;
    /// A record in a worker's hands.
    type Lent;

    /// Takes room for `bytes`; `None` if there is too little.
    fn take(&mut self, bytes: u64) -> Option<Self::Room>;
    /// Takes room back.
    fn give(&mut self, room: Self::Room);
    /// Takes a record's room back, unless there is another holder.
    fn release(&mut self, record: Self::Record);
    /// Free bytes.
    fn free_bytes(&self) -> u64;
    /// All bytes.
    fn total_bytes(&self) -> u64;

    /// The record that was read into `room`; `checked` if its checksum was compared.
    fn record(room: Self::Room, checked: bool) -> Self::Record;
    /// Number of holders of the record.
    fn holders(record: &Self::Record) -> usize;
    /// Whether its checksum was compared.
    fn is_checked(record: &Self::Record) -> bool;
    /// Whether both are the same record in the same room.
    fn is_same(left: &Self::Record, right: &Self::Record) -> bool;
    /// Hands the record to a worker.
    fn lend(record: Self::Record) -> Self::Lent;
    /// The record in a worker's hands.
    fn lent(lent: &Self::Lent) -> &Self::Record;
    /// Takes the record back from a worker.
    fn take_back(lent: Self::Lent) -> Self::Record;
}
