//! JPEGs, whole and in parts. What is checked: `src/lib.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| shade_images_fuzz::jpeg(input));
