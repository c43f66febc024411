//! Whether DPDK's switches are on this machine: `dpdk-testpmd` and Open vSwitch with DPDK.
//!
//! Source: Debian's packages dpdk-dev and openvswitch-switch-dpdk; Linux
//! `Documentation/admin-guide/mm/hugetlbpage.rst`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::program::find;

/// DPDK's test program, which forwards between ports.
pub const TESTPMD: &str = "dpdk-testpmd";

/// Open vSwitch's switch where Debian keeps the one with DPDK; elsewhere the one in
/// `PATH` may be that.
const DEBIAN_VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const VSWITCHD: &str = "ovs-vswitchd";

/// What else Open vSwitch is made of.
const OVS_PROGRAMS: [&str; 3] = ["ovsdb-tool", "ovsdb-server", "ovs-vsctl"];

/// Huge pages of 2 MiB that Open vSwitch gives its DPDK; it runs nowhere without.
pub const OVS_HUGE_PAGES: u64 = 256;
/// Those that testpmd gets where there are as many; it does without, too.
pub const TESTPMD_HUGE_PAGES: u64 = 192;

/// Error type for [`check_testpmd`] and [`check_open_vswitch`].
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// A program is missing.
    #[error("needs {program}: run `apt-get install {package}`")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package with it.
        package: &'static str,
    },
    /// The user may not.
    #[error("needs root, for a network namespace")]
    NotRoot,
    /// Too few huge pages are free.
    #[error(
        "needs {OVS_HUGE_PAGES} free huge pages of 2 MiB, and {free} are free: write \
         host.hugepages_2m = {OVS_HUGE_PAGES}, in the variant or for all"
    )]
    HugePages {
        /// How many are.
        free: u64,
    },
}

/// Whether testpmd can run here.
///
/// # Errors
/// [`DpdkError`], to be read behind what needs it, says what to do.
pub fn check_testpmd() -> Result<(), DpdkError> {
    let missing = DpdkError::Missing { program: TESTPMD, package: "dpdk-dev" };
    find(TESTPMD).map(drop).ok_or(missing)
}

/// Whether Open vSwitch with DPDK can run here, in a network namespace of its own;
/// `reserves` says that somebody will make the huge pages.
///
/// # Errors
/// As [`check_testpmd`].
pub fn check_open_vswitch(reserves: bool) -> Result<(), DpdkError> {
    let lacks = OVS_PROGRAMS.into_iter().find(|program| find(program).is_none());
    let lacks = lacks.or_else(|| vswitchd().is_none().then_some("an ovs-vswitchd with DPDK"));
    if let Some(program) = lacks {
        return Err(DpdkError::Missing { program, package: "openvswitch-switch-dpdk" });
    }
    if !rustix::process::geteuid().is_root() {
        return Err(DpdkError::NotRoot);
    }
    let free = free_huge_pages();
    if !reserves && free < OVS_HUGE_PAGES {
        return Err(DpdkError::HugePages { free });
    }
    Ok(())
}

/// Open vSwitch's switch, if it has DPDK, and the versions of both as it says them.
#[must_use]
pub fn vswitchd() -> Option<(PathBuf, String)> {
    let candidates = [Some(PathBuf::from(DEBIAN_VSWITCHD)), find(VSWITCHD)];
    candidates.into_iter().flatten().find_map(|program| {
        let output = Command::new(&program).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = said.lines().take(2).map(str::trim).collect();
        said.contains("DPDK").then(|| (program, lines.join(", ")))
    })
}

/// Huge pages of 2 MiB that nobody has.
#[must_use]
pub fn free_huge_pages() -> u64 {
    fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
