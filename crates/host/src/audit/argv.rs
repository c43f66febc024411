//! What the command line of a running QEMU asked for, as far as the audit
//! compares it with what is.
//!
//! Options that nothing here compares are passed over: reading a whole
//! configuration back is `vmconfig`'s.
//!
//! Source: QEMU `qemu-options.hx`, `qapi/qom.json`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::PcpuSet;

/// What a command line asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// `-name`.
    pub name: Option<String>,
    /// `kvm`, `tcg`...; the first that was named.
    pub accel: Option<String>,
    /// vCPUs at the start.
    pub vcpus: Option<u32>,
    /// vCPUs at most, with those that can be plugged in.
    pub max_vcpus: Option<u32>,
    /// Threads in a guest core.
    pub threads: Option<u32>,
    /// Guest memory at the start, bytes.
    pub memory_bytes: Option<u64>,
    /// Folder or file of `-mem-path`.
    pub mem_path: Option<String>,
    /// Whether memory shall be locked (`-overcommit mem-lock=on`).
    pub lock_memory: bool,
    /// Whether vCPUs shall keep their pCPUs when they idle (`-overcommit
    /// cpu-pm=on`).
    #[serde(default)]
    pub cpu_pm: bool,
    /// Memory backends by their id, in order.
    pub backends: Vec<MemoryBackend>,
    /// Guest nodes.
    pub guest_nodes: Vec<GuestNode>,
    /// Ids of the iothreads, in order.
    pub iothreads: Vec<String>,
    /// QMP sockets on which QEMU listens.
    pub qmp: Vec<QmpSocket>,
    /// Whether threads carry names (`debug-threads=on`).
    pub thread_names: bool,
    /// Whether libvirt started it.
    pub libvirt: bool,
}

/// One `-object memory-backend-*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBackend {
    /// Id.
    pub id: String,
    /// `memory-backend-ram`, `-file`, `-memfd`...
    pub kind: String,
    /// Size.
    pub bytes: Option<u64>,
    /// File or folder of `mem-path`.
    pub path: Option<String>,
    /// Whether huge pages were asked for (`hugetlb=on`).
    pub hugetlb: bool,
    /// Size of the huge pages, when named.
    pub page_bytes: Option<u64>,
    /// Whether all of it is touched before the guest starts.
    pub prealloc: bool,
    /// Host nodes; empty when any.
    pub nodes: BTreeSet<u32>,
    /// `bind`, `preferred`, `interleave` or `default`.
    pub policy: Option<String>,
}

/// One `-numa node`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNode {
    /// Number.
    pub id: u32,
    /// Its vCPUs, where the command line lists them (`cpus=`).
    pub vcpus: BTreeSet<u32>,
    /// Its memory backend.
    pub memdev: Option<String>,
}

/// A QMP monitor on a Unix socket on which QEMU listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QmpSocket {
    /// Where, as QEMU was told: relative to QEMU's own folder and root.
    pub path: String,
    /// Whether QEMU waits for a client before it starts the guest. Then a
    /// connection would not only look.
    pub waits: bool,
}

/// A set of numbers as command lines write it: `0-3,8`.
pub(crate) fn number_list(text: &str) -> BTreeSet<u32> {
    text.parse::<PcpuSet>().map(|set| set.iter().collect()).unwrap_or_default()
}

