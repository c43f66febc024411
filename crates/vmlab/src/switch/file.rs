//! The switch's file: the same words as on the command line, as TOML.

use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use topology::PcpuSet;
use topology::bounded::{self, FileProblems, LineProblem};
use vmconfig::source::{SourceText, Span};
use vswitch::{MirrorConfig, PortConfig, SwitchConfig};

use super::rights;
use crate::{endpoint, input};

/// Version of the file's format.
const VERSION: u32 = 1;

/// A value, and where it stands.
type PlacedValue<T> = Option<Spanned<T>>;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchFile {
    #[schemars(with = "u32")]
    version: Spanned<u32>,
    /// pCPUs of the polling threads, `2-3`. Before: `cpus`.
    #[serde(alias = "cpus")]
    #[schemars(with = "Option<String>")]
    pcpus: PlacedValue<String>,
    control: Option<PathBuf>,
    /// The mode of the ports' sockets, as `--socket-mode` says it: `0660`.
    #[schemars(with = "Option<String>")]
    socket_mode: PlacedValue<String>,
    /// Their group, by its name or number, as `--socket-group` says it.
    #[schemars(with = "Option<String>")]
    socket_group: PlacedValue<String>,
    #[schemars(with = "Option<u32>")]
    age_s: PlacedValue<u32>,
    sandbox: Option<bool>,
    /// Where OpenMetrics are asked for, as `--metrics` says it.
    #[schemars(with = "Option<String>")]
    metrics: PlacedValue<String>,
    #[serde(default)]
    #[schemars(with = "Vec<PortSection>")]
    port: Vec<Spanned<PortSection>>,
    #[serde(default)]
    #[schemars(with = "Vec<MirrorSection>")]
    mirror: Vec<Spanned<MirrorSection>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PortSection {
    /// Of a VM's port: its socket.
    #[schemars(with = "Option<String>")]
    socket: PlacedValue<String>,
    /// Of a port to the host's network: the interface.
    #[schemars(with = "Option<String>")]
    tap: PlacedValue<String>,
    #[schemars(with = "Option<String>")]
    bridge: PlacedValue<String>,
    #[schemars(with = "Option<u32>")]
    queues: PlacedValue<u32>,
    #[schemars(with = "Option<u32>")]
    vlan: PlacedValue<u32>,
    #[schemars(with = "Option<Vec<u32>>")]
    trunk: PlacedValue<Vec<u32>>,
    #[schemars(with = "Option<bool>")]
    server: PlacedValue<bool>,
    #[schemars(with = "Option<bool>")]
    isolated: PlacedValue<bool>,
    #[schemars(with = "Option<bool>")]
    uplink: PlacedValue<bool>,
    #[schemars(with = "Option<String>")]
    mac: PlacedValue<String>,
    #[schemars(with = "Option<String>")]
    rate: PlacedValue<String>,
    #[schemars(with = "Option<u32>")]
    mtu: PlacedValue<u32>,
    #[schemars(with = "Option<String>")]
    name: PlacedValue<String>,
}

/// Frames of ports that are written down.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MirrorSection {
    file: PathBuf,
    /// Names of ports; all if not given.
    #[schemars(with = "Option<Vec<String>>")]
    ports: PlacedValue<Vec<String>>,
    /// Bytes of each frame, as in `128` or `64KiB`.
    #[schemars(with = "Option<String>")]
    snap: PlacedValue<String>,
    /// Bytes of the file, as in `1GiB`.
    #[schemars(with = "Option<String>")]
    limit: PlacedValue<String>,
}

/// All that is wrong with a file.
struct Problems<'a> {
    source: SourceText<'a>,
    found: Vec<LineProblem>,
}

impl Problems<'_> {
    fn note(&mut self, at: Range<usize>, message: impl Display) {
        let line = self.source.line_number(Span { start: at.start, end: at.end });
        let (line, message) = (line as usize, message.to_string());
        self.found.push(LineProblem { line, message });
    }

    /// The value of what was read, or a note of why there is none, with its key.
    fn taken<T, V: Debug, E: Display>(
        &mut self,
        key: &str,
        placed: &PlacedValue<V>,
        read: impl FnOnce(&V) -> Result<T, E>,
    ) -> Option<T> {
        let placed = placed.as_ref()?;
        let value = placed.get_ref();
        match read(value) {
            Ok(taken) => Some(taken),
            Err(error) => {
                self.note(placed.span(), format!("{key} = {value:?}: {error}"));
                None
            }
        }
    }
}

