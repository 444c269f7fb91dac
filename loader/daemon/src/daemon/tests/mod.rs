//! Tests of the daemon's parts together.

mod simulated;
