//! First figures: what each stage costs. Being written.

fn main() {}
