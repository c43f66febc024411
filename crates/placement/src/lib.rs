//! Where VMs go: pins, guest topology and memory that fit a host, and what
//! Kubernetes and KubeVirt would choose by themselves.
//!
//! Pure. What a host looks like is `topology`'s, what a VM is `vmconfig`'s.

pub mod plan;
pub mod predict;
