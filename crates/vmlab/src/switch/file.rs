//! The switch's file: the same words as on the command line, as TOML.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::Deserialize;
use topology::PcpuSet;
use vswitch::{PortConfig, SwitchConfig};

/// Version of the file's format.
const VERSION: u32 = 1;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchFile {
    version: u32,
    cpus: Option<String>,
    control: Option<PathBuf>,
    age_s: Option<u32>,
    sandbox: Option<bool>,
    #[serde(default)]
    port: Vec<Port>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Port {
    socket: String,
    queues: Option<u32>,
    vlan: Option<u32>,
    trunk: Option<Vec<u32>>,
    server: Option<bool>,
    isolated: Option<bool>,
    mac: Option<String>,
    name: Option<String>,
}

impl Port {
    /// As `--port` says it: one reader judges both.
    fn text(&self) -> String {
        let switch = |value: bool| if value { "on" } else { "off" };
        let mut text = self.socket.clone();
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
        add("mac", self.mac.clone());
        add("name", self.name.clone());
        text
    }
}

/// Reads a switch's file.
pub(super) fn read(path: &Path) -> anyhow::Result<SwitchConfig> {
    let text =
        fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<SwitchConfig> {
    let file: SwitchFile = toml::from_str(text)?;
    if file.version != VERSION {
        bail!("version = {}: this vmlab reads version {VERSION}", file.version);
    }
    let ports: Result<Vec<_>, _> =
        file.port.iter().map(|port| PortConfig::parse(&port.text())).collect();
    let mut config = SwitchConfig::new(ports?);
    if let Some(cpus) = &file.cpus {
        let cpus: PcpuSet = cpus.parse().with_context(|| format!("cpus = {cpus:?}"))?;
        config.pcpus = cpus.iter().collect();
    }
    config.control = file.control;
    config.age_s = file.age_s.unwrap_or(config.age_s).max(1);
    config.sandbox = file.sandbox.unwrap_or(config.sandbox);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_what_the_command_line_says() {
        let config = parse(
            "version = 1\ncpus = \"2-3\"\ncontrol = \"/run/c\"\nage_s = 60\n\
             [[port]]\nsocket = \"a.sock\"\n\
             [[port]]\nsocket = \"b.sock\"\nqueues = 4\nvlan = 10\nserver = false\n\
             isolated = true\nmac = \"52:54:00:00:00:01\"\nname = \"web\"\n\
             [[port]]\nsocket = \"c.sock\"\ntrunk = [10, 20]\n",
        )
        .unwrap();
        let text = "b.sock,queues=4,vlan=10,server=off,isolated=on,mac=52:54:00:00:00:01,name=web";
        let ports = ["a.sock", text, "c.sock,trunk=10+20"];
        let ports = ports.map(|text| PortConfig::parse(text).unwrap());
        assert_eq!(
            config,
            SwitchConfig {
                pcpus: vec![2, 3],
                control: Some("/run/c".into()),
                age_s: 60,
                ..SwitchConfig::new(ports.to_vec())
            }
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("version = 2\n").contains("this vmlab reads version 1"));
        assert!(error("version = 1\nports = 3\n").contains("line 2"));
        let bad = "version = 1\n[[port]]\nsocket = \"a\"\nvlan = 5000\n";
        assert!(error(bad).contains("vlan=5000: a VLAN is a number from 1 to 4094"));
        assert!(error("version = 1\ncpus = \"x\"\n").contains("cpus = \"x\""));
    }
}
