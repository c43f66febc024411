//! What the guest can measure.

/// Most samples that an operation is measured with; the guest has room for no more.
pub const MAX_N: u32 = 65_536;

/// How the guest talks to its interrupt controller: its local APIC, or arm64's GIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apic {
    /// Memory accesses to the page at 0xfee00000.
    Xapic,
    /// Model-specific registers from 0x800 on.
    X2apic,
    /// Memory accesses to the CPU interface.
    Gicv2,
    /// System registers (ICC_*_EL1).
    Gicv3,
}

names! { Apic: Xapic "xapic", X2apic "x2apic", Gicv2 "gicv2", Gicv3 "gicv3", }

impl Apic {
    /// True if guests of this architecture, by its name in Rust and in QEMU, have it.
    #[must_use]
    pub fn is_of(self, arch: &str) -> bool {
        match self {
            Self::Xapic | Self::X2apic => arch == "x86_64",
            Self::Gicv2 | Self::Gicv3 => arch == "aarch64",
        }
    }
}

/// How a program's calls reach the null device: what [`Operation::NullIo`] does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// As plain calls: program and kernel are one.
    #[default]
    Plain,
    /// By SYSCALL, from a program in ring 3.
    Ring3,
}

/// How a vCPU waits for another, and wakes it: what [`Operation::Items`] does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It spins, and nobody is told.
    Spin,
    /// It spins, and is sent an IPI all the same.
    Ipi,
    /// It halts at once, and is sent an IPI if it did.
    Halt,
    /// It spins a while before it halts, and is sent an IPI if it did.
    #[default]
    Lazy,
    /// It waits by MWAIT.
    Mwait,
}

names! { Calls: Plain "plain", Ring3 "ring3", }
names! { Wait: Spin "spin", Ipi "ipi", Halt "halt", Lazy "lazy", Mwait "mwait", }

/// A device that an operation makes round trips to, by virtio's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtioDevice {
    /// virtio-net, on QEMU's user network.
    Net = 1,
    /// virtio-blk, on any drive: no request reaches it.
    Block = 2,
}

/// A row of the table of operations.
struct Row {
    operation: Operation,
    name: &'static str,
    summary: &'static str,
    batch: u32,
    n: u32,
    vcpus: u32,
    on: ArchSupport,
}

/// The architectures that have an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchSupport {
    All,
    X86,
    Arm,
}

macro_rules! operations {
    ($($variant:ident $name:literal $summary:literal batch $batch:literal n $n:literal vcpus $vcpus:literal on $on:ident;)*) => {
        /// One thing that the guest does over and over and takes the time of.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $(#[doc = $summary] $variant,)*
        }

        /// By discriminant.
        const ROWS: &[Row] = &[$(Row {
            operation: Operation::$variant,
            name: $name,
            summary: $summary,
            batch: $batch,
            n: $n,
            vcpus: $vcpus,
            on: ArchSupport::$on,
        },)*];

        impl Operation {
            /// The names of all.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];
        }
    };
}

