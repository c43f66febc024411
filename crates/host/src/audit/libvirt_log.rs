//! libvirt's log of a VM: when it was started, by which libvirt, QEMU and
//! kernel, with which arguments, and what QEMU said.
//!
//! A start that failed stands there too. What libvirt itself refuses, because it
//! can't be defined, does not.
//!
//! Source: libvirt `src/qemu/qemu_domain.c` (`qemuLogContextNew`,
//! `qemuDomainObjTaint`), `src/qemu/qemu_process.c` (`qemuLogOperation`).

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use record::FailureCause;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::argv;

/// Where libvirt keeps the logs of its system VMs.
const LOGS: &str = "/var/log/libvirt/qemu";
/// What is read of a log, from its end. virtlogd begins a new one at 2 MiB.
const MAX_BYTES: u64 = 4 << 20;
/// In front of the versions of a start.
const STARTS: &str = ": starting up ";

/// One start of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedStart {
    /// Version of libvirt: `9.0.0`.
    pub libvirt: String,
    /// Version of QEMU, as vmlab writes it: `7.2.22 (Debian 1:7.2+dfsg-7)`.
    pub qemu: String,
    /// The kernel's release; old versions of libvirt do not tell it.
    pub kernel: Option<String>,
    /// Whether `cpu-pm=on` was asked for.
    pub cpu_pm: bool,
    /// Whether it was to take over a guest: from another host, or from a file.
    #[serde(default)]
    pub incoming: bool,
    /// Whether QEMU ended before the VM ran.
    pub failed: bool,
    /// What QEMU and libvirt said, a line each.
    pub said: Vec<String>,
}

impl LoggedStart {
    /// QEMU's line that KVM refused cpu-pm.
    #[must_use]
    pub fn refused_by_kvm(&self) -> Option<&String> {
        self.line_of(FailureCause::CpuPmRefusedByKvm)
    }

    /// QEMU's line with which it refused to start because of cpu-pm.
    #[must_use]
    pub fn refused_by_qemu(&self) -> Option<&String> {
        self.line_of(FailureCause::CpuPmRefusedByQemu).filter(|_| self.failed && self.cpu_pm)
    }

    fn line_of(&self, cause: FailureCause) -> Option<&String> {
        self.said.iter().find(|line| FailureCause::said_by_qemu(line) == Some(cause))
    }
}

/// Whether a text is such a log.
#[must_use]
pub fn is_log(text: &str) -> bool {
    text.lines().any(|line| versions(line).is_some())
}

/// The starts in a log, the oldest first.
#[must_use]
pub fn starts(log: &str) -> Vec<LoggedStart> {
    let mut starts: Vec<LoggedStart> = Vec::new();
    let mut argv: Vec<String> = Vec::new();
    // The environment and the arguments, a line each, all but the last with \.
    let mut in_argv = false;
    for line in log.lines() {
        if let Some(start) = versions(line) {
            starts.push(start);
            (in_argv, argv) = (true, Vec::new());
            continue;
        }
        let Some(start) = starts.last_mut() else { continue };
        if in_argv {
            in_argv = line.ends_with('\\');
            // An option and its value share a line.
            let words = line.trim_end_matches('\\').split_ascii_whitespace();
            argv.extend(words.map(|word| word.trim_matches('\'').to_owned()));
            if !in_argv {
                let asked = argv::parse(&argv);
                (start.cpu_pm, start.incoming) = (asked.cpu_pm, asked.incoming);
            }
            continue;
        }
        if line.contains("shutting down, reason=failed") {
            start.failed = true;
        } else if !line.trim().is_empty() {
            start.said.push(without_time(line).to_owned());
        }
    }
    starts
}

/// The newest start of libvirt's VM `name`.
pub(super) fn last_start(name: &str) -> Option<LoggedStart> {
    let path = Path::new(LOGS).join(format!("{name}.log"));
    let text = (!name.contains('/')).then(|| read_end(&path))?.ok()?;
    starts(&text).pop()
}

fn read_end(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(MAX_BYTES)))?;
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads `...: starting up libvirt version: 9.0.0, package: ..., qemu version:
/// ..., kernel: ..., hostname: ...`.
fn versions(line: &str) -> Option<LoggedStart> {
    let (_, said) = line.split_once(STARTS)?;
    let of = |name: &str| {
        let (_, rest) = said.split_once(name)?;
        // What follows begins with a name and a colon.
        let end = [", package: ", ", qemu version: ", ", kernel: ", ", hostname: "];
        let end = end.iter().filter_map(|next| rest.find(next)).min();
        Some(rest[..end.unwrap_or(rest.len())].trim().to_owned())
    };
    Some(LoggedStart {
        libvirt: of("libvirt version: ")?,
        qemu: qemu_version(&of("qemu version: ")?),
        kernel: of("kernel: "),
        ..LoggedStart::default()
    })
}