/// Reads the arguments of a QEMU, without the program's name.
#[must_use]
pub fn parse(args: &[String]) -> Asked {
    let mut asked = Asked::default();
    let mut chardevs: BTreeMap<String, Properties> = BTreeMap::new();
    let mut monitors: Vec<String> = Vec::new();
    let mut args = args.iter();
    while let Some(option) = args.next() {
        // QEMU takes every option with one dash or with two.
        let Some(option) = option.strip_prefix('-') else { continue };
        let option = option.strip_prefix('-').unwrap_or(option);
        if option == "enable-kvm" {
            asked.accel.get_or_insert_with(|| "kvm".to_owned());
            continue;
        }
        if !TAKES_VALUE.contains(&option) {
            continue;
        }
        let Some(value) = args.next() else { break };
        let first = match option {
            "name" => "guest",
            "accel" => "accel",
            "machine" | "M" => "type",
            "smp" => "cpus",
            "m" => "size",
            "object" => "qom-type",
            "chardev" => "backend",
            "numa" => "type",
            "mon" => "chardev",
            _ => "",
        };
        let properties = Properties::parse(value, first);
        match option {
            "name" => {
                asked.name = properties.text("guest");
                asked.thread_names = properties.is_on("debug-threads");
            }
            "accel" => asked.accel = asked.accel.take().or_else(|| properties.text("accel")),
            "machine" | "M" => {
                // `accel=kvm:tcg` lists what to try.
                let named = properties.text("accel");
                let first = named.and_then(|list| list.split(':').next().map(str::to_owned));
                asked.accel = asked.accel.take().or(first);
            }
            "smp" => smp(&mut asked, &properties),
            "m" => asked.memory_bytes = properties.text("size").and_then(|t| size(&t, 1 << 20)),
            "mem-path" => asked.mem_path = Some(value.clone()),
            // It may stand several times: libvirt writes one of its own.
            "overcommit" => {
                for (name, wish) in
                    [("mem-lock", &mut asked.lock_memory), ("cpu-pm", &mut asked.cpu_pm)]
                {
                    if properties.0.contains_key(name) {
                        *wish = properties.is_on(name);
                    }
                }
            }
            "object" => object(&mut asked, &properties),
            "numa" => guest_node(&mut asked, &properties),
            "chardev" => {
                if let Some(id) = properties.text("id") {
                    chardevs.insert(id, properties);
                }
            }
            "mon" if properties.text("mode").as_deref() == Some("control") => {
                monitors.extend(properties.text("chardev"));
            }
            "qmp" | "qmp-pretty" => {
                if let Some(path) = value.strip_prefix("unix:") {
                    let (path, rest) = path.split_once(',').unwrap_or((path, ""));
                    let properties = Properties::parse(rest, "");
                    asked.qmp.extend(listening(path, &properties));
                }
            }
            _ => {}
        }
    }
    asked.libvirt = chardevs.contains_key("charmonitor")
        || asked.qmp.iter().any(|socket| socket.path.contains("/libvirt/"));
    for id in monitors {
        let Some(properties) = chardevs.get(&id) else { continue };
        // libvirt hands the socket over as a descriptor and keeps the other end.
        if let Some(path) = properties.text("path") {
            asked.qmp.extend(listening(&path, properties));
        }
    }
    asked
}

/// Options with a value that is read here, and those whose value may begin
/// with a dash and be taken for an option.
const TAKES_VALUE: &[&str] = &[
    "name",
    "accel",
    "machine",
    "M",
    "smp",
    "m",
    "object",
    "chardev",
    "numa",
    "mon",
    "qmp",
    "qmp-pretty",
    "mem-path",
    "overcommit",
    "append",
];

fn smp(asked: &mut Asked, properties: &Properties) {
    let number = |name: &str| properties.text(name)?.parse::<u32>().ok().filter(|n| *n > 0);
    let outer = ["sockets", "dies", "clusters", "modules", "cores"];
    let product = outer
        .iter()
        .try_fold(1_u32, |product, level| product.checked_mul(number(level).unwrap_or(1)));
    let product = product.unwrap_or(u32::MAX);
    let threads = number("threads");
    let all = number("maxcpus").or_else(|| number("cpus"));
    let all = all.or_else(|| product.checked_mul(threads.unwrap_or(1)));
    // Where sockets and cores are both given, threads are what is left.
    let left = (number("sockets").is_some() && number("cores").is_some())
        .then(|| all.map(|all| (all / product).max(1)))
        .flatten();
    asked.vcpus = number("cpus").or(all);
    asked.max_vcpus = all;
    asked.threads = threads.or(left).or(Some(1));
}

fn object(asked: &mut Asked, properties: &Properties) {
    let Some(kind) = properties.text("qom-type") else { return };
    let Some(id) = properties.text("id") else { return };
    if kind == "iothread" {
        asked.iothreads.push(id);
    } else if kind.starts_with("memory-backend-") {
        asked.backends.push(MemoryBackend {
            id,
            bytes: properties.text("size").and_then(|text| size(&text, 1)),
            path: properties.text("mem-path"),
            hugetlb: properties.is_on("hugetlb"),
            page_bytes: properties.text("hugetlbsize").and_then(|text| size(&text, 1)),
            prealloc: properties.is_on("prealloc"),
            nodes: properties.numbers("host-nodes"),
            policy: properties.text("policy"),
            kind,
        });
    }
}

