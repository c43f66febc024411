//! VMs that run elsewhere: what a lab needs of whoever has them run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use guest::{Cancel, ExecOutput, GuestCommand, GuestFailure};
use vmconfig::VmSpec;

/// Whoever has VMs run elsewhere: creates and deletes them.
pub trait VmHosting: fmt::Debug {
    /// Has the VM of `spec`, which boots `image` (as the study names it), begin to boot;
    /// `name` tells it apart from the run's others.
    ///
    /// # Errors
    /// Why it does not; nothing of it is left then.
    fn start(
        &self,
        spec: &VmSpec,
        image: &str,
        name: &str,
        cancel: &Cancel,
    ) -> Result<Box<dyn HostedVm>, GuestFailure>;

    /// What was seen of the VMs that have ended since this was asked last.
    fn seen(&self) -> Vec<SeenVm>;
}

/// A VM that runs elsewhere. It is ended when it is dropped.
pub trait HostedVm: fmt::Debug + Send {
    /// Waits until its agent answers; the time since it was asked for.
    ///
    /// # Errors
    /// Why it does not.
    fn wait_ready(&mut self, limit: Duration, cancel: &Cancel) -> Result<Duration, GuestFailure>;

    /// Runs a command in the guest to its end.
    ///
    /// # Errors
    /// As of a VM of this machine.
    fn exec(&mut self, command: &GuestCommand, cancel: &Cancel)
    -> Result<ExecOutput, GuestFailure>;

    /// Whether it still runs.
    ///
    /// # Errors
    /// [`GuestFailure`] if it has ended.
    fn check_alive(&mut self, cancel: &Cancel) -> Result<(), GuestFailure>;
}

/// What was seen of a VM elsewhere, until it was ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeenVm {
    /// What it was called in its trial.
    pub name: String,
    /// Where it ran and how it came to be there, by name.
    pub facts: BTreeMap<String, String>,
    /// The pCPUs that each vCPU could run on.
    pub vcpu_affinity: Vec<String>,
    /// QEMU's command line.
    pub qemu_args: Vec<String>,
    /// Texts that are kept whole, by name.
    pub texts: BTreeMap<String, Vec<u8>>,
    /// What is worth a word.
    pub warnings: Vec<String>,
    /// The end of its console.
    pub console: Vec<u8>,
}