/// libvirt puts the package behind the version without a space:
/// `7.2.22Debian 1:7.2+dfsg-7`, `1.5.3 (qemu-kvm-1.5.3)`.
fn qemu_version(text: &str) -> String {
    let number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, package) = text.split_at(number);
    let package = package.trim().trim_start_matches('(').trim_end_matches(')');
    if package.is_empty() { number.to_owned() } else { format!("{number} ({package})") }
}

/// A line without the time that libvirt or QEMU put in front.
fn without_time(line: &str) -> &str {
    let is_time = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.contains([':', '-'])
            && word.chars().all(|c| c.is_ascii_digit() || "-:.+TZ".contains(c))
    };
    let mut rest = line;
    while let Some((word, behind)) = rest.split_once(' ')
        && is_time(word)
    {
        rest = behind;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libvirt's words for a start, as version 4.5 writes them.
    const OLD: &str = "2021-08-31 02:39:53.100+0000: starting up libvirt version: 4.5.0, \
        package: 36.el7 (CentOS), qemu version: 2.12.0qemu-kvm-ev-2.12.0-44.el7, \
        kernel: 3.10.0-327.el7.x86_64, hostname: node1\n\
        LC_ALL=C \\\n/usr/libexec/qemu-kvm \\\n-name guest=db,debug-threads=on \\\n\
        -overcommit cpu-pm=on \\\n-msg timestamp=on\n";

    #[test]
    fn a_real_log() {
        let log = include_str!("../../testdata/libvirt-9.0.0/stopped.log");
        assert!(is_log(log));
        let found = starts(log);
        let [start] = &found[..] else { panic!("{found:?}") };
        assert_eq!(start.libvirt, "9.0.0");
        assert_eq!(start.qemu, "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)");
        assert_eq!(start.kernel.as_deref(), Some("6.1.0-50-cloud-amd64"));
        assert!(start.cpu_pm && !start.failed);
        assert_eq!(start.said[0], "Domain id=2 is tainted: high-privileges");
        assert_eq!(start.said[3], "KVM internal error. Suberror: 1");
    }

    #[test]
    fn refusals_are_told_apart() {
        let check = |said: &str| {
            let mut found = starts(&format!("{OLD}{said}"));
            let start = found.pop().expect("a start");
            assert_eq!((found.len(), start.cpu_pm), (0, true), "{start:?}");
            (start.refused_by_kvm().cloned(), start.refused_by_qemu().cloned(), start.failed)
        };
        assert_eq!(check(""), (None, None, false));
        let line = "qemu-kvm: kvm: guest stopping CPU not supported: Invalid argument";
        let said = format!("2021-08-31T02:39:54.168673Z {line}\n");
        assert_eq!(check(&said), (Some(line.to_owned()), None, false));
        let line = "qemu-kvm: -overcommit: invalid option";
        let said = format!("{line}\n2021-08-31 02:39:54.200+0000: shutting down, reason=failed\n");
        assert_eq!(check(&said), (None, Some(line.to_owned()), true));
        let said =
            "qemu-kvm: no memory\n2021-08-31 02:39:54.2+0000: shutting down, reason=failed\n";
        assert_eq!(check(said), (None, None, true));
    }

    #[test]
    fn a_guest_that_comes_from_elsewhere_is_told() {
        let log = OLD.replace("-msg timestamp=on", "-incoming defer \\\n-msg timestamp=on");
        let found: Vec<bool> = [OLD, &log].iter().map(|log| starts(log)[0].incoming).collect();
        assert_eq!(found, [false, true]);
    }

    #[test]
    fn versions_and_times() {
        let log = format!("odd\n{OLD}x\n{}", OLD.replace("-overcommit cpu-pm=on", "-m 64"));
        let found = starts(&log);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].qemu, "2.12.0 (qemu-kvm-ev-2.12.0-44.el7)");
        assert_eq!((found[0].cpu_pm, found[1].cpu_pm), (true, false));
        assert_eq!(found[0].said, ["x"]);
        let start = versions("x: starting up libvirt version: 1.2.17, qemu version: 1.5.3");
        assert_eq!(start.map(|start| (start.qemu, start.kernel)), Some(("1.5.3".to_owned(), None)));
        assert!(!is_log("starting up\n: starting up libvirt\n") && starts("").is_empty());
        assert_eq!(without_time("2021-08-31 02:39:54.1+0000: 10 GiB"), "10 GiB");
    }
}