fn guest_node(asked: &mut Asked, properties: &Properties) {
    if properties.text("type").as_deref() != Some("node") {
        return;
    }
    let next = asked.guest_nodes.iter().map(|node| node.id + 1).max().unwrap_or(0);
    let id = properties.text("nodeid").and_then(|text| text.parse().ok()).unwrap_or(next);
    let vcpus = properties.numbers("cpus");
    asked.guest_nodes.push(GuestNode { id, vcpus, memdev: properties.text("memdev") });
}

fn listening(path: &str, properties: &Properties) -> Option<QmpSocket> {
    let flag = |name: &str| properties.0.contains_key(name);
    let server = flag("server") && !properties.is_off("server");
    let waits = !flag("nowait") && !properties.is_off("wait");
    server.then(|| QmpSocket { path: path.to_owned(), waits })
}

/// A size with a suffix; `unit` is what a bare number counts.
fn size(text: &str, unit: u64) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        // `1.5G`.
        Err(_) => {
            digits.parse::<f64>().ok().filter(|n| *n >= 0.0).map(|n| (n * unit as f64) as u64)
        }
    }
}

/// The properties of one option; a name may stand several times.
struct Properties(BTreeMap<String, Vec<String>>);

impl Properties {
    /// Reads `a,b=c,d,,e=f` or a JSON object. A first part without `=` is the
    /// value of `first`; a later one is a flag.
    fn parse(text: &str, first: &str) -> Self {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        if text.starts_with('{') {
            if let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text) {
                for (name, value) in object {
                    all.insert(name, json_texts(value));
                }
            }
            return Self(all);
        }
        // Two commas stand for one in a value.
        let guarded = text.replace(",,", "\0");
        for (index, part) in guarded.split(',').enumerate() {
            let part = part.replace('\0', ",");
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None if index == 0 && !first.is_empty() => (first.to_owned(), part),
                None => (part, String::new()),
            };
            all.entry(name).or_default().push(value);
        }
        Self(all)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name)?.last().filter(|text| !text.is_empty()).cloned()
    }

    fn is_on(&self, name: &str) -> bool {
        let value = self.0.get(name).and_then(|values| values.last());
        value.is_some_and(|value| matches!(value.as_str(), "" | "on" | "yes" | "true" | "y"))
    }

    fn is_off(&self, name: &str) -> bool {
        let value = self.0.get(name).and_then(|values| values.last());
        value.is_some_and(|value| matches!(value.as_str(), "off" | "no" | "false" | "n"))
    }

    /// All values of `name`, and of its members `name.0`, `name.1`...
    fn numbers(&self, name: &str) -> BTreeSet<u32> {
        let of_name = |key: &str| {
            key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let named = self.0.iter().filter(|(key, _)| of_name(key));
        named.flat_map(|(_, values)| values).flat_map(|text| number_list(text)).collect()
    }
}

