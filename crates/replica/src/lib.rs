//! A whole KVM host, emulated: its image, its topology, its boot, its end.
//!
//! QEMU's own emulator runs a Linux host in which KVM is real: x86-64 with SVM,
//! or arm64 with EL2. Counts and mechanisms in it are those of a host; times are
//! emulated time. vmlab's static binary inside does the experiments, reached
//! over ssh (`remote`).
