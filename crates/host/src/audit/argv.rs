//! What the command line of a running QEMU asked for, as far as the audit
//! compares it with what is.
//!
//! A view of [`CommandLine`], which owns how QEMU's options are written.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;
use vmconfig::command_line::{CommandLine, Properties};
use vmconfig::source::{JoinedText, NamedFile};

/// What a command line asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandLineRequest {
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
    /// Whether it waited for the state of another QEMU's guest (`-incoming`): a
    /// migration, or a saved VM.
    #[serde(default)]
    pub incoming: bool,
    /// Memory backends by their id, in order.
    pub backends: Vec<MemoryBackend>,
    /// Guest nodes.
    pub guest_nodes: Vec<ArgvNode>,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArgvNode {
    /// Number.
    pub id: u32,
    /// Its vCPUs, where the command line lists them (`cpus=`).
    pub vcpus: BTreeSet<u32>,
    /// Its memory backend.
    pub memdev: Option<String>,
}

/// A QMP monitor on a Unix socket on which QEMU listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Reads the command line of a QEMU, without the program's name where that is
/// not known.
#[must_use]
pub fn parse(args: &[String]) -> CommandLineRequest {
    parse_with(args, Vec::new()).0
}

/// The same with what the files of `-readconfig` say; and what was not read of them.
#[must_use]
pub fn parse_with(args: &[String], files: Vec<NamedFile>) -> (CommandLineRequest, Vec<String>) {
    let joined = JoinedText::new(String::new(), files);
    let line = CommandLine::of_arguments(args).with_config_files(&joined.source());
    let asked = request(&line);
    (asked, line.unread.into_iter().map(|said| said.value).collect())
}

