//! The switch's file: the same words as on the command line, as TOML.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use schemars::JsonSchema;
use serde::Deserialize;
use topology::PcpuSet;
use topology::bounded;
use vswitch::{MirrorConfig, PortConfig, SwitchConfig};

use crate::{endpoint, input};

/// Version of the file's format.
const VERSION: u32 = 1;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchFile {
    version: u32,
    /// pCPUs of the polling threads, `2-3`. Before: `cpus`.
    #[serde(alias = "cpus")]
    pcpus: Option<String>,
    control: Option<PathBuf>,
    age_s: Option<u32>,
    sandbox: Option<bool>,
    /// Where OpenMetrics are asked for, as `--metrics` says it.
    metrics: Option<String>,
    #[serde(default)]
    port: Vec<PortSection>,
    #[serde(default)]
    mirror: Vec<MirrorSection>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PortSection {
    /// Of a VM's port: its socket.
    socket: Option<String>,
    /// Of a port to the host's network: the interface.
    tap: Option<String>,
    bridge: Option<String>,
    queues: Option<u32>,
    vlan: Option<u32>,
    trunk: Option<Vec<u32>>,
    server: Option<bool>,
    isolated: Option<bool>,
    uplink: Option<bool>,
    mac: Option<String>,
    rate: Option<String>,
    mtu: Option<u32>,
    name: Option<String>,
}

/// Frames of ports that are written down.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MirrorSection {
    file: String,
    /// Names of ports; all if not given.
    ports: Option<Vec<String>>,
    /// Bytes of each frame, as in `128` or `64KiB`.
    snap: Option<String>,
    /// Bytes of the file, as in `1GiB`.
    limit: Option<String>,
}

impl MirrorSection {
    /// As `--mirror` says it: one reader judges both.
    fn text(&self) -> String {
        let parts = [
            self.ports.as_ref().map(|ports| format!(",ports={}", ports.join("+"))),
            self.snap.as_ref().map(|snap| format!(",snap={snap}")),
            self.limit.as_ref().map(|limit| format!(",limit={limit}")),
        ];
        self.file.clone() + &parts.into_iter().flatten().collect::<String>()
    }
}

impl PortSection {
    /// As `--port` says it: one reader judges both.
    fn text(&self) -> anyhow::Result<String> {
        let switch = |value: bool| if value { "on" } else { "off" };
        let mut text = match (&self.socket, &self.tap) {
            (Some(socket), None) => socket.clone(),
            (None, Some(tap)) => format!("tap:{tap}"),
            _ => bail!("a [[port]] has a socket (of a VM) or a tap (to the host), one of both"),
        };
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                text += &format!(",{key}={value}");
            }
        };
        add("queues", self.queues.map(|queues| queues.to_string()));
        add("vlan", self.vlan.map(|vlan| vlan.to_string()));
        let trunk = self
            .trunk
            .as_ref()
            .map(|vlans| vlans.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"));
        add("trunk", trunk);
        add("server", self.server.map(|value| switch(value).to_owned()));
        add("isolated", self.isolated.map(|value| switch(value).to_owned()));
        add("uplink", self.uplink.map(|value| switch(value).to_owned()));
        add("bridge", self.bridge.clone());
        add("mac", self.mac.clone());
        add("rate", self.rate.clone());
        add("mtu", self.mtu.map(|mtu| mtu.to_string()));
        add("name", self.name.clone());
        Ok(text)
    }
}

/// Reads a switch's file: the switch, and where its metrics are asked for.
pub(super) fn read(path: &Path) -> anyhow::Result<(SwitchConfig, Option<SocketAddr>)> {
    let text = input::text(path).with_context(|| format!("Cannot read {}", path.display()))?;
    let name = path.display().to_string();
    let file = bounded::toml(&name, &text)?;
    config(&file).context(name)
}