fn json_texts(value: serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Bool(on) => vec![if on { "on" } else { "off" }.to_owned()],
        serde_json::Value::Array(values) => values.into_iter().flat_map(json_texts).collect(),
        serde_json::Value::Null => Vec::new(),
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Asked {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn topology_and_memory() {
        let check = |line: &str, vcpus: u32, most: u32, threads: u32| {
            let asked = asked(line);
            let found = (asked.vcpus, asked.max_vcpus, asked.threads);
            assert_eq!(found, (Some(vcpus), Some(most), Some(threads)), "{line}");
        };
        check("-smp 4", 4, 4, 1);
        check("-smp 4,threads=2", 4, 4, 2);
        check("-smp cpus=2,maxcpus=8,sockets=2,cores=2", 2, 8, 2);
        check("-smp 8,sockets=2,cores=2,threads=2,maxcpus=8", 8, 8, 2);
        check("--smp sockets=2,cores=4,threads=2", 16, 16, 2);
        let check = |line: &str, bytes: u64| {
            assert_eq!(asked(line).memory_bytes, Some(bytes), "{line}");
        };
        check("-m 64", 64 << 20);
        check("-m size=4194304k,slots=16,maxmem=8G", 4 << 30);
        check("-m 1.5G", 3 << 29);
        assert_eq!(asked("-m x").memory_bytes, None);
    }

    #[test]
    fn a_libvirt_guest() {
        // The form that libvirt 9.0 gives to QEMU 7.2 (`virsh domxml-to-native`).
        let asked = asked(concat!(
            r#"-name guest=db,debug-threads=on -machine pc-q35-7.2,usb=off -accel kvm "#,
            r#"-m 4096 -overcommit mem-lock=on -smp 4,sockets=1,dies=1,cores=2,threads=2 "#,
            r#"-object {"qom-type":"iothread","id":"iothread1"} "#,
            r#"-object {"qom-type":"memory-backend-file","id":"ram-node0","mem-path":"/dev/hugepages/libvirt/qemu/1-db","#,
            r#""prealloc":true,"size":2147483648,"host-nodes":[0],"policy":"bind"} "#,
            r#"-numa node,nodeid=0,cpus=0-1,memdev=ram-node0 "#,
            r#"-object memory-backend-memfd,id=ram-node1,hugetlb=on,hugetlbsize=1G,size=2G,host-nodes=1,policy=preferred "#,
            r#"-numa node,nodeid=1,cpus=2,cpus=3,memdev=ram-node1 "#,
            r#"-chardev socket,id=charmonitor,fd=27,server=on,wait=off -mon chardev=charmonitor,id=monitor,mode=control "#,
            r#"-overcommit cpu-pm=on"#,
        ));
        assert_eq!(asked.name.as_deref(), Some("db"));
        assert!(asked.thread_names && asked.libvirt);
        assert!(asked.lock_memory && asked.cpu_pm, "of two options");
        assert_eq!(asked.accel.as_deref(), Some("kvm"));
        assert_eq!(asked.iothreads, ["iothread1"]);
        assert_eq!(asked.qmp, [], "libvirt's socket has no path to connect to");
        let [file, memfd] = &asked.backends[..] else { panic!("{asked:?}") };
        assert_eq!(file.path.as_deref(), Some("/dev/hugepages/libvirt/qemu/1-db"));
        assert_eq!((file.bytes, file.prealloc), (Some(2 << 30), true));
        assert_eq!((&file.nodes, file.policy.as_deref()), (&[0].into(), Some("bind")));
        assert_eq!((memfd.hugetlb, memfd.page_bytes), (true, Some(1 << 30)));
        assert_eq!(memfd.nodes, [1].into());
        assert_eq!(asked.guest_nodes[1].vcpus, [2, 3].into());
        assert_eq!(asked.guest_nodes[1].memdev.as_deref(), Some("ram-node1"));
    }

    #[test]
    fn qmp_sockets() {
        let check = |line: &str, expected: &[(&str, bool)]| {
            let found = asked(line).qmp;
            let found: Vec<_> = found.iter().map(|s| (s.path.as_str(), s.waits)).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("-qmp unix:/run/x.sock,server=on,wait=off", &[("/run/x.sock", false)]);
        check("-qmp unix:x.sock,server,nowait", &[("x.sock", false)]);
        check("-qmp unix:x.sock,server=on", &[("x.sock", true)]);
        check("-qmp unix:x.sock", &[]);
        check("-qmp tcp:localhost:4444,server=on,wait=off", &[]);
        check(
            "-chardev socket,id=q,path=/a,,b,server=on,wait=off -mon chardev=q,mode=control",
            &[("/a,b", false)],
        );
        check("-chardev socket,id=q,path=/a,server=on,wait=off -mon chardev=q", &[]);
    }

    #[test]
    fn broken_lines_are_read_as_far_as_they_go() {
        for line in ["", "-", "-smp", "-object {", "-object x", "-smp 0,threads=0", "-numa node,,"]
        {
            let _ = asked(line);
        }
        assert_eq!(asked("-append -smp -smp 2").vcpus, Some(2));
    }
}
