//! What a variant on the host itself needs, and whether this host has it.

use std::collections::BTreeMap;

use host::sandbox;
use record::Environment;
use topology::bounded::LineProblem;
use topology::{Host, PcpuSet};
use vmconfig::{Accel, VmPatch, VmSpec, builtin};
use workload::{KERNEL_SOURCE, UnderTest};

use super::Freezer;
use crate::probe;
use crate::study::{NetworkKind, RunsOn, StudyVariant, StudyWorkload};

/// Programs that workloads need and Debian's packages with them.
const PACKAGES: [(&str, &str); 24] = [
    ("ab", "apache2-utils"),
    ("cyclictest", "rt-tests"),
    ("dbench", "dbench"),
    ("fio", "fio"),
    ("hackbench", "rt-tests"),
    ("iperf3", "iperf3"),
    ("make", "make"),
    ("nginx", "nginx-light"),
    ("perf", "linux-perf"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("redis-server", "redis-server"),
    ("sh", "dash"),
    ("sockperf", "sockperf"),
    ("stress-ng", "stress-ng"),
    ("su", "util-linux"),
    ("sysbench", "sysbench"),
    ("tbench", "dbench"),
    ("tbench_srv", "dbench"),
    ("time", "time"),
    ("timeout", "coreutils"),
    ("gcc", "gcc"),
    ("cut", "coreutils"),
    ("dmesg", "util-linux"),
];

/// Where the trials of a variant run on this host.
pub(super) fn environment(on: RunsOn, accel: Accel, host: &Host) -> Environment {
    let is_emulated = host.virtualised.emulator.is_some();
    match (on, accel) {
        (RunsOn::Host, _) | (RunsOn::Vm, Accel::Kvm) if host.virtualised.counts_instructions => {
            Environment::InstructionCounted
        }
        (RunsOn::Host, _) if is_emulated => Environment::EmulatedHost,
        (RunsOn::Host, _) => Environment::Host,
        (RunsOn::Vm, Accel::Kvm) if is_emulated => Environment::NestedKvm,
        (RunsOn::Vm, Accel::Kvm) => Environment::Kvm,
        (RunsOn::Vm, Accel::Tcg) => Environment::Tcg,
    }
}

/// What a variant on the host is, one line.
pub(super) fn summary(spec: &VmSpec, settings: &BTreeMap<String, String>) -> String {
    let pcpus = spec.pins.vcpus.values().fold(PcpuSet::default(), |all, one| all.union(one));
    let settings = settings.iter().map(|(id, value)| format!(", host.{id} = {value}"));
    format!("on the host itself, pCPU(s) {pcpus}{}", settings.collect::<String>())
}

impl Freezer<'_> {
    /// `changes` with the pCPUs of a variant on the host as pins: its own or
    /// the base VM's, else those that the built-in variant `pin` would take.
    pub(super) fn on_pcpus(&mut self, written: &str, changes: VmPatch) -> Option<VmPatch> {
        let vm = self.study.base.overlay(&changes);
        let line = |field: &str| self.study.line_of(written, field);
        let problem = |field: &str, message: String| LineProblem {
            line: line(field),
            message: format!("{written}: on = \"host\": {message}"),
        };
        let vcpus = match vm.topology() {
            Ok(topology) => topology.vcpus(),
            Err(error) => {
                let found = problem(error.field(), error.to_string());
                self.problems.push(found);
                return None;
            }
        };
        let pins = vm.pins.as_ref().filter(|pins| !pins.0.is_empty());
        let Some(pins) = pins else {
            return match builtin::variant("pin", &self.machine.host, vcpus) {
                Ok(VmPatch { pins, .. }) => {
                    Some(changes.overlay(&VmPatch { pins, ..VmPatch::default() }))
                }
                Err(error) => {
                    let found = problem("vcpus", error.to_string());
                    self.problems.push(found);
                    None
                }
            };
        };
        let pcpus = pins.values().fold(PcpuSet::default(), |all, pcpus| all.union(pcpus));
        if pcpus.len() != vcpus as usize {
            let found = problem(
                "pins",
                format!(
                    "the pins name {} pCPU(s) ({pcpus}) and the VM has {vcpus} vCPU(s): name as many with vm.pins",
                    pcpus.len()
                ),
            );
            self.problems.push(found);
        }
        Some(changes)
    }

    /// What stands in the way of workloads on the host itself.
    pub(super) fn host_seat(&mut self, written: &str, variant: &StudyVariant) {
        let mut obstacles = Vec::new();
        let Host { arch, .. } = &self.machine.host;
        let native = arch.as_deref().unwrap_or(std::env::consts::ARCH);
        if native != self.machine.arch.name() {
            obstacles.push(format!("the guests are {}, this host is {native}", self.machine.arch));
        }
        obstacles.extend(sandbox::check().err().map(|error| error.to_string()));
        let missing = missing(&self.study.workloads, &sandbox::has_program);
        // No package gets into a replica.
        let replica = match self.machine.host.virtualised.emulator {
            Some(_) => ", or for a replica `vmlab replica up --image host-debian-12-full`",
            None => "",
        };
        obstacles.extend(missing.map(|said| said + replica));
        let network = self.study.network.overlay(&variant.network).resolve();
        if let Ok(network) = network
            && super::has_peer(self.study)
            && network.kind != NetworkKind::Bridge
        {
            obstacles.push(format!(
                "network.kind = \"{}\" has no place for the host: write network.kind = \"bridge\"",
                network.kind.name()
            ));
        }
        let line = self.study.line_of_variant(written);
        self.problems.extend(obstacles.into_iter().map(|obstacle| LineProblem {
            line,
            message: format!("{written}: on = \"host\": {obstacle}"),
        }));
    }
}