fn config(file: &SwitchFile) -> anyhow::Result<(SwitchConfig, Option<SocketAddr>)> {
    if file.version != VERSION {
        bail!("version = {}: this vmlab reads version {VERSION}", file.version);
    }
    let ports = file.port.iter().map(|port| Ok(PortConfig::parse(&port.text()?)?));
    let mut config = SwitchConfig::new(ports.collect::<anyhow::Result<_>>()?);
    let mirrors = file.mirror.iter().map(|mirror| MirrorConfig::parse(&mirror.text()));
    config.mirrors = mirrors.collect::<Result<_, _>>()?;
    let metrics = file.metrics.as_deref().map(endpoint::parse_address).transpose();
    let metrics = metrics.map_err(|error| anyhow!("metrics: {error}"))?;
    if let Some(pcpus) = &file.pcpus {
        let pcpus: PcpuSet = pcpus.parse().with_context(|| format!("pcpus = {pcpus:?}"))?;
        config.pcpus = pcpus.iter().collect();
        if config.pcpus.is_empty() {
            bail!(
                "pcpus = \"\" names no pCPU: leave it out for one thread wherever the kernel likes"
            );
        }
    }
    config.control = file.control.clone();
    config.age_s = file.age_s.unwrap_or(config.age_s).max(1);
    config.sandbox = file.sandbox.unwrap_or(config.sandbox);
    Ok((config, metrics))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<(SwitchConfig, Option<SocketAddr>)> {
        config(&bounded::toml("sw.toml", text)?)
    }

    #[test]
    fn the_file_says_what_the_command_line_says() {
        let config = parse(
            "version = 1\nmetrics = \"9464\"\ncpus = \"2-3\"\ncontrol = \"/run/c\"\nage_s = 60\n\
             [[port]]\nsocket = \"a.sock\"\n\
             [[port]]\nsocket = \"b.sock\"\nqueues = 4\nvlan = 10\nserver = false\n\
             isolated = true\nmac = \"52:54:00:00:00:01\"\nname = \"web\"\n\
             [[port]]\nsocket = \"c.sock\"\ntrunk = [10, 20]\nrate = \"1gbit\"\nmtu = 9000\n\
             [[port]]\ntap = \"t0\"\nbridge = \"br0\"\nuplink = true\n\
             [[mirror]]\nfile = \"f\"\nports = [\"a\", \"web\"]\nlimit = \"1MiB\"\n",
        )
        .unwrap();
        let (config, metrics) = config;
        assert_eq!(metrics, Some(([127, 0, 0, 1], 9464).into()));
        let text = "b.sock,queues=4,vlan=10,server=off,isolated=on,mac=52:54:00:00:00:01,name=web";
        let more = "c.sock,trunk=10+20,rate=1gbit,mtu=9000";
        let ports = ["a.sock", text, more, "tap:t0,bridge=br0,uplink=on"];
        let ports = ports.map(|text| PortConfig::parse(text).unwrap());
        assert_eq!(
            config,
            SwitchConfig {
                pcpus: vec![2, 3],
                control: Some("/run/c".into()),
                age_s: 60,
                mirrors: vec![MirrorConfig::parse("f,ports=a+web,limit=1MiB").unwrap()],
                ..SwitchConfig::new(ports.to_vec())
            }
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("version = 2\n").contains("this vmlab reads version 1"));
        let unknown = error("version = 1\nports = 3\n");
        assert!(unknown.starts_with("sw.toml:2: Unknown key `ports`"), "{unknown}");
        assert!(unknown.ends_with("did you mean `port`?"), "{unknown}");
        let bad = "version = 1\n[[port]]\nsocket = \"a\"\nvlan = 5000\n";
        assert!(error(bad).contains("vlan=5000: a VLAN is a number from 1 to 4094"));
        assert!(error("version = 1\n[[port]]\nvlan = 1\n").contains("a socket (of a VM) or a tap"));
        assert!(error("version = 1\nmetrics = \"x\"\n").contains("metrics: must be a port"));
        assert!(error("version = 1\npcpus = \"x\"\n").contains("pcpus = \"x\""));
        assert!(error("version = 1\npcpus = \"\"\n").contains("names no pCPU"));
    }
}
