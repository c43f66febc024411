//! Tests of the whole: the repository's rules, the command line, real VMs.

mod audit;
mod calibrate;
mod command_line;
mod compare;
mod console_blocks;
mod cpu_pm;
mod damaged;
mod deterministic;
mod elsewhere;
mod export;
mod facts;
mod failures;
mod faults;
mod formats;
mod images;
mod import;
mod interrupted;
mod kvm_counts;
mod lab;
mod lint;
mod metrics;
mod on_host;
mod quickstart;
mod replicas;
mod repository;
mod roles;
mod running;
mod settings;
mod simulated;
#[path = "../../../remote/tests/it/sshd.rs"]
mod sshd;
mod switch;
mod switch_vms;
mod trend;
mod trials;
mod workloads;
