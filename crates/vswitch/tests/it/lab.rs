//! A switch with frontends, in a folder of its own.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use vswitch::frontend::{Frontend, FrontendOptions, Traffic, TrafficPlan};
use vswitch::{ControlReply, PortConfig, PortStatus, Question, Switch, SwitchConfig, SwitchStatus};

/// How long a test waits for what has to come.
pub(crate) const PATIENCE: Duration = suite::PATIENCE;
/// How long frames may stay away on a machine that has a lot else to do.
pub(crate) const GRACE: Duration = Duration::from_secs(120);

/// A pCPU for each of so many polling threads, one for several where there are no more: where
/// they run does not matter to what they do.
pub(crate) fn pcpus(threads: usize) -> Vec<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let usable: Vec<u32> = (0..1024).filter(|&pcpu| allowed.is_set(pcpu as usize)).collect();
    usable.into_iter().cycle().take(threads).collect()
}

pub(crate) struct Lab {
    pub(crate) switch: Switch,
    pub(crate) folder: TempDir,
}

impl Lab {
    /// A switch with ports called p0, p1, ..., with these settings each.
    pub(crate) fn new(settings: &[&str]) -> Self {
        Self::with(settings, |_| {})
    }

    pub(crate) fn with(settings: &[&str], change: impl FnOnce(&mut SwitchConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = settings.iter().enumerate().map(|(number, setting)| {
            let path = folder.path().join(format!("p{number}"));
            PortConfig::parse(&format!("{}{setting}", path.display())).unwrap()
        });
        let mut config = SwitchConfig::new(ports.collect());
        // The tests' own threads live in this process, too.
        config.sandbox = false;
        change(&mut config);
        let switch = Switch::start(&config).unwrap();
        Self { switch, folder }
    }

    pub(crate) fn path(&self, port: usize) -> PathBuf {
        self.folder.path().join(format!("p{port}"))
    }

    pub(crate) fn connect(&self, port: usize, options: FrontendOptions) -> Frontend {
        Frontend::connect(&self.path(port), options).unwrap()
    }

    /// Frontends at the first `count` ports, that know of each other.
    pub(crate) fn traffic(
        &self,
        count: usize,
        options: FrontendOptions,
        plan: TrafficPlan,
    ) -> Traffic {
        let ports = (0..count).map(|port| self.connect(port, options)).collect();
        let mut traffic = Traffic::new(ports, plan);
        traffic.greet(PATIENCE).unwrap();
        traffic
    }

    pub(crate) fn status(&self) -> SwitchStatus {
        match self.switch.ask(Question::Status) {
            ControlReply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn port(&self, port: usize) -> PortStatus {
        self.status().ports.remove(port)
    }
}
