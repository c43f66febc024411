//! The command line of `vmlab predict`, and what it prints.

use std::fmt::Write as _;

use clap::Parser;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use topology::{Host, Node, Pcpu};

use super::{PredictArgs, guests, jsonl, predict_all};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: PredictArgs,
}

/// One socket of 8 cores with 2 threads; core i has pCPUs i and i+8.
fn host() -> Host {
    let pcpus = (0..16).map(|id| Pcpu {
        id,
        online: true,
        socket: Some(0),
        core: Some(id % 8),
        thread: Some(id / 8),
        node: Some(0),
        ..Pcpu::default()
    });
    let node = Node { id: 0, pcpus: (0..16).collect(), ..Node::default() };
    Host { pcpus: pcpus.collect(), nodes: vec![node], ..Host::default() }
}

#[track_caller]
fn check(yaml: &str, options: &[&str], is_fine: bool, expected: Expect) {
    let args = ["predict", "-"].iter().chain(options);
    let args = Cli::try_parse_from(args).expect("arguments").args;
    let (text, fine) =
        predict_all(&args, guests("x.yaml", yaml).expect(yaml), &host()).expect("prediction");
    expected.assert_eq(&text);
    assert_eq!(fine, is_fine);
}

const SIBLINGS: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: web
spec:
  domain:
    cpu:
      cores: 2
      threads: 2
      dedicatedCpuPlacement: true
    devices: {}
";

