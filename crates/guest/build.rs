//! Puts the thin guest into the library, if `scripts/build-thinguest` has made it.

use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("Cargo says it");
    let built = Path::new(&folder).join("../../target/thinguest/x86_64/vmlab-thin");
    if !built.exists() {
        // Cargo takes a file that is not there for one that changed, each time. Where
        // the sources can only be read, that is all it costs.
        let folder = built.parent().expect("it is a file in a folder");
        let _ = fs::create_dir_all(folder).and_then(|()| fs::write(&built, []));
    }
    println!("cargo::rerun-if-changed={}", built.display());
    let bytes = fs::read(&built).unwrap_or_default();
    let out = env::var("OUT_DIR").expect("Cargo says it");
    fs::write(Path::new(&out).join("vmlab-thin"), bytes).expect("Cargo's folder can be written");
}
