//! What one look at this host counts: the host, and every VM that runs on it.

use std::time::{SystemTime, UNIX_EPOCH};

use host::audit::thread::ThreadRole;
use host::audit::{self, AuditScope, RunningVm};
use host::counters::{self, VmThreads, kvm};
use host::owner::{Owner, OwnerError};
use record::{CounterSet, Environment};
use rustix::time::{ClockId, clock_gettime};

/// When something was read, by the wall's clock and by one that is never set.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadingTime {
    /// Seconds since 1970 by the clock that people set.
    pub unix_s: i64,
    /// Which boot of the host this is: `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Time since that boot, suspended time too, ms.
    pub since_boot_ms: i64,
}

/// Whose counters they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CounterSubject {
    /// QEMU's process id; 0 for the host itself.
    pub pid: u32,
    /// Start of the process, in clock ticks since boot: with boot and pid, which VM this is.
    pub starttime_ticks: u64,
    /// The VM's name, or its pid's; the host's name for the host.
    pub name: String,
    /// Its vCPUs; the host's pCPUs.
    pub vcpus: u32,
    /// What its time is worth.
    pub environment: Environment,
}

/// One look.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// When.
    pub at: ReadingTime,
    /// The host first, then its VMs by pid. What could not be read is absent.
    pub counted: Vec<(CounterSubject, CounterSet)>,
    /// VMs that may not be read.
    pub problems: Vec<String>,
}

/// What does not change between two looks.
#[derive(Debug, Clone)]
pub struct ThisHost {
    /// Its name.
    pub name: String,
    /// Its pCPUs that are online.
    pub pcpus: u32,
    /// What the time of VMs under KVM is worth here.
    pub kvm: Environment,
    /// What the host's own time is worth.
    pub own: Environment,
}

impl ReadingTime {
    /// Now.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn now() -> Result<Self, OwnerError> {
        let since_boot = clock_gettime(ClockId::Boottime);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            unix_s: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            boot_id: Owner::current("watch")?.boot_id,
            since_boot_ms: since_boot.tv_sec * 1000 + since_boot.tv_nsec / 1_000_000,
        })
    }
}

impl ThisHost {
    /// Reads the counters of the host and of every VM that this user may see.
    ///
    /// Costs what [`audit::running`] does for threads alone, [`counters::read_vm`] a VM, and
    /// KVM's folder in debugfs where it may be read (root). Guests are not asked, nor is
    /// QEMU: its monitor belongs to who runs the VM.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn read(&self) -> Result<Reading, OwnerError> {
        let look = AuditScope { threads_only: true, ..AuditScope::default() };
        let (vms, problems) = audit::running(&look);
        let at = ReadingTime::now()?;
        let host = CounterSubject {
            pid: 0,
            starttime_ticks: 0,
            name: self.name.clone(),
            vcpus: self.pcpus,
            environment: self.own,
        };
        let mut counted = vec![(host, counters::read_host())];
        for vm in &vms {
            counted.push((self.counted(vm), counters_of(vm)));
        }
        Ok(Reading { at, counted, problems })
    }

    fn counted(&self, vm: &RunningVm) -> CounterSubject {
        let threads = vm.threads.iter().filter(|thread| thread.role.is_vcpu()).count();
        let is_kvm = vm.asked.accel.as_deref() == Some("kvm");
        CounterSubject {
            pid: vm.pid,
            starttime_ticks: vm.starttime_ticks,
            name: vm.label(),
            vcpus: vm.asked.vcpus.unwrap_or(0).max(threads as u32).max(1),
            environment: if is_kvm { self.kvm } else { Environment::Tcg },
        }
    }
}

fn counters_of(vm: &RunningVm) -> CounterSet {
    let tids = |is_it: fn(&ThreadRole) -> bool| {
        vm.threads.iter().filter(|thread| is_it(&thread.role)).map(|thread| thread.tid).collect()
    };
    let threads = VmThreads {
        pid: vm.pid,
        vcpu_tids: tids(ThreadRole::is_vcpu),
        vhost_tids: tids(|role| *role == ThreadRole::Vhost),
    };
    let mut all = counters::read_vm(&threads);
    all.merge(kvm::counters(&kvm::read_debugfs(vm.pid)));
    all
}