impl PortSection {
    /// The port, if nothing is wrong with it.
    fn port(&self, place: Range<usize>, problems: &mut Problems<'_>) -> Option<PortConfig> {
        let mut port = match (&self.socket, &self.tap) {
            (socket @ Some(_), None) => {
                problems.taken("socket", socket, |path| PortConfig::of_socket(path))?
            }
            (None, tap @ Some(_)) => problems.taken("tap", tap, |name| PortConfig::of_tap(name))?,
            _ => {
                let one = "a [[port]] has a socket (of a VM) or a tap (to the host), one of both";
                problems.note(place, one);
                return None;
            }
        };
        let switch = |on: &bool| if *on { "on" } else { "off" }.to_owned();
        let numbers =
            |vlans: &Vec<u32>| vlans.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
        macro_rules! take {
            ($($field:ident: $words:expr),*) => {
                $(problems.taken(stringify!($field), &self.$field, |value| {
                    port.set(stringify!($field), &$words(value)).map(|_| ())
                });)*
            };
        }
        take!(
            bridge: String::clone, queues: u32::to_string, vlan: u32::to_string, trunk: numbers,
            server: switch, isolated: switch, uplink: switch, mac: String::clone,
            rate: String::clone, mtu: u32::to_string, name: String::clone
        );
        Some(port)
    }
}

impl MirrorSection {
    fn mirror(&self, place: Range<usize>, problems: &mut Problems<'_>) -> MirrorConfig {
        if self.file.as_os_str().is_empty() {
            problems.note(place, "a [[mirror]] has a file");
        }
        let mut mirror = MirrorConfig::to(&self.file);
        let names = problems.taken("ports", &self.ports, |names| {
            let fine = !names.is_empty() && !names.iter().any(String::is_empty);
            fine.then(|| names.clone()).ok_or("names of ports; without it, all are watched")
        });
        mirror.ports = names.unwrap_or_default();
        for (key, value) in [("snap", &self.snap), ("limit", &self.limit)] {
            problems.taken(key, value, |value| mirror.set(key, value));
        }
        mirror
    }
}

/// Reads a switch's file: the switch, and where its metrics are asked for.
pub(super) fn read(path: &Path) -> anyhow::Result<(SwitchConfig, Option<SocketAddr>)> {
    let text = input::text(path).with_context(|| format!("Cannot read {}", path.display()))?;
    Ok(config(&path.display().to_string(), &text)?)
}

