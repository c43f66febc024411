//! Where `vmlab-probe` is: the guests' own program, which is put into a guest
//! when a workload needs it.

use std::path::PathBuf;

use vmconfig::Arch;

use crate::plan::StudyPlan;
use crate::study::Study;

/// The program, as workloads name it.
pub const PROGRAM: &str = "vmlab-probe";

/// Environment variable that names the folder with `<arch>/vmlab-probe`.
pub const FOLDER_VARIABLE: &str = "VMLAB_PROBE";

/// Error type for [`find`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "vmlab-probe for {arch} guests is not there (looked for {}): run `make build`, or name the \
     folder with {arch}/vmlab-probe in {FOLDER_VARIABLE}",
    looked_for.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
)]
pub struct MissingProbe {
    /// The guests' architecture.
    pub arch: Arch,
    /// Where it was looked for.
    pub looked_for: Vec<PathBuf>,
}

/// The program for guests of `arch`: in the folder that the environment names,
/// else beside this program (`vmlab-probe-<arch>`, as it is copied to other
/// machines), else where packages have it (`lib/vmlab/probe` beside `bin`), else
/// where `make build` puts it.
///
/// # Errors
/// [`MissingProbe`].
pub fn find(arch: Arch) -> Result<PathBuf, MissingProbe> {
    let named = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let mut looked_for: Vec<PathBuf> =
        named.iter().map(|folder| folder.join(arch.name()).join(PROGRAM)).collect();
    if let Some(folder) = std::env::current_exe().ok().as_deref().and_then(|exe| exe.parent()) {
        looked_for.push(folder.join(format!("{PROGRAM}-{arch}")));
        // An installed bin/vmlab, target/release/vmlab, target/<target>/release/vmlab.
        for above in ["../lib/vmlab/probe", "../probe", "../../probe"] {
            looked_for.push(folder.join(above).join(arch.name()).join(PROGRAM));
        }
    }
    match looked_for.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(MissingProbe { arch, looked_for }),
    }
}

/// True if a guest of `study` needs the program.
#[must_use]
pub fn is_needed(study: &Study) -> bool {
    let others = study.loads.iter().filter_map(|load| load.vms.as_ref());
    let backgrounds = study.workloads.iter().filter_map(|workload| workload.background.as_ref());
    let named = others
        .map(|vms| vms.workload.as_str())
        .chain(backgrounds.map(|background| background.workload.as_str()));
    is_needed_by_any(study.workloads.iter().map(|workload| workload.entry.name).chain(named))
}

/// True if a guest of `plan` needs the program.
#[must_use]
pub fn is_needed_by(plan: &StudyPlan) -> bool {
    let others = plan.loads.iter().filter_map(|load| load.vms.as_ref());
    let backgrounds = plan.workloads.iter().filter_map(|workload| workload.background.as_ref());
    let named = others
        .map(|vms| vms.workload.as_str())
        .chain(backgrounds.map(|background| background.workload.as_str()));
    is_needed_by_any(plan.workloads.iter().map(|workload| workload.workload.as_str()).chain(named))
}

fn is_needed_by_any<'a>(mut workloads: impl Iterator<Item = &'a str>) -> bool {
    workloads.any(|name| {
        workload::find(name).is_ok_and(|entry| {
            let server = entry.beside.server.iter().flat_map(|server| server.needs);
            entry.needs.iter().chain(server).any(|need| *need == PROGRAM)
        })
    })
}
