//! Configurations as they should be, for the examples of several families.

/// Where Kubernetes tells how pCPUs are given out.
pub(super) const POLICIES: &str =
    "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/";

/// A domain whose guest cores are host cores.
pub(super) const VTUNE: &str = "\
<vcpu>4</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='17'/>
  <vcpupin vcpu='2' cpuset='2'/>
  <vcpupin vcpu='3' cpuset='18'/>
</cputune>
<cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>
";

/// A VMI with pCPUs of its own and no room for more.
pub(super) const TUNED: &str = "\
domain:
  cpu:
    sockets: 1
    maxSockets: 1
    cores: 2
    threads: 2
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
";
