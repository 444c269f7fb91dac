//! `include/shade_client.h` is what cbindgen makes of its sources. After a change of the calls
//! the test writes it anew with SHADE_WRITE_HEADER=1.

use std::path::Path;

#[test]
fn the_header_is_the_generated_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_config(config).with_src(root.join("src/fault.rs"));
    let bindings = bindings.with_src(root.join("src/calls.rs"));
    let mut made = Vec::new();
    bindings.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/shade_client.h");
    if std::env::var_os("SHADE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(made, std::fs::read_to_string(&path).unwrap(), "run it with SHADE_WRITE_HEADER=1");
}
