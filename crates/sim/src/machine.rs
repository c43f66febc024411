//! What a scheduler sees of a machine: the host's pCPUs, or a guest's vCPUs.

use topology::Host;

/// A machine of equal sockets, for hosts and guests that nobody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniformMachine {
    /// Sockets, each a memory node.
    pub sockets: u32,
    /// Dies of a socket, each with a last-level cache of its own.
    pub dies: u32,
    /// Cores of a die.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
    /// How its logical CPUs are numbered.
    pub numbering: PcpuNumbering,
}

/// How a machine numbers its logical CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcpuNumbering {
    /// The threads of a core follow one another, as QEMU numbers vCPUs.
    CoreByCore,
    /// First threads of all cores, then second ones, as Intel servers do.
    ThreadByThread,
}

/// One logical CPU's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPosition {
    /// Core, unique in the machine.
    pub core: u32,
    /// Group that shares the last-level cache.
    pub cache: u32,
    /// Memory node.
    pub node: u32,
}

/// The logical CPUs of a machine, numbered without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimMachine {
    places: Vec<CpuPosition>,
    /// The other threads of each one's core.
    siblings: Vec<Vec<u32>>,
    /// Linux's number of each.
    numbers: Vec<u32>,
    nodes: u32,
}

impl SimMachine {
    fn new(places: Vec<CpuPosition>, numbers: Vec<u32>) -> Self {
        let siblings = (0..places.len())
            .map(|me| {
                let same = |&other: &usize| other != me && places[other].core == places[me].core;
                (0..places.len()).filter(same).map(|other| other as u32).collect()
            })
            .collect();
        let nodes = places.iter().map(|place| place.node + 1).max().unwrap_or(1);
        Self { places, siblings, numbers, nodes }
    }

    /// The machine of `shape`.
    #[must_use]
    pub fn of_shape(shape: UniformMachine) -> Self {
        let UniformMachine { sockets, dies, cores, threads, numbering } = shape;
        let all_cores = sockets * dies * cores;
        let place =
            |core: u32| CpuPosition { core, cache: core / cores, node: core / (dies * cores) };
        let count = all_cores * threads;
        let places = (0..count).map(|cpu| match numbering {
            PcpuNumbering::CoreByCore => place(cpu / threads),
            PcpuNumbering::ThreadByThread => place(cpu % all_cores),
        });
        Self::new(places.collect(), (0..count).collect())
    }

    /// `vcpus` sockets of one core and one thread, one node: what a guest sees
    /// where nobody gave it a topology.
    #[must_use]
    pub fn flat(vcpus: u32) -> Self {
        let places = (0..vcpus).map(|cpu| CpuPosition { core: cpu, cache: cpu, node: 0 }).collect();
        Self::new(places, (0..vcpus).collect())
    }

    /// The online pCPUs of `host`.
    #[must_use]
    pub fn of_host(host: &Host) -> Self {
        let online: Vec<_> = host.pcpus.iter().filter(|pcpu| pcpu.online).collect();
        let mut cores = Vec::new();
        let mut caches = Vec::new();
        let mut nodes = Vec::new();
        let number = |known: &mut Vec<(u32, u32, u32, u32)>, key| {
            known.iter().position(|other| *other == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            }) as u32
        };
        let last = host.caches.iter().map(|cache| cache.level).max().unwrap_or(0);
        let places = online
            .iter()
            .map(|pcpu| {
                let socket = pcpu.socket.unwrap_or(0);
                let die = pcpu.die.unwrap_or(0);
                let core = pcpu.core.unwrap_or(pcpu.id);
                let shared = host
                    .caches
                    .iter()
                    .find(|cache| cache.level == last && cache.pcpus.contains(pcpu.id))
                    .and_then(|cache| cache.pcpus.first());
                let cache = shared.map_or((1, socket, die, 0), |first| (0, first, 0, 0));
                CpuPosition {
                    core: number(&mut cores, (socket, die, pcpu.cluster.unwrap_or(0), core)),
                    cache: number(&mut caches, cache),
                    node: number(&mut nodes, (pcpu.node.unwrap_or(socket), 0, 0, 0)),
                }
            })
            .collect();
        Self::new(places, online.iter().map(|pcpu| pcpu.id).collect())
    }

    /// How many logical CPUs it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many memory nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Where a logical CPU is.
    #[must_use]
    pub fn place(&self, cpu: u32) -> CpuPosition {
        self.places[cpu as usize]
    }

    /// The other threads of its core.
    #[must_use]
    pub fn siblings(&self, cpu: u32) -> &[u32] {
        &self.siblings[cpu as usize]
    }

    /// How many CPUs share its last-level cache (`sd_llc_size`).
    #[must_use]
    pub fn near(&self, cpu: u32) -> u32 {
        let cache = self.place(cpu).cache;
        self.places.iter().filter(|place| place.cache == cache).count() as u32
    }

    /// Linux's number of it.
    #[must_use]
    pub fn number(&self, cpu: u32) -> u32 {
        self.numbers[cpu as usize]
    }

    /// The one that Linux numbers so.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Option<u32> {
        self.numbers.iter().position(|known| *known == number).map(|at| at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_follow_the_numbering() {
        let shape = UniformMachine {
            sockets: 2,
            dies: 1,
            cores: 8,
            threads: 2,
            numbering: PcpuNumbering::ThreadByThread,
        };
        let host = SimMachine::of_shape(shape);
        assert_eq!((host.len(), host.nodes()), (32, 2));
        assert_eq!(host.siblings(1), [17]);
        assert_eq!(host.place(17), CpuPosition { core: 1, cache: 0, node: 0 });
        assert_eq!(host.place(9).node, 1);
        let guest =
            SimMachine::of_shape(UniformMachine { numbering: PcpuNumbering::CoreByCore, ..shape });
        assert_eq!(guest.siblings(2), [3]);
    }
}
