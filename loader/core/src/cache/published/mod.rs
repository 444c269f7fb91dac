//! Published policies that are neither a plain ranking nor a plain queue, one file each. They are
//! here to compare with.

pub(super) mod arc;
pub(super) mod icache;
pub(super) mod lfu;
pub(super) mod quiver;
pub(super) mod r#static;
