//! Puts the thin guests and their symbols into the library, if `scripts/build-thinguest` has
//! made them.

use std::path::Path;
use std::{env, fs};

/// Those that there are.
const BUILT: [&str; 6] = [
    "x86_64/vmlab-thin",
    "x86_64/vmlab-thin.efi",
    "x86_64/vmlab-thin.symbols",
    "aarch64/vmlab-thin",
    "aarch64/vmlab-thin.efi",
    "aarch64/vmlab-thin.symbols",
];

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("Cargo says it");
    let out = env::var("OUT_DIR").expect("Cargo says it");
    for name in BUILT {
        let built = Path::new(&folder).join("../../target/thinguest").join(name);
        if !built.exists() {
            // Cargo takes a file that is not there for one that changed, each time. Where
            // the sources can only be read, that is all it costs.
            let folder = built.parent().expect("it is a file in a folder");
            let _ = fs::create_dir_all(folder).and_then(|()| fs::write(&built, []));
        }
        println!("cargo::rerun-if-changed={}", built.display());
        let bytes = fs::read(&built).unwrap_or_default();
        let carried = Path::new(&out).join(name.replace('/', "-"));
        fs::write(carried, bytes).expect("Cargo's folder can be written");
    }
}
