//! A VM as a domain: the real libvirtd starts and ends its QEMU.
//!
//! QEMU connects to vmlab's own sockets for the guest's agent, the port for ends and
//! the console, as one that vmlab starts itself; by that connection the kernel tells
//! which process it is. QEMU's monitor is libvirt's: a thread passes each question on,
//! through `virsh qemu-monitor-command`.
//!
//! Source: `virsh(1)`; libvirt `virDomainQemuMonitorCommand`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use serde_json::{Value, json};
use vmconfig::qemu::Channels;

use super::domain::{RunningDomain, failure};
use super::process::QemuProcess;
use super::{GuestFailure, OwnedVm, QMP_LIMIT, accept_all, listen_all, log, refused, remove_all};
use crate::Cancel;
use crate::libvirt::{Virsh, VirshError};

/// What is needed to start a VM as a domain.
#[derive(Debug, Clone)]
pub struct DomainLaunch {
    /// Which libvirt.
    pub virsh: Virsh,
    /// The domain's name, as `xml` says it.
    pub name: String,
    /// The domain, as `vmconfig::libvirt::emit_launched` says it for `channels`.
    pub xml: String,
    /// Where vmlab and QEMU meet, as in [`super::Launch`]; no file of theirs may be
    /// named otherwise, and the monitor's is not used.
    pub channels: Channels,
    /// As in [`super::Launch`].
    pub start_limit: Duration,
}

impl OwnedVm {
    /// Starts a domain and waits for QEMU's connections; the guest begins to boot.
    /// libvirt has set pins and scheduling by then.
    ///
    /// # Errors
    /// [`GuestFailure::Refused`] with what libvirt said and what to do about it, or
    /// [`GuestFailure::Cancelled`].
    pub fn start_domain(launch: &DomainLaunch, cancel: &Cancel) -> Result<Self, GuestFailure> {
        let DomainLaunch { virsh, name, xml, channels, start_limit } = launch;
        let paths = [&channels.agent_socket, &channels.done_socket, &channels.console_socket];
        let listeners = listen_all(paths)?;
        let log = log(channels)?;
        let file = channels.console_log.with_extension("xml");
        std::fs::write(&file, xml)
            .map_err(|error| refused(format!("cannot write {file:?}: {error}")))?;
        let domain = RunningDomain::create(virsh, name, &file, *start_limit);
        // libvirt has read it.
        drop(std::fs::remove_file(&file));
        let domain = domain?;
        cancel.check()?;
        // It is there, so QEMU has connected.
        let pid = peer_of(&listeners[2]);
        let (console, pid) = pid.map_err(|error| {
            refused(format!(
                "libvirt's QEMU can't be seen here ({error}): vmlab has to run in the process \
                 namespace of libvirtd"
            ))
        })?;
        let mut process = QemuProcess::of_domain(domain, pid)
            .map_err(|error| refused(format!("cannot follow libvirt's QEMU: {error}")))?;
        let [agent, done, _] = listeners;
        let sockets = accept_all(&[agent, done], &mut process, *start_limit, cancel);
        remove_all(paths);
        let [agent, done] = sockets?;
        let (qmp, theirs) =
            UnixStream::pair().map_err(|error| refused(format!("a socket: {error}")))?;
        let (to, of) = (virsh.clone(), name.clone());
        std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || drop(pass_on(&theirs, &to, &of)))
            .map_err(|error| refused(format!("cannot start a thread: {error}")))?;
        let started = Instant::now();
        virsh.ask(&["resume", name], cancel).map_err(failure)?;
        Self::over(process, [qmp, agent, done, console], log, started, *start_limit, cancel)
    }

    /// Whether libvirt started it.
    #[must_use]
    pub fn is_domain(&self) -> bool {
        self.process.domain().is_some()
    }

    /// What libvirt counted of its domain until now, in its own words and units; empty
    /// for a VM that is none.
    ///
    /// # Errors
    /// Only the failures of the VM itself.
    ///
    /// Source: `virsh(1)`, `domstats --raw`.
    pub fn domain_stats(&mut self, cancel: &Cancel) -> Result<BTreeMap<String, f64>, GuestFailure> {
        let Some(domain) = self.process.domain() else { return Ok(BTreeMap::new()) };
        match domain.ask(&["domstats", "--raw"], QMP_LIMIT, cancel) {
            Ok(said) => Ok(stats(&said)),
            Err(VirshError::Cancelled(cancelled)) => Err(cancelled.into()),
            // The next look at the VM tells what is wrong, if it is.
            Err(_) => Ok(BTreeMap::new()),
        }
    }
}

/// The connection that waits at a listener, and the process behind it.
fn peer_of(listener: &UnixListener) -> io::Result<(UnixStream, Pid)> {
    let (socket, _) = listener.accept()?;
    let peer = socket_peercred(&socket)?;
    Ok((socket, peer.pid))
}

/// The numbers in lines `name=value`.
fn stats(said: &str) -> BTreeMap<String, f64> {
    let number = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    said.lines().filter_map(number).collect()
}

/// Answers questions in QEMU's monitor protocol by libvirt's monitor, until nobody
/// asks any more.
fn pass_on(asked: &UnixStream, virsh: &Virsh, name: &str) -> io::Result<()> {
    let mut answer = asked.try_clone()?;
    for line in BufReader::new(asked).lines() {
        let Ok(Value::Object(mut question)) = serde_json::from_str(&line?) else { continue };
        let id = question.remove("id").unwrap_or_default();
        let mut said = match question["execute"].as_str() {
            // libvirt has done so.
            Some("qmp_capabilities") => json!({ "return": {} }),
            _ => {
                let text = Value::Object(question).to_string();
                let words = ["qemu-monitor-command", name, &text];
                match virsh.ask_within(&words, QMP_LIMIT, &Cancel::new()) {
                    Ok(said) => serde_json::from_str(&said).unwrap_or_else(|_| refusal(&said)),
                    Err(error) => refusal(&error.to_string()),
                }
            }
        };
        // In the place of libvirt's own.
        said["id"] = id;
        answer.write_all(format!("{said}\n").as_bytes())?;
    }
    Ok(())
}

fn refusal(why: &str) -> Value {
    json!({ "error": { "class": "GenericError", "desc": why } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libvirt_s_numbers_are_read() {
        // virsh 9.0, `domstats --raw`.
        let said = "Domain: 'vmlab-test'\n  state.state=1\n  cpu.time=260000000\n  \
            vcpu.0.delay=119372661\n  dirtyrate.calc_mode=page-sampling\n\n";
        let expected = [("state.state", 1.0), ("cpu.time", 260e6), ("vcpu.0.delay", 119_372_661.0)];
        assert_eq!(stats(said), expected.map(|(name, value)| (name.to_owned(), value)).into());
    }
}
