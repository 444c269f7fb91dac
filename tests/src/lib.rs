//! Whole-system tests live in `tests/*.rs`, one file per behaviour; this library holds their fixtures.