#[test]
fn old_and_new_versions_side_by_side() {
    check(
        SIBLINGS,
        &["--reserved", "0-2,8-10", "--kubevirt", "0.44.0,0.45.0,1.9.0"],
        false,
        expect![[r#"
            Node     1 socket, 1 memory node, 8 cores, 16 threads (pCPUs 0-15)
            Kubelet  static policy, no options
            pCPUs    reserved: 0-2,8-10; held by other pods: none

            Guest web: 1 socket x 2 cores x 2 threads = 4 vCPUs

            KubeVirt 0.44.0, 0.45.0
              The pod asks for 4 CPUs and gets pCPUs 3-4,11-12

                vCPU  guest core  pCPU  host core  socket  node
                   0           0     3          3       0     0
                   1           0     4          4       0     0
                   2           1    11          3       0     0
                   3           1    12          4       0     0

              Guest siblings do NOT lie on host siblings: 2 of 2 guest cores split over host cores.
              - guest core 0 = pCPUs 3,4: threads of two host cores
              - guest core 1 = pCPUs 11,12: threads of two host cores

            KubeVirt 1.9.0
              The pod asks for 4 CPUs and gets pCPUs 3-4,11-12

                vCPU  guest core  pCPU  host core  socket  node
                   0           0     3          3       0     0
                   1           0    11          3       0     0
                   2           1     4          4       0     0
                   3           1    12          4       0     0

              Guest siblings lie on host siblings: 2 guest cores, all whole.
        "#]],
    );
}

#[test]
fn rejections_are_shown_as_the_pod_shows_them() {
    let odd =
        SIBLINGS.replace("      dedicated", "      isolateEmulatorThread: true\n      dedicated");
    check(
        &odd,
        &["--reserved", "0,8", "--kubelet", "full-pcpus-only"],
        false,
        expect![[r#"
        Node     1 socket, 1 memory node, 8 cores, 16 threads (pCPUs 0-15)
        Kubelet  static policy, full-pcpus-only
        pCPUs    reserved: 0,8; held by other pods: none

        Guest web: 1 socket x 2 cores x 2 threads = 4 vCPUs

        KubeVirt 1.9.0
          The pod asks for 5 CPUs: the kubelet rejects it
          SMTAlignmentError: SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2
    "#]],
    );
}

#[test]
fn many_documents_and_templates() {
    let vm = "
kind: Service
---
kind: VirtualMachine
metadata: {name: db}
spec:
  template:
    spec:
      domain:
        cpu: {cores: 3, dedicatedCpuPlacement: true, isolateEmulatorThread: true}
        ioThreadsPolicy: auto
        devices: {disks: [{name: a}]}
---
kind: VirtualMachineInstance
metadata: {name: small}
spec: {domain: {cpu: {cores: 2}}}
";
    check(
        vm,
        &["--reserved", "0", "--kubevirt", "1.7.0,1.9.0"],
        false,
        expect![[r#"
        Node     1 socket, 1 memory node, 8 cores, 16 threads (pCPUs 0-15)
        Kubelet  static policy, no options
        pCPUs    reserved: 0; held by other pods: none

        Guest db: 1 socket x 3 cores x 1 thread = 3 vCPUs

        KubeVirt 1.7.0
          The pod asks for 4 CPUs and gets pCPUs 1-2,9-10
          virt-launcher does not start the guest: panic: runtime error: invalid memory address or nil pointer dereference

        KubeVirt 1.9.0
          The pod asks for 4 CPUs and gets pCPUs 1-2,9-10

            vCPU  guest core  pCPU  host core  socket  node
               0           0     1          1       0     0
               1           1     9          1       0     0
               2           2     2          2       0     0
        emulator           -    10          2       0     0
            IOThread 1: pCPUs 10

          The guest has no siblings, the host does: 1 host core held by several guest cores.
          - guest cores 0 and 1 = pCPUs 1,9: threads of one host core, the guest takes them for separate cores
          - the emulator thread (pCPU 10) shares a host core with vCPU 2

        Guest small: 1 socket x 2 cores x 1 thread = 2 vCPUs
          No dedicatedCpuPlacement: the guest floats over the node's shared pool (pCPUs 0-15); nothing is pinned.
    "#]],
    );
}

#[test]
fn what_is_no_guest_is_said() {
    let message = |yaml: &str| format!("{:#}", guests("x.yaml", yaml).expect_err(yaml));
    assert!(message("kind: Pod").contains("A Pod has no vCPUs"));
    assert!(message("a: [").contains("Not YAML"));
    assert!(message("kind: VirtualMachine").contains("No spec.domain"));
    assert!(message("spec: {domain: {cpu: {cores: two}}}").contains("Cannot read"));
    assert!(message("spec: {domain: {cpu: {cores: 4000000000}}}").contains("4000000000"));
}

#[test]
fn a_bad_line_stops_nothing() {
    let good = json!({
        "kind": "kubeletUnit", "fn": "takeByTopologyNUMAPacked", "numCPUs": 2,
        "available": "0-3", "sort": "packed", "preferUncore": false,
        "topology": {
            "cpus[id,core,socket,numa,uncore]":
                [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [2, 0, 0, 0, 0], [3, 1, 0, 0, 0]],
            "numCPUs": 4, "numCores": 2, "numSockets": 1, "numNUMANodes": 1, "numUncoreCache": 1,
        },
    });
    let mut input = String::new();
    for line in ["{", r#"{"kind": "other"}"#, "", r#"{"kind": "endToEnd"}"#, "[1]", "\u{0}"] {
        writeln!(input, "{line}\n{good}").expect("a string");
    }
    let (mut out, mut said) = (Vec::new(), Vec::new());
    let bad =
        jsonl::predict_lines(input.as_bytes(), &mut out, &mut |line| said.push(line.to_owned()))
            .expect("a reader in memory");
    assert_eq!(bad, 5);
    expect![[r#"
        vmlab: Line 1: Not JSON: EOF while parsing an object at line 1 column 1
        vmlab: Line 3: Unknown kind "other": use kubevirtUnit, kubevirtHand, kubeletUnit or endToEnd
        vmlab: Line 7: Cannot read the entry: missing field `hostCPUs[id,core,socket,numa,uncore]`
        vmlab: Line 9: Unknown kind null: use kubevirtUnit, kubevirtHand, kubeletUnit or endToEnd
        vmlab: Line 11: Not JSON: expected value at line 1 column 1"#]]
    .assert_eq(&said.join("\n"));
    let out = String::from_utf8(out).expect("UTF-8");
    assert_eq!(out.lines().count(), 6);
    for line in out.lines() {
        let entry: Value = serde_json::from_str(line).expect(line);
        assert_eq!(entry["predicted"], json!({ "result": "0,2" }));
        assert_eq!(entry["numCPUs"], 2);
    }
}

/// Two sockets of 4 cores without threads, a node each with 2 GiB.
fn two_nodes() -> Host {
    let pcpus = (0..8).map(|id| Pcpu {
        id,
        online: true,
        socket: Some(id / 4),
        core: Some(id % 4),
        thread: Some(0),
        node: Some(id / 4),
        ..Pcpu::default()
    });
    let node = |id: u32| Node {
        id,
        pcpus: (4 * id..4 * id + 4).collect(),
        memory_bytes: Some(2 << 30),
        ..Node::default()
    };
    Host { pcpus: pcpus.collect(), nodes: vec![node(0), node(1)], ..Host::default() }
}

const STATIC_MEMORY: &str = "\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: \"0\"
topologyManagerPolicy: restricted
memoryManagerPolicy: Static
reservedMemory:
- numaNode: 0
  limits: {memory: 1Gi}
";

#[test]
fn a_kubelets_file_says_all_of_its_settings() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path");
    let args = ["predict", "-", "--kubelet-file", path];
    let args = Cli::try_parse_from(args).expect("arguments").args;
    let guest = SIBLINGS.replace("    devices", "    memory: {guest: 1.5Gi}\n    devices");
    let guests = || guests("x.yaml", &guest.replace("threads: 2", "threads: 1")).expect("a guest");
    std::fs::write(path, STATIC_MEMORY).expect("a file");
    let (text, _) = predict_all(&args, guests(), &two_nodes()).expect("a prediction");
    // pCPUs 1-3 are nearer, but node 0 has no more than 1 GiB for pods.
    for said in [
        "Kubelet  static policy, no options; topology restricted; memory Static\n",
        "gets pCPUs 4-5, memory of host node 1\n",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let (text, _) = predict_all(&args, guests(), &host()).expect("a prediction");
    assert!(text.contains("memory Static (not predicted: the host does not say"), "{text}");

    for (config, said) in [
        ("cpuManagerPolicy: none\n", "cpuManagerPolicy is not static"),
        ("a: [\n", ":"),
        ("", "0 documents, not one KubeletConfiguration"),
        ("cpuManagerPolicy: 3\n", "invalid type"),
        (
            "cpuManagerPolicy: static\nmemoryManagerPolicy: Static\n",
            "needs reservedMemory: the kubelet does not start without",
        ),
    ] {
        std::fs::write(path, config).expect("a file");
        let error = predict_all(&args, guests(), &two_nodes()).expect_err(config);
        assert!(format!("{error:#}").contains(said), "{config:?}: {error:#}");
    }
    let both = ["predict", "-", "--kubelet-file", path, "--reserved", "0"];
    Cli::try_parse_from(both).err().expect("they exclude each other");
}
