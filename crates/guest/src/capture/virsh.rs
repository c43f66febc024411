//! The QEMU of a libvirt domain, asked through libvirt: its monitor is libvirt's own.
//!
//! Source: `virsh(1)`, `qemu-monitor-command --pass-fds`; libvirt
//! `virDomainQemuMonitorCommandWithFiles`.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::libvirt::{Virsh, VirshError};
use crate::vm::{MonitorError, Qmp};
use crate::{Cancel, libvirt};

/// How long a core may take: a hundred MB a second of 8 TiB. Whoever reads it can end it
/// before.
const CORE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Questions to a domain's QEMU.
#[derive(Debug)]
pub struct DomainMonitor {
    virsh: Virsh,
    domain: String,
    /// virsh, which waits for a core.
    core: Option<JoinHandle<Result<String, VirshError>>>,
}

impl DomainMonitor {
    /// The QEMU of the domain `domain` (name, UUID or number).
    ///
    /// # Errors
    /// [`VirshError`]: no virsh, no libvirt, no such domain.
    pub fn find(uri: &str, domain: &str, cancel: &Cancel) -> Result<Self, VirshError> {
        let virsh = Virsh::new(uri);
        virsh.ask(&["domuuid", domain], cancel)?;
        Ok(Self { virsh, domain: domain.to_owned(), core: None })
    }

    fn run(
        &self,
        words: &[&str],
        command: &str,
        arguments: Value,
        stdin: Stdio,
    ) -> Result<Value, MonitorError> {
        let mut request = json!({ "execute": command });
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        let request = request.to_string();
        let words = [&["qemu-monitor-command"], words, &[&self.domain, &request]].concat();
        // What was begun is to be put in order again, Ctrl-C or not.
        let answer = self.virsh.ask_with(&words, stdin, libvirt::LIMIT, &Cancel::new())?;
        let refused =
            |detail: String| MonitorError::Refused { command: command.to_owned(), detail };
        let answer: Value = serde_json::from_str(&answer)
            .map_err(|error| refused(format!("virsh answers something else: {error}")))?;
        match answer["error"]["desc"].as_str() {
            Some(said) => Err(refused(said.to_owned())),
            None => Ok(answer["return"].clone()),
        }
    }
}

impl Qmp for DomainMonitor {
    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        self.run(&[], command, arguments, Stdio::null())
    }

    fn give(&mut self, name: &str, fd: OwnedFd) -> Result<(), MonitorError> {
        // virsh's standard input is a descriptor that it has for certain.
        let words = ["--pass-fds", "0"];
        self.run(&words, "getfd", json!({ "fdname": name }), Stdio::from(fd)).map(drop)
    }

    /// By libvirt's own command: libvirtd 9.0 dies of QEMU's event that a core is written
    /// which it has not asked for.
    fn begin_core(&mut self, to: OwnedFd) -> Result<(), MonitorError> {
        let (virsh, domain) = (self.virsh.clone(), self.domain.clone());
        self.core = Some(std::thread::spawn(move || {
            // libvirtd opens it anew, as it opens any file.
            let path = format!("/proc/{}/fd/{}", std::process::id(), to.as_raw_fd());
            let words = ["dump", &domain, &path, "--memory-only", "--format", "elf"];
            let said = virsh.ask_within(&words, CORE_LIMIT, &Cancel::new());
            // Who reads has the end of it once this is closed, too.
            drop(to);
            said
        }));
        Ok(())
    }

    fn core_ended(&mut self) -> Result<Option<Result<(), String>>, MonitorError> {
        match self.core.take() {
            Some(core) if !core.is_finished() => {
                self.core = Some(core);
                Ok(None)
            }
            Some(core) => match core.join().expect("asking virsh does not panic") {
                Ok(_) => Ok(Some(Ok(()))),
                Err(VirshError::Refused { said, .. }) => Ok(Some(Err(said))),
                Err(error) => Err(error.into()),
            },
            None => Ok(Some(Err("libvirt was not asked for it".to_owned()))),
        }
    }

    fn stood_still_us(&mut self) -> Option<u64> {
        None
    }
}
