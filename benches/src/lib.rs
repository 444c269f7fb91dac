//! Benches; see `README.md` in this folder.
