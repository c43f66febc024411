//! `-smp`: what it means where it leaves something out, and how it is written.
//!
//! Source: QEMU `hw/core/machine-smp.c`, `machine_parse_smp_config()`.

use super::properties::Properties;
use crate::GuestTopology;

/// vCPUs and their topology, complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Smp {
    /// vCPUs at the start.
    pub vcpus: u32,
    /// vCPUs at most, with those that can be plugged in.
    pub max_vcpus: u32,
    /// Sockets.
    pub sockets: u32,
    /// Dies in a socket.
    pub dies: u32,
    /// Clusters in a die.
    pub clusters: u32,
    /// Modules in a cluster.
    pub modules: u32,
    /// Cores in a module.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

impl Smp {
    /// One vCPU, as without `-smp`.
    pub const ONE: Self = Self {
        vcpus: 1,
        max_vcpus: 1,
        sockets: 1,
        dies: 1,
        clusters: 1,
        modules: 1,
        cores: 1,
        threads: 1,
    };

    /// Completes what the option says as QEMU does: missing cores first, then
    /// sockets, then threads; before machine types of 6.2, missing sockets first.
    /// Zeros and what is not a number count as missing.
    #[must_use]
    pub fn resolve(properties: &Properties, machine: &str) -> Self {
        let given = |key: &str| properties.number(key).map(|at| at.value).filter(|n| *n > 0);
        let [dies, clusters, modules] =
            ["dies", "clusters", "modules"].map(|key| given(key).unwrap_or(1));
        let (cpus, maxcpus) = (given("cpus"), given("maxcpus"));
        let [mut sockets, mut cores, mut threads] = ["sockets", "cores", "threads"].map(given);
        let product = |counts: &[Option<u32>]| {
            let all = counts.iter().flatten().copied().chain([dies, clusters, modules]);
            all.fold(1_u32, u32::saturating_mul)
        };
        let wanted = maxcpus.or(cpus);
        if let Some(wanted) = wanted {
            let left = |others: [Option<u32>; 2]| Some((wanted / product(&others)).max(1));
            if prefers_sockets(machine) {
                if sockets.is_none() {
                    (cores, threads) = (cores.or(Some(1)), threads.or(Some(1)));
                    sockets = left([cores, threads]);
                } else if cores.is_none() {
                    threads = threads.or(Some(1));
                    cores = left([sockets, threads]);
                }
            } else if cores.is_none() {
                (sockets, threads) = (sockets.or(Some(1)), threads.or(Some(1)));
                cores = left([sockets, threads]);
            } else if sockets.is_none() {
                threads = threads.or(Some(1));
                sockets = left([cores, threads]);
            }
            threads = threads.or_else(|| left([sockets, cores]));
        }
        let total = product(&[sockets, cores, threads]);
        let max_vcpus = wanted.unwrap_or(total);
        Self {
            vcpus: cpus.unwrap_or(max_vcpus),
            max_vcpus,
            sockets: sockets.unwrap_or(1),
            dies,
            clusters,
            modules,
            cores: cores.unwrap_or(1),
            threads: threads.unwrap_or(1),
        }
    }

    /// The option's value: vCPUs at the start if they are not all, and the levels
    /// that the machine takes or that are not 1.
    #[must_use]
    pub fn write(
        present: Option<u32>,
        topology: &GuestTopology,
        takes: impl Fn(&str) -> bool,
    ) -> String {
        let most = topology.vcpus();
        let mut text = match present {
            Some(present) => format!("{present},maxcpus={most}"),
            None => most.to_string(),
        };
        for (level, count) in topology.levels() {
            if count > 1 || takes(level) {
                text.push_str(&format!(",{level}={count}"));
            }
        }
        text
    }

    /// vCPUs that the levels make together; QEMU refuses a VM where that is not
    /// [`Smp::max_vcpus`].
    #[must_use]
    pub fn product(&self) -> u32 {
        [self.sockets, self.dies, self.clusters, self.modules, self.cores, self.threads]
            .into_iter()
            .fold(1, u32::saturating_mul)
    }
}

/// Machine types up to 6.1 made sockets of what was not written.
fn prefers_sockets(machine: &str) -> bool {
    let version = machine.rsplit('-').next().unwrap_or_default();
    let Some((major, minor)) = version.split_once('.') else { return false };
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        (Ok(major), Ok(minor)) => {
            (machine.starts_with("pc-") || machine.starts_with("virt-")) && (major, minor) < (6, 2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::shell::ShellWord;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let topology = GuestTopology { sockets: 2, dies: 1, clusters: 1, cores: 3, threads: 2 };
        let check = |present: Option<u32>, levels: &[&str], expected: &str| {
            let text = Smp::write(present, &topology, |level| levels.contains(&level));
            assert_eq!(text, expected);
            let read = Properties::read(&ShellWord::of_argument(&text), "cpus");
            let smp = Smp::resolve(&read, "q35");
            assert_eq!((smp.vcpus, smp.max_vcpus), (present.unwrap_or(12), 12), "{text}");
            assert_eq!((smp.sockets, smp.cores, smp.threads), (2, 3, 2), "{text}");
        };
        check(None, &[], "12,sockets=2,cores=3,threads=2");
        check(Some(4), &["dies"], "4,maxcpus=12,sockets=2,dies=1,cores=3,threads=2");
    }

    #[test]
    fn as_qemu_completes_it() {
        let check = |text: &str, machine: &str, expected: [u32; 8]| {
            let smp =
                Smp::resolve(&Properties::read(&ShellWord::of_argument(text), "cpus"), machine);
            let Smp { vcpus, max_vcpus, sockets, dies, clusters, modules, cores, threads } = smp;
            let found = [vcpus, max_vcpus, sockets, dies, clusters, modules, cores, threads];
            assert_eq!(found, expected, "{text}");
        };
        check("4", "q35", [4, 4, 1, 1, 1, 1, 4, 1]);
        check("4", "pc-q35-6.1", [4, 4, 4, 1, 1, 1, 1, 1]);
        check("4,threads=2", "q35", [4, 4, 1, 1, 1, 1, 2, 2]);
        check("8,sockets=2,modules=2,cores=2", "q35", [8, 8, 2, 1, 1, 2, 2, 1]);
        check("8,cores=2", "pc-i440fx-7.2", [8, 8, 4, 1, 1, 1, 2, 1]);
        check("cpus=2,maxcpus=8,sockets=2,cores=2", "q35", [2, 8, 2, 1, 1, 1, 2, 2]);
        check("sockets=2,cores=4,threads=2", "q35", [16, 16, 2, 1, 1, 1, 4, 2]);
        check("8,sockets=2", "rhel9.4.0", [8, 8, 2, 1, 1, 1, 4, 1]);
        check("0,cores=x", "q35", [1, 1, 1, 1, 1, 1, 1, 1]);
        check("5,cores=2", "q35", [5, 5, 2, 1, 1, 1, 2, 1]);
    }
}
