//! Configurations that are right: what tuning guides describe and what management
//! tools write, in words of vmlab's own, and what virt-install prints
//! (`scripts/make-virt-install-domains`). A false alarm here is a defect.

use std::fs;
use std::path::Path;

use lint::{Context, Severity, check_text, output};

#[test]
fn right_configurations_draw_no_warning() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<_> = ["right", "virt-install-4.1.0"]
        .iter()
        .flat_map(|folder| fs::read_dir(testdata.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some())
        .collect();
    files.sort();
    assert!(files.len() >= 40, "{files:?}");
    let mut said = String::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let checked = check_text(&name, &text, &Context::default()).unwrap();
        assert_eq!(checked.vms.len(), 1, "{name}");
        // What depends on the VM's purpose may be told.
        let mut found = checked.findings;
        found.retain(|one| one.severity > Severity::Hint);
        said.push_str(&output::text(&found, 90, false));
    }
    assert_eq!(said, "");
}