fn config(name: &str, text: &str) -> Result<(SwitchConfig, Option<SocketAddr>), FileProblems> {
    let file: SwitchFile = bounded::toml(name, text)?;
    let mut problems = Problems { source: SourceText::new(text), found: Vec::new() };
    let version = *file.version.get_ref();
    if version != VERSION {
        let message =
            format!("version = {version}: this vmlab reads version {VERSION}: use a newer vmlab");
        problems.note(file.version.span(), message);
    }
    let mut config = SwitchConfig::new(Vec::new());
    for section in &file.port {
        let Some(port) = section.get_ref().port(section.span(), &mut problems) else { continue };
        config.ports.push(port);
        if let Err(error) = config.check() {
            problems.note(section.span(), error);
            break;
        }
    }
    let mirrors = file.mirror.iter();
    config.mirrors =
        mirrors.map(|section| section.get_ref().mirror(section.span(), &mut problems)).collect();
    let metrics =
        problems.taken("metrics", &file.metrics, |address| endpoint::parse_address(address));
    let pcpus = problems.taken("pcpus", &file.pcpus, |pcpus| {
        let pcpus: PcpuSet = pcpus.parse().map_err(|error| format!("{error}"))?;
        if pcpus.is_empty() {
            return Err("leave it out for one thread wherever the kernel likes".to_owned());
        }
        Ok(pcpus.iter().collect())
    });
    config.pcpus = pcpus.unwrap_or_default();
    config.control = file.control;
    let (mode, group) = (&file.socket_mode, &file.socket_group);
    config.rights.mode = problems.taken("socket_mode", mode, |mode| rights::mode(mode));
    config.rights.group = problems.taken("socket_group", group, |group| rights::group(group));
    let age_s = problems.taken("age_s", &file.age_s, |&age_s| {
        NonZeroU32::new(age_s).ok_or("a station is known for 1 s at least")
    });
    config.age_s = age_s.map_or(config.age_s, NonZeroU32::get);
    config.sandbox = file.sandbox.unwrap_or(config.sandbox);
    if problems.found.is_empty() {
        return Ok((config, metrics));
    }
    problems.found.sort_by_key(|problem| problem.line);
    Err(FileProblems { file: name.to_owned(), problems: problems.found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswitch::SocketRights;

    fn parse(text: &str) -> Result<(SwitchConfig, Option<SocketAddr>), FileProblems> {
        config("sw.toml", text)
    }

    #[test]
    fn the_file_says_what_the_command_line_says() {
        let config = parse(
            "version = 1\nmetrics = \"9464\"\ncpus = \"2-3\"\ncontrol = \"/run/c\"\nage_s = 60\n\
             socket_mode = \"0660\"\nsocket_group = \"7\"\n\
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
                rights: SocketRights { mode: Some(0o660), group: Some(7) },
                mirrors: vec![MirrorConfig::parse("f,ports=a+web,limit=1MiB").unwrap()],
                ..SwitchConfig::new(ports.to_vec())
            }
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        let unknown = error("version = 1\nports = 3\n");
        assert!(unknown.starts_with("sw.toml:2: Unknown key `ports`"), "{unknown}");
        assert!(unknown.ends_with("did you mean `port`?"), "{unknown}");
        for (text, line, expected) in [
            ("version = 2\n", 1, "version = 2: this vmlab reads version 1"),
            ("version = 1\n\nage_s = 0\n", 3, "age_s = 0: a station is known for 1 s at least"),
            ("version = 1\nmetrics = \"x\"\n", 2, "metrics = \"x\": must be a port"),
            ("version = 1\nsocket_mode = \"0888\"\n", 2, "socket_mode = \"0888\": a mode is octal"),
            ("version = 1\nsocket_group = \"no:pe\"\n", 2, "has no such group"),
            ("version = 1\npcpus = \"x\"\n", 2, "pcpus = \"x\": "),
            ("version = 1\npcpus = \"\"\n", 2, "pcpus = \"\": leave it out"),
            ("version = 1\n[[port]]\nvlan = 1\n", 2, "a socket (of a VM) or a tap"),
            ("version = 1\n[[mirror]]\nfile = \"\"\n", 2, "a [[mirror]] has a file"),
        ] {
            let error = error(text);
            assert!(error.starts_with(&format!("sw.toml:{line}: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        // Of a port and a mirror, each value at its own line, all of them at once.
        let values = [
            ("vlan = 5000", "a VLAN is a number from 1 to 4094"),
            ("queues = 65", "1 to 64 queues"),
            ("mac = \"ff:ff\"", "a station's address"),
            ("rate = \"100\"", "a rate has a unit"),
            ("mtu = 9", "256 to 65535 bytes"),
            ("name = \"a,b\"", "1 to 64 letters"),
            ("bridge = \"br0\"", "bridge is for tap ports alone"),
        ];
        let mut text = "version = 1\n[[port]]\nsocket = \"a\"\n".to_owned();
        values.iter().for_each(|(value, _)| text += &format!("{value}\n"));
        text += "[[mirror]]\nfile = \"f\"\nlimit = \"banana\"\nports = []\n";
        let all = error(&text);
        let expected = values
            .iter()
            .map(|(value, expected)| (*value, *expected))
            .chain([("limit = \"banana\"", "bytes of the file"), ("ports = []", "names of ports")]);
        assert_eq!(all.lines().count(), 9, "{all}");
        for ((value, expected), said) in expected.zip(all.lines()) {
            let line = text.lines().position(|line| line == value).unwrap() + 1;
            assert!(said.starts_with(&format!("sw.toml:{line}: {value}: {expected}")), "{said}");
        }
        for (second, expected) in [
            (
                "tap = \"t\"\nqueues = 2\n",
                "sw.toml:6: queues = 2: queues is for socket ports alone",
            ),
            ("tap = \"a:b\"\n", "sw.toml:5: tap = \"a:b\": the name of a network interface"),
            (
                "socket = \"b\"\nisolated = true\nuplink = true\n",
                "sw.toml:7: uplink = true: a port",
            ),
            (
                "socket = \"b\"\nvlan = 1\ntrunk = [2]\n",
                "sw.toml:7: trunk = [2]: a port has a vlan",
            ),
            ("socket = \"a\"\nname = \"x\"\n", "sw.toml:4: The ports a and x have the same socket"),
        ] {
            let error =
                error(&format!("version = 1\n[[port]]\nsocket = \"a\"\n[[port]]\n{second}"));
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_text_is_what_it_says_and_no_settings_are_read_from_it() {
        let text = "version = 1\n[[port]]\nsocket = \"a.sock,vlan=10\"\n\
                    [[port]]\nsocket = \"tap:zz\"\n\
                    [[mirror]]\nfile = \"f,ports=a\"\nports = [\"a+b\"]\n";
        let (config, _) = parse(text).unwrap();
        assert_eq!(config.ports[0], PortConfig::at("a.sock,vlan=10"));
        assert_eq!(config.ports[1], PortConfig::at("tap:zz"));
        assert_eq!(config.mirrors[0].target, Path::new("f,ports=a"));
        assert_eq!(config.mirrors[0].ports, ["a+b"]);
    }
}
