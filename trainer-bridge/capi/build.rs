//! Gives the shared library its name for loaders. The number is `shade_abi()`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libshade_client.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
