//! Tests of the whole: the repository's rules, the command line, real VMs.

mod repository;
