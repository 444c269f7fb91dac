//! Extra fields of samples, read in the trainer's process when somebody asks for them.
//!
//! They do not come through the ring: most trainings never look at them, and the daemon has no memory to spare for what
//! it cannot rank. `reader` opens the index at the first question, reads past the page cache, as the daemon does, and
//! checks what it reads.

mod reader;

pub use reader::{Field, FieldsReader};