fn request(line: &CommandLine) -> CommandLineRequest {
    let mut asked = CommandLineRequest::default();
    let mut chardevs: BTreeMap<String, Properties> = BTreeMap::new();
    let mut monitors: Vec<String> = Vec::new();
    let accelerators = line.accelerators();
    asked.accel = accelerators.span.map(|_| accelerators.first().to_owned());
    asked.memory_bytes = line.memory_bytes().map(|at| at.value);
    if let (smp, Some(_)) = line.smp() {
        asked.vcpus = Some(smp.vcpus);
        asked.max_vcpus = Some(smp.max_vcpus);
        asked.threads = Some(smp.threads);
    }
    for option in &line.options {
        let of = |implied: &str| option.properties(implied);
        match option.name.value.as_str() {
            "incoming" => asked.incoming = true,
            "name" => {
                let properties = of("guest");
                asked.name = properties.get("guest").map(str::to_owned);
                asked.thread_names = is_on(&properties, "debug-threads");
            }
            "mem-path" => asked.mem_path = Some(option.text().to_owned()),
            // It may stand several times: libvirt writes one of its own.
            "overcommit" => {
                let properties = of("");
                for (name, wish) in
                    [("mem-lock", &mut asked.lock_memory), ("cpu-pm", &mut asked.cpu_pm)]
                {
                    if let Some(on) = properties.is_on(name) {
                        *wish = on.value;
                    }
                }
            }
            "object" => object(&mut asked, &of("qom-type")),
            "numa" => guest_node(&mut asked, &of("type")),
            "chardev" => {
                let properties = of("backend");
                if let Some(id) = properties.get("id").map(str::to_owned) {
                    chardevs.insert(id, properties);
                }
            }
            "mon" => {
                let properties = of("chardev");
                if properties.get("mode") == Some("control") {
                    monitors.extend(properties.get("chardev").map(str::to_owned));
                }
            }
            "qmp" | "qmp-pretty" => {
                let properties = of("path");
                if let Some(path) =
                    properties.get("path").and_then(|path| path.strip_prefix("unix:"))
                {
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
        if let Some(path) = properties.get("path") {
            asked.qmp.extend(listening(path, properties));
        }
    }
    asked
}

fn object(asked: &mut CommandLineRequest, properties: &Properties) {
    let (Some(kind), Some(id)) = (properties.get("qom-type"), properties.get("id")) else { return };
    if kind == "iothread" {
        asked.iothreads.push(id.to_owned());
    } else if kind.starts_with("memory-backend-") {
        asked.backends.push(MemoryBackend {
            id: id.to_owned(),
            kind: kind.to_owned(),
            bytes: bytes(properties, "size", 1),
            path: properties.get("mem-path").map(str::to_owned),
            hugetlb: is_on(properties, "hugetlb"),
            page_bytes: bytes(properties, "hugetlbsize", 1),
            prealloc: is_on(properties, "prealloc"),
            nodes: numbers(properties, "host-nodes"),
            policy: properties.get("policy").map(str::to_owned),
        });
    }
}

fn guest_node(asked: &mut CommandLineRequest, properties: &Properties) {
    if properties.get("type") != Some("node") {
        return;
    }
    let next = asked.guest_nodes.iter().map(|node| node.id + 1).max().unwrap_or(0);
    let id = properties.number("nodeid").map_or(next, |at| at.value);
    let vcpus = numbers(properties, "cpus");
    let memdev = properties.get("memdev").map(str::to_owned);
    asked.guest_nodes.push(ArgvNode { id, vcpus, memdev });
}

fn listening(path: &str, properties: &Properties) -> Option<QmpSocket> {
    let is_off = |name: &str| properties.is_on(name).is_some_and(|on| !on.value);
    let server = properties.at("server").is_some() && !is_off("server");
    let waits = properties.at("nowait").is_none() && !is_off("wait");
    server.then(|| QmpSocket { path: path.to_owned(), waits })
}

fn bytes(properties: &Properties, name: &str, plain: u64) -> Option<u64> {
    properties.bytes(name, plain).map(|at| at.value)
}

fn is_on(properties: &Properties, name: &str) -> bool {
    properties.is_on(name).is_some_and(|on| on.value)
}

/// All numbers of a key that may be given several times, or as a list.
fn numbers(properties: &Properties, name: &str) -> BTreeSet<u32> {
    properties.all(name).flat_map(|at| number_list(&at.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> CommandLineRequest {
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
        check("-M q35,smp.cpus=4,smp.threads=2", 4, 4, 2);
        check("-smp 2 -machine {\"type\":\"q35\",\"smp\":{\"cpus\":4,\"maxcpus\":8}}", 4, 8, 1);
        let check = |line: &str, bytes: u64| {
            assert_eq!(asked(line).memory_bytes, Some(bytes), "{line}");
        };
        check("-m 64", 64 << 20);
        check("-m size=4194304k,slots=16,maxmem=8G", 4 << 30);
        check("-m 1.5G", 3 << 29);
        check("-M q35,memory.size=2G,memory.max-size=4G", 2 << 30);
        check("-m 1G -M q35,memory.size=2G", 1 << 30);
        check("-object memory-backend-ram,id=a,size=3G -M q35,memory-backend=a", 3 << 30);
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

    /// Files below a folder.
    fn files(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() { files(&path, into) } else { into.push(path) }
        }
    }

    /// Every command line of the repository: of replicas, in pages, in examples.
    fn command_lines() -> Vec<Vec<String>> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut paths = Vec::new();
        for krate in std::fs::read_dir(root.join("crates")).unwrap() {
            files(&krate.unwrap().path().join("testdata"), &mut paths);
        }
        files(&root.join("docs"), &mut paths);
        let mut texts = Vec::new();
        for path in paths {
            let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            if !["args", "sh", "md"].contains(&end) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            match end {
                // They hold the arguments alone.
                "args" => texts.push(format!("qemu-system-x86_64 {}", text.replace('\n', " "))),
                "md" => {
                    let blocks = text.split("\n```").skip(1).step_by(2);
                    let blocks = blocks.filter_map(|block| Some(block.split_once('\n')?.1));
                    texts.extend(blocks.map(str::to_owned));
                }
                _ => texts.push(text),
            }
        }
        let arguments = |line: &CommandLine| {
            let option = |option: &vmconfig::command_line::QemuOption| {
                let value = option.value.as_ref().map(|word| word.text.clone());
                [Some(format!("-{}", option.name.value)), value]
            };
            line.options.iter().flat_map(option).flatten().collect::<Vec<String>>()
        };
        let lines = texts.iter().flat_map(|text| CommandLine::all(text));
        lines.map(|line| arguments(&line)).collect()
    }

    /// The audit and `VmSpec` believe the same of a command line.
    #[test]
    fn it_agrees_with_the_other_reader() {
        let lines = command_lines();
        let mut compared = 0;
        for args in &lines {
            let (asked, parsed) = (parse(args), vmconfig::qemu::parse_args(args));
            let vm = &parsed.settings;
            let is_kept = |path: &str| parsed.kept.iter().any(|kept| kept.path.starts_with(path));
            if let Some(accel) = &asked.accel
                && vmconfig::Accel::from_name(accel).is_some()
            {
                assert_eq!(accel, vm.accel.name(), "{args:?}");
            }
            // Nobody starts a VM whose vCPUs are not its topology.
            if asked.vcpus.is_some() && !is_kept("-smp") {
                compared += 1;
                let found = (asked.vcpus, asked.max_vcpus, asked.threads);
                let expected = (Some(vm.vcpus()), Some(vm.max_vcpus()), Some(vm.topology.threads));
                assert_eq!(found, expected, "{args:?}");
            }
            if let Some(bytes) = asked.memory_bytes {
                assert_eq!(bytes.div_ceil(1 << 20), vm.memory_mib, "{args:?}");
            }
            assert_eq!(asked.lock_memory, vm.memory.locked == Some(true), "{args:?}");
            assert_eq!(asked.cpu_pm, vm.hints.cpu_pm == Some(true), "{args:?}");
            assert_eq!(asked.iothreads.len(), vm.iothreads as usize, "{args:?}");
            if let Some(name) = &asked.name {
                assert_eq!(*name, vm.name, "{args:?}");
            }
            assert_eq!(asked.guest_nodes.len(), vm.numa.len(), "{args:?}");
            let mut nodes: Vec<&ArgvNode> = asked.guest_nodes.iter().collect();
            nodes.sort_by_key(|node| node.id);
            for (node, of_spec) in nodes.into_iter().zip(&vm.numa) {
                assert_eq!(node.vcpus, of_spec.vcpus.iter().collect(), "{args:?}");
                let backend =
                    asked.backends.iter().find(|one| Some(&one.id) == node.memdev.as_ref());
                let Some(backend) = backend else { continue };
                let mib = backend.bytes.map(|bytes| bytes.div_ceil(1 << 20));
                assert_eq!(mib, Some(of_spec.memory_mib), "{args:?}");
                let nodes = of_spec.host_nodes.iter().flat_map(|nodes| nodes.iter());
                assert_eq!(backend.nodes, nodes.collect(), "{args:?}");
            }
        }
        assert!(compared > 30, "{compared} of {}", lines.len());
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