// `batch` is how often the operation is done for one sample: what is shorter than
// the reading of the clock is done often.
operations! {
    Nothing "nothing" "Two readings of the clock with nothing between" batch 1 n 1000 vcpus 1 on All;
    Call "call" "A call of an empty function" batch 256 n 200 vcpus 1 on All;
    Syscall "syscall" "SYSCALL from ring 3 (SVC from EL0) to an empty handler and back" batch 256 n 200 vcpus 1 on All;
    Tsc "tsc" "RDTSC; on arm64 CNTVCT_EL0" batch 64 n 200 vcpus 1 on All;
    Pvclock "pvclock" "The time from KVM's clock page" batch 64 n 200 vcpus 1 on X86;
    Cpuid "cpuid" "CPUID: an exit that KVM handles with the least work" batch 1 n 1000 vcpus 1 on X86;
    Hypercall "hypercall" "A hypercall that does nothing (KVM_HC_VAPIC_POLL_IRQ; PSCI_VERSION)" batch 1 n 1000 vcpus 1 on All;
    MsrRead "msr-read" "RDMSR of IA32_APIC_BASE, which KVM intercepts" batch 1 n 1000 vcpus 1 on X86;
    MsrWrite "msr-write" "WRMSR of IA32_APIC_BASE with the value that it has" batch 1 n 1000 vcpus 1 on X86;
    MsrDirect "msr-direct" "WRMSR of KERNEL_GS_BASE, which KVM lets pass" batch 16 n 200 vcpus 1 on X86;
    MsrCstate "msr-cstate" "RDMSR of a C-state residency counter (0x3fc), which cpu-pm lets pass" batch 1 n 1000 vcpus 1 on X86;
    SysregTrap "sysreg-trap" "MRS of ID_AA64PFR0_EL1, which KVM traps" batch 1 n 1000 vcpus 1 on Arm;
    SysregDirect "sysreg-direct" "MSR of TPIDRRO_EL0, which KVM lets pass" batch 16 n 200 vcpus 1 on Arm;
    PioKernel "pio-kernel" "A port of the interrupt controller in the kernel (0x4d0)" batch 1 n 1000 vcpus 1 on X86;
    PioQemu "pio-qemu" "A port of a device in QEMU (the serial port's scratch register)" batch 1 n 1000 vcpus 1 on X86;
    MmioKernel "mmio-kernel" "A register of the I/O APIC or the GIC's distributor in the kernel" batch 1 n 1000 vcpus 1 on All;
    MmioQemu "mmio-qemu" "A register of a device in QEMU (the HPET; on arm64 the PL011)" batch 1 n 1000 vcpus 1 on All;
    ApicRead "apic-read" "The local APIC's version register" batch 1 n 1000 vcpus 1 on X86;
    SelfIpi "self-ipi" "An interrupt to itself, until its handler has run" batch 1 n 500 vcpus 1 on All;
    IrqWindow "irq-window" "The same, sent with interrupts off and let in by STI" batch 1 n 500 vcpus 1 on X86;
    Pause "pause" "PAUSE, in a loop long enough for pause-loop exiting; on arm64 YIELD" batch 8192 n 20 vcpus 1 on All;
    Wfe "wfe" "WFE, until the event stream's next event or KVM's return" batch 1 n 200 vcpus 1 on Arm;
    TlbFlush "tlb-flush" "A reload of CR3; on arm64 TLBI VMALLE1" batch 16 n 200 vcpus 1 on All;
    Invlpg "invlpg" "INVLPG of one page" batch 16 n 200 vcpus 1 on X86;
    TlbiPage "tlbi-page" "TLBI VAE1 of one page" batch 16 n 200 vcpus 1 on Arm;
    PageFill4k "page-fill-4k" "The first touch of the next 4 KiB of memory" batch 1 n 1000 vcpus 1 on All;
    PageFill2m "page-fill-2m" "The first touch of the next 2 MiB of memory" batch 1 n 16 vcpus 1 on All;
    PageFill1g "page-fill-1g" "The first touch of the next 1 GiB of memory" batch 1 n 1 vcpus 1 on All;
    Memory "memory" "A dependent load from 8 MiB in random order" batch 256 n 200 vcpus 1 on All;
    MemoryFar "memory-far" "A dependent load from 8 MiB of memory, of each other node in turn" batch 256 n 200 vcpus 1 on All;
    Steal "steal" "What the host's others took of 2^22 cycles, by KVM's steal time" batch 1 n 20 vcpus 1 on All;
    TimerSpin "timer-spin" "How late a timer's interrupt comes to a vCPU that spins" batch 1 n 100 vcpus 1 on All;
    TimerHalt "timer-halt" "How late a timer's interrupt comes to a halted vCPU" batch 1 n 100 vcpus 1 on All;
    TimerSleep "timer-sleep" "The same, halted for 600 us: longer than KVM polls by default" batch 1 n 100 vcpus 1 on All;
    IpiSpin "ipi-spin" "An IPI to a vCPU that spins, until its handler has run" batch 1 n 100 vcpus 2 on All;
    IpiHalt "ipi-halt" "An IPI to a halted vCPU, until its handler has run" batch 1 n 100 vcpus 2 on All;
    IpiBroadcast "ipi-broadcast" "An IPI to all others, halted, until all handlers have run" batch 1 n 100 vcpus 2 on All;
    Shootdown "shootdown" "INVLPG on all other vCPUs, which spin, by IPI; on arm64 TLBI VAE1IS" batch 1 n 100 vcpus 2 on All;
    MwaitWake "mwait-wake" "A write that wakes a vCPU from MWAIT, and its answer; on arm64 from WFE" batch 1 n 100 vcpus 2 on All;
    CacheLine "cache-line" "A cache line to another vCPU and back, each of the others in turn" batch 1 n 400 vcpus 2 on All;
    SemSpin "sem-spin" "A round trip of two vCPUs that both spin: no interrupt" batch 1 n 200 vcpus 2 on All;
    SemIpi "sem-ipi" "A round trip of two vCPUs that spin and send an IPI all the same" batch 1 n 200 vcpus 2 on All;
    SemHalt "sem-halt" "A round trip of two vCPUs that halt at once" batch 1 n 100 vcpus 2 on All;
    SemLazy "sem-lazy" "A round trip of two vCPUs that spin a while before they halt, and send an IPI only to a halted one" batch 1 n 200 vcpus 2 on All;
    BlkPoll "blk-poll" "A virtio-blk request that the device answers by itself (its ID), the answer looked for" batch 1 n 200 vcpus 1 on All;
    BlkIrq "blk-irq" "The same, the answer's interrupt waited for by a halted vCPU" batch 1 n 200 vcpus 1 on All;
    NetPoll "net-poll" "A frame by virtio-net and its answer (ARP, by QEMU's user network), looked for" batch 1 n 200 vcpus 1 on All;
    NetIrq "net-irq" "The same, the answer's interrupt waited for by a halted vCPU" batch 1 n 200 vcpus 1 on All;
    NullIo "null-io" "A write to the null device and a read from it, by plain calls or from ring 3 (calls=)" batch 1000 n 20 vcpus 1 on All;
    Items "items" "An item from a producer to a consumer on two semaphores, which wait as told (wait=)" batch 100 n 10 vcpus 2 on All;
}

