//! Tests of the whole: the repository's rules, the command line, real VMs.

mod audit;
mod budgets;
mod calibrate;
mod capture;
mod circles;
#[cfg(feature = "kubernetes")]
mod cluster_failures;
#[cfg(feature = "kubernetes")]
mod cluster_kinds;
#[cfg(feature = "kubernetes")]
mod cluster_nodes;
#[cfg(feature = "kubernetes")]
mod clusters;
mod command_line;
mod compare;
mod console_blocks;
mod cpu_pm;
mod damaged;
mod deterministic;
mod disks;
mod elsewhere;
mod export;
mod facts;
mod failures;
#[cfg(feature = "kubernetes")]
mod fake_api;
#[cfg(feature = "kubernetes")]
mod fake_pods;
mod faults;
mod formats;
mod images;
mod import;
mod interrupted;
#[cfg(feature = "kubernetes")]
mod kubevirt_trials;
mod kvm_counts;
mod lab;
mod libvirt_trials;
mod lint;
#[cfg(feature = "kubernetes")]
mod local_clusters;
mod measured_vms;
mod metrics;
#[cfg(feature = "kubernetes")]
mod nodes;
mod on_host;
mod profile;
mod quickstart;
mod replicas;
mod repository;
mod repository_types;
mod roles;
mod rollout;
mod running;
mod schemas;
mod settings;
mod signals;
mod simulated;
#[path = "../../../remote/tests/it/sshd.rs"]
mod sshd;
mod switch;
mod switch_limits;
mod switch_studies;
mod switch_tiny;
mod switch_vms;
mod thin_studies;
mod trend;
mod trials;
#[cfg(feature = "sqlite")]
mod watch;
mod workloads;
