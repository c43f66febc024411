//! `vmlab k8s`: what vmlab needs in a Kubernetes cluster.

use std::process::ExitCode;

use ::cluster::{READS, RoleSubject, role, role_of_jobs, role_of_runs};
use clap::{Args, Subcommand};

use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab k8s rbac | kubectl apply -f -
  vmlab k8s rbac --user alice@example.com | kubectl apply -f -
  vmlab k8s rbac --run --service-account lab/vmlab | kubectl apply -f -
                                      for `vmlab run --on kubevirt`
  vmlab k8s rbac --jobs --service-account lab/vmlab | kubectl apply -f -
                                      for `vmlab run --on k8s`
  vmlab k8s rbac --service-account lab/vmlab --without-kubelets";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct K8sArgs {
    #[command(subcommand)]
    command: K8sCommand,
}

#[derive(Debug, Subcommand)]
enum K8sCommand {
    /// Print the ClusterRole that `lint --cluster` and `plan --cluster` need, or with
    /// `--run` the one of `vmlab run --on kubevirt`, with `--jobs` of `vmlab run --on k8s`.
    #[command(after_help = EXAMPLES)]
    Rbac(RbacArgs),
}

#[derive(Debug, Args)]
struct RbacArgs {
    /// Name of the role.
    #[arg(long, value_name = "NAME", default_value = "vmlab-reader", value_parser = dns_name)]
    name: String,
    /// Bind it to this user, too.
    #[arg(long, value_name = "USER", conflicts_with = "service_account")]
    user: Option<String>,
    /// Bind it to this service account, too.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service_account)]
    service_account: Option<RoleSubject>,
    /// For `vmlab run --on kubevirt`: it creates instances, and reaches their guests.
    #[arg(long)]
    run: bool,
    /// For `vmlab run --on k8s`: it creates Jobs, and reaches their pods.
    #[arg(long, conflicts_with = "run")]
    jobs: bool,
    /// Leave out nodes/proxy: the kubelets' settings are not read then.
    #[arg(long)]
    without_kubelets: bool,
}

/// Names of objects: RFC 1123, as Kubernetes takes them.
fn dns_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends =
        [text.bytes().next(), text.bytes().last()].into_iter().all(|end| end.is_some_and(fits));
    let inside = text.bytes().all(|byte| fits(byte) || byte == b'-' || byte == b'.');
    match ends && inside && text.len() <= 253 {
        true => Ok(text.to_owned()),
        false => Err("a name has small letters, digits, '-' and '.' and begins and ends with \
                      a letter or digit"
            .to_owned()),
    }
}

fn service_account(text: &str) -> Result<RoleSubject, String> {
    let (namespace, name) = text.split_once('/').ok_or("write NAMESPACE/NAME")?;
    let (namespace, name) = (dns_name(namespace)?, dns_name(name)?);
    Ok(RoleSubject::ServiceAccount { namespace, name })
}

/// # Errors
/// Output that can't be written.
pub(crate) fn run(args: &K8sArgs) -> anyhow::Result<ExitCode> {
    let K8sCommand::Rbac(RbacArgs { name, user, service_account, run, jobs, without_kubelets }) =
        &args.command;
    let user = user.clone().map(RoleSubject::User);
    let subject = service_account.as_ref().or(user.as_ref());
    if *run {
        terminal::print(&role_of_runs(name, !without_kubelets, subject))?;
        return Ok(ExitCode::SUCCESS);
    }
    if *jobs {
        terminal::print(&role_of_jobs(name, subject))?;
        return Ok(ExitCode::SUCCESS);
    }
    terminal::print(&role(name, !without_kubelets, subject))?;
    if terminal::is_terminal() {
        let count = READS.len() - usize::from(*without_kubelets);
        terminal::note(&format!(
            "vmlab: {count} rights, all of them to read; `kubectl apply -f -` makes the role"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