/// The programs that the host's part in `workloads` needs and the host has not,
/// with the command that installs them.
fn missing(workloads: &[StudyWorkload], has: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut absent: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for program in workloads.iter().flat_map(needs) {
        if program != probe::PROGRAM && !has(program) {
            absent.insert(program, package(program));
        }
    }
    if absent.is_empty() {
        return None;
    }
    let programs: Vec<&str> = absent.keys().copied().collect();
    let mut packages: Vec<&str> = absent.values().copied().flatten().collect();
    packages.sort_unstable();
    packages.dedup();
    let verb = if programs.len() == 1 { "is" } else { "are" };
    let unpack = match programs.iter().any(|program| program.starts_with(KERNEL_SOURCE)) {
        true => format!(" and `tar -C /usr/src -xf {KERNEL_SOURCE}.tar.xz`"),
        false => String::new(),
    };
    Some(format!(
        "{} {verb} not on this host: run `apt-get install {}`{unpack}",
        programs.join(", "),
        packages.join(" ")
    ))
}

/// What is needed to build Linux, beside compiler and make.
const TO_BUILD_LINUX: &str = "bc bison flex libelf-dev libssl-dev linux-source-6.1";

/// What the VM under test, or the host in its place, needs for a workload.
fn needs(workload: &StudyWorkload) -> Vec<&'static str> {
    let mut all = Vec::new();
    if workload.under_test != UnderTest::Server {
        all.extend(workload.entry.needs);
        let background = workload.background.as_ref();
        let entry = background.and_then(|background| workload::find(&background.workload).ok());
        all.extend(entry.iter().flat_map(|entry| entry.needs));
    }
    if workload.under_test != UnderTest::Client {
        all.extend(workload.entry.beside.server.iter().flat_map(|server| server.needs));
    }
    all
}

/// Debian's package with a program.
fn package(program: &str) -> Option<&'static str> {
    if program.starts_with("/usr/lib/postgresql/15/") {
        return Some("postgresql-15");
    }
    if program.starts_with(KERNEL_SOURCE) {
        return Some(TO_BUILD_LINUX);
    }
    PACKAGES.iter().find(|(known, _)| *known == program).map(|(_, package)| *package)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thin;

    #[test]
    fn every_program_of_the_catalogue_has_a_package() {
        let entries = workload::CATALOGUE.iter();
        let all = entries.flat_map(|entry| {
            let server = entry.beside.server.iter().flat_map(|server| server.needs);
            entry.needs.iter().chain(server)
        });
        let unknown: Vec<_> = all
            .filter(|program| ![probe::PROGRAM, thin::PROGRAM].contains(*program))
            .filter(|program| package(program).is_none())
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        let workloads = |text: &str| {
            let text = format!("vmlab = 1\ntitle = 't'\n[[variant]]\nname = 'a'\n{text}");
            crate::study::Study::parse("x.toml", &text).expect("sound").workloads
        };
        let check = |text: &str, has: &[&str], expected: Option<&str>| {
            let found = missing(&workloads(text), &|program| has.contains(&program));
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        let ab = "[[workload]]\nrun = 'ab'\n";
        // The VM at the other end has its own.
        check(ab, &["nginx"], None);
        check(ab, &[], Some("nginx is not on this host: run `apt-get install nginx-light`"));
        check(&format!("{ab}under_test = 'client'\n"), &["ab"], None);
        check(
            &format!(
                "{ab}under_test = 'both'\n[[workload]]\nrun = 'cyclictest'\nbackground.run = 'hackbench'\n"
            ),
            &["nginx"],
            Some(
                "ab, cyclictest, hackbench are not on this host: run `apt-get install apache2-utils rt-tests`",
            ),
        );
        check("[[workload]]\nrun = 'probe-net'\n", &[], None);
        // Linux' source comes packed.
        let kernbench = "[[workload]]\nrun = 'kernbench'\n";
        let built = ["make", "gcc", "sh", "time"];
        let source = "/usr/src/linux-source-6.1/scripts/config";
        check(kernbench, &[&built[..], &[source]].concat(), None);
        check(
            kernbench,
            &built,
            Some(
                "/usr/src/linux-source-6.1/scripts/config is not on this host: run `apt-get install \
                 bc bison flex libelf-dev libssl-dev linux-source-6.1` and `tar -C /usr/src -xf \
                 /usr/src/linux-source-6.1.tar.xz`",
            ),
        );
    }
}
