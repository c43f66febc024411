//! What an emulated VM of one vCPU needs for its virtio rings.
//!
//! A guest that has put a request into a ring stores the new index, executes a barrier
//! and reads whether the device wants to be told (Linux `virtqueue_kick_prepare_split()`);
//! the device does the same from the other side. QEMU's TCG leaves barriers and locked
//! instructions without any effect on the host's memory where the machine has room for
//! one vCPU (`CF_PARALLEL` is not set then), though its own threads read the rings. The
//! processor may then read first and store later, both sides take the other for awake,
//! and the ring stands still for good: with `VIRTIO_F_RING_EVENT_IDX` no later request
//! tells the device either.
//!
//! Source: QEMU `accel/tcg/tcg-accel-ops-mttcg.c` (`mttcg_start_vcpu_thread()`),
//! `tcg/tcg-op.c` (`tcg_gen_mb()`, `GEN_ATOMIC_HELPER`). Since 8.1 (c914d46d0a64, "tcg: Do
//! not elide memory barriers for !CF_PARALLEL in system mode") barriers that are
//! instructions of their own are kept; Linux's `smp_mb()` on x86 is a locked addition,
//! which 10.0 still makes an ordinary one.

use crate::{Accel, VmSettings, VmSpec};

impl VmSpec {
    /// The VM with room for a second vCPU, which is never plugged in; none if it is not
    /// emulated, or has the room. The guest finds one vCPU, and one more that is possible.
    #[must_use]
    pub fn with_ordered_rings(&self) -> Option<Self> {
        if self.accel != Accel::Tcg || self.max_vcpus() != 1 || self.machine_type() == "isapc" {
            return None;
        }
        let mut settings = VmSettings::from(self.clone());
        settings.present_vcpus = Some(1);
        // A socket of its own changes nothing that CPUID says of the first.
        settings.topology.sockets = 2;
        if let Some(node) = settings.numa.first_mut() {
            node.vcpus.insert(1);
        }
        // What holds together before does so with these.
        Self::new(settings).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::qemu::{Capabilities, emit_plain};
    use crate::tests::{direct, patch, with};

    /// What is said of vCPUs and guest nodes, none if nothing is added.
    fn smp(text: &str) -> Option<String> {
        let spec = patch(text).resolve(&with(direct())).unwrap().with_ordered_rings()?;
        assert_eq!(spec.vcpus(), 1, "{text}");
        assert!(spec.with_ordered_rings().is_none(), "{text}");
        let args = emit_plain(&spec, &Capabilities::current()).args;
        let said = |pair: &[String]| ["-smp", "-numa"].contains(&pair[0].as_str());
        let values = args.windows(2).filter(|pair| said(pair)).map(|pair| pair[1].clone());
        Some(values.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn one_emulated_vcpu_gets_room_for_another() {
        let room = "1,maxcpus=2,sockets=2,dies=1,cores=1,threads=1";
        assert_eq!(smp("accel = 'tcg'").as_deref(), Some(room));
        let node = smp("accel = 'tcg'\nnuma = [ {} ]").unwrap();
        assert!(node.contains("cpus=0-1"), "{node}");
        for enough in
            ["accel = 'kvm'", "accel = 'tcg'\nvcpus = 2", "accel = 'tcg'\nvcpus = 1\nmax_vcpus = 2"]
        {
            assert_eq!(smp(enough), None, "{enough}");
        }
        // It has room for no more.
        assert_eq!(smp("accel = 'tcg'\nmachine = 'isapc'"), None);
    }
}
