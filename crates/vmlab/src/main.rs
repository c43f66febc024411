//! `vmlab`: which configuration of this VM is fastest for this workload on
//! this host, by how much, how sure is that, and why.
//!
//! This crate is the only one that prints. Each subcommand is one file: its
//! arguments, and a `run` that returns the exit code (`exit.rs`).

mod across;
mod audit;
mod calibrate;
mod capture;
mod check;
mod clean;
#[cfg(feature = "kubernetes")]
mod cluster;
mod compare;
mod completions;
mod convert;
mod decide;
mod endpoint;
mod exit;
mod export;
mod facts;
mod far_side;
#[cfg(test)]
mod glossary;
mod host;
mod host_file;
mod image;
mod import;
mod input;
mod interrupt;
#[cfg(feature = "kubernetes")]
mod k8s;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "kubernetes")]
mod kubevirt;
mod lint;
mod lint_rules;
mod manual;
mod metrics;
#[cfg(feature = "kubernetes")]
mod nodes;
mod offers;
mod on;
mod plan;
mod plan_text;
mod predict;
mod progress;
mod replica;
mod report;
mod results_folder;
mod rollout;
mod run;
mod schema;
mod settings;
mod sim;
mod state;
mod study_file;
mod switch;
mod terminal;
mod trend;
mod trials;
mod variants;
mod watch;
mod watcher;
mod whole_file;
mod workloads;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  vmlab host                          what machine is this?
  vmlab plan --vcpus 4 --memory 8GiB  where should this VM go?
  vmlab check studies/quickstart.toml what would be run, in which order, how long?
  vmlab lint vm.xml                   what is wrong with this configuration?
  vmlab run studies/quickstart.toml   boot the VMs, measure, judge
  vmlab run --resume DIR              go on with a study that was interrupted
  vmlab report DIR                    the verdicts again, from the results folder
  vmlab compare old.txt new.txt       what differs, by how much, how sure is that?";

/// A performance laboratory for KVM virtual machines.
#[derive(Debug, Parser)]
#[command(name = "vmlab", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: terminal::ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show this machine: topology, memory, KVM, QEMU.
    Host(host::HostArgs),
    /// Show the VMs that run here: threads, pins, memory, what is wrong.
    Audit(audit::AuditArgs),
    /// Plan where VMs go: pins, guest topology, memory, huge pages.
    Plan(plan::PlanArgs),
    /// Check a study and show what it would run.
    Check(check::CheckArgs),
    /// Predict which pCPUs Kubernetes and KubeVirt give a guest.
    Predict(predict::PredictArgs),
    /// Find what is wrong with configurations of VMs.
    Lint(lint::LintArgs),
    /// Say a VM in another format: QEMU, libvirt, KubeVirt, JSON.
    Convert(convert::ConvertArgs),
    /// Say a VM of a few words in full, for QEMU, libvirt or KubeVirt.
    Emit(convert::EmitArgs),
    /// Run a study in real VMs.
    Run(Box<run::RunArgs>),
    /// Show the results of a study again.
    Report(report::ReportArgs),
    /// Compare numbers of any origin: studies, benchmarks' output, CSV, JSON.
    Compare(compare::CompareArgs),
    /// Measure what exits, interrupts and wake-ups cost here.
    Calibrate(calibrate::CalibrateArgs),
    /// Plan another harness's trials and judge them, over JSON lines.
    Decide(decide::DecideArgs),
    /// Follow a study over time: since when is it faster or slower?
    Trend(trend::TrendArgs),
    /// Show what was found of the VMs: is what was asked for in force, by host?
    Facts(facts::FactsArgs),
    /// Count all VMs of this host every few minutes, into one small file.
    Watch(watch::WatchArgs),
    /// Judge a change that some hosts got: widen, wait or stop.
    Rollout(rollout::RolloutArgs),
    /// Give a study's samples to other tools: benchfmt, CSV, JSON lines, Parquet.
    Export(export::ExportArgs),
    /// Build, list or remove guest images.
    Image(image::ImageArgs),
    /// Read the logs of benchmark tools that vmlab did not run.
    Import(import::ImportArgs),
    /// List the benchmarks, or explain one.
    Workloads(workloads::WorkloadsArgs),
    /// List the configurations that a study names in one word.
    Variants(variants::VariantsArgs),
    /// Show host settings, explain one, run a command under others.
    Settings(settings::SettingsArgs),
    /// Start and use a whole emulated KVM host.
    Replica(replica::ReplicaArgs),
    /// Simulate VMs on a host that nobody here has.
    Sim(sim::SimArgs),
    /// Start and use a Kubernetes cluster on this machine.
    #[cfg(feature = "kubernetes")]
    Cluster(cluster::ClusterArgs),
    /// Print what vmlab needs in a Kubernetes cluster.
    #[cfg(feature = "kubernetes")]
    K8s(k8s::K8sArgs),
    /// Write down what a running VM is at one moment: devices, memory.
    Capture(capture::CaptureArgs),
    /// Show, compare and edit the state of a VM in a file.
    State(state::StateArgs),
    /// Connect VMs through a vhost-user switch in user space.
    Switch(switch::SwitchArgs),
    /// End what dead runs left behind.
    Clean(clean::CleanArgs),
    /// The half of `run --on` that runs on the other machine.
    #[command(hide = true)]
    FarSide(far_side::FarSideArgs),
    /// Print a JSON Schema of something that vmlab reads or prints.
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
    /// Print the manual page of a command, or write those of all.
    Manual(manual::ManualArgs),
}

/// The command line, with its whole help.
fn command() -> clap::Command {
    exit::explained(Cli::command())
}

fn main() -> ExitCode {
    let parsed = Cli::from_arg_matches(&command().get_matches());
    let cli = parsed.unwrap_or_else(|error| error.format(&mut command()).exit());
    cli.color.apply();
    let result = match cli.command {
        Command::Host(args) => host::run(args),
        Command::Audit(args) => audit::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Emit(args) => convert::run_emit(&args),
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Trend(args) => trend::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Decide(args) => decide::run(&args),
        Command::Facts(args) => facts::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Rollout(args) => rollout::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Workloads(args) => workloads::run(&args),
        Command::Variants(args) => variants::run(&args),
        Command::Settings(args) => settings::run(&args),
        Command::Replica(args) => replica::run(&args),
        Command::Sim(args) => sim::run(&args),
        #[cfg(feature = "kubernetes")]
        Command::K8s(args) => k8s::run(&args),
        #[cfg(feature = "kubernetes")]
        Command::Cluster(args) => cluster::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::State(args) => state::run(&args),
        Command::Switch(args) => switch::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::FarSide(args) => far_side::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Manual(args) => manual::run(&args),
    };
    match result {
        Ok(code) => code,
        // Whoever read our output has seen enough (`vmlab workloads | head`).
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::print_error(&error);
            ExitCode::from(exit::ERROR)
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