/// Most bytes that [`Operation::NullIo`] writes and reads at a time.
pub const MAX_IO_BYTES: u32 = 65_536;

impl Operation {
    /// All of them, in the order in which they are measured.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.operation)
    }

    /// Whether it is the price of an event, as a list of prices holds them. Two vCPUs that
    /// compute at the same time are no such thing: how an emulator lets them take turns
    /// is not the same in every run.
    #[must_use]
    pub fn is_price(self) -> bool {
        self != Self::Items
    }

    /// The virtio device that it needs, which a VM does not have by itself.
    #[must_use]
    pub fn device(self) -> Option<VirtioDevice> {
        match self {
            Self::BlkPoll | Self::BlkIrq => Some(VirtioDevice::Block),
            Self::NetPoll | Self::NetIrq => Some(VirtioDevice::Net),
            _ => None,
        }
    }

    /// Whether guests of the architecture have it: `x86_64` or `aarch64`, as the kernel
    /// names them.
    #[must_use]
    pub fn is_of(self, arch: &str) -> bool {
        match self.row().on {
            ArchSupport::All => true,
            ArchSupport::X86 => arch == "x86_64",
            ArchSupport::Arm => arch == "aarch64",
        }
    }

    /// The operation of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.operation)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// As the plan, the records and people have it: `pio-qemu`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What it is, in one line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.row().summary
    }

    /// How often it is done for one sample.
    #[must_use]
    pub fn batch(self) -> u32 {
        self.row().batch
    }

    /// How much each operation does where a plan can say that, and nobody does: bytes
    /// of [`Self::NullIo`], steps of work of [`Self::Items`].
    #[must_use]
    pub fn default_work(self) -> Option<u32> {
        match self {
            Self::NullIo => Some(40),
            Self::Items => Some(2000),
            _ => None,
        }
    }

    /// Samples where nobody says how many.
    #[must_use]
    pub fn default_n(self) -> u32 {
        self.row().n
    }

    /// Samples that are thrown away before `n`, where nobody says how many.
    #[must_use]
    pub fn default_warmup(self, n: u32) -> u32 {
        match self {
            // There are few pages of this size, and none is touched twice.
            Self::PageFill1g => 0,
            _ => (n / 10).clamp(2, MAX_N),
        }
    }

    /// vCPUs that it needs.
    #[must_use]
    pub fn vcpus(self) -> u32 {
        self.row().vcpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_are_one_s_own() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.operation as usize, index);
            assert_eq!(Operation::from_name(row.name), Some(row.operation));
            assert!(row.n >= 1 && row.n <= MAX_N && row.batch >= 1, "{}", row.name);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(row.name.chars().all(plain), "{}", row.name);
        }
    }
}
