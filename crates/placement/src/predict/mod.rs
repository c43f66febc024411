//! Which pCPUs the kubelet and KubeVirt choose.
