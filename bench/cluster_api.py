"""A Kubernetes API server's lists for bench/cluster.sh, made once and given in pages.

Usage: cluster_api.py VMS NODES HOST FOLDER: a kubeconfig and a host file of each node are
put into FOLDER.
"""

import http.server
import json
import pathlib
import sys
import urllib.parse

vms, nodes = int(sys.argv[1]), int(sys.argv[2])
host, folder = pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])
CREATED = "2026-01-02T03:04:05Z"
NODES = [f"node-{at:04}" for at in range(nodes)]


def node(name):
    labels = {f"cpu-feature.node.kubevirt.io/feature-{at}": "true" for at in range(60)}
    labels |= {"kubernetes.io/arch": "amd64", "kubevirt.io/schedulable": "true", "cpumanager": "true"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"cpu": "32", "memory": "64Gi"},
            "allocatable": {"cpu": "30", "memory": "60Gi", "hugepages-1Gi": "32Gi"},
            "nodeInfo": {
                "kubeletVersion": "v1.36.3", "kernelVersion": "6.12.0", "machineID": "",
                "systemUUID": "", "bootID": "", "osImage": "", "containerRuntimeVersion": "",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    }


def spec(at):
    cpu = {"cores": 1 + at % 4, "threads": 2, "model": "host-passthrough"}
    if at % 5 == 0:
        cpu |= {"dedicatedCpuPlacement": True, "isolateEmulatorThread": at % 10 == 0}
    disks = [
        {"name": name, "disk": {"bus": "virtio"}} for name in ("root", "data", "cloudinit")
    ]
    volumes = [
        {"name": "root", "dataVolume": {"name": f"vm-{at}-root"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": f"vm-{at}-data"}},
        {"name": "cloudinit", "cloudInitNoCloud": {"userData": "#cloud-config\nusers: []\n" * 8}},
    ]
    return {
        "domain": {
            "cpu": cpu,
            "memory": {"guest": "2Gi"},
            "machine": {"type": "q35"},
            "devices": {
                "disks": disks,
                "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": volumes,
    }


def meta(at, **more):
    labels = {"app": f"app-{at % 50}", "team": f"team-{at % 20}"}
    fields = [{"manager": "virt-controller", "fieldsV1": {f"f:{name}": {} for name in range(40)}}]
    return {
        "name": f"vm-{at}", "namespace": f"team-{at % 20}", "creationTimestamp": CREATED,
        "uid": f"00000000-0000-0000-0000-{at:012}", "labels": labels, "managedFields": fields,
    } | more


def machine(at):
    template = {"metadata": {"labels": {"vm": str(at)}}, "spec": spec(at)}
    return {
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": meta(at),
        "spec": {"runStrategy": "Always", "template": template},
        "status": {"created": at % 2 == 0, "printableStatus": "Running"},
    }


def instance(at):
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": f"vm-{at}", "uid": "1"}
    return {
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": meta(at, ownerReferences=[owner]), "spec": spec(at),
        "status": {"nodeName": NODES[at // 2 % nodes], "phase": "Running"},
    }


def pod(at):
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": f"vm-{at}", "uid": "1"}
    own = at % 5 == 0
    cpus = (1 + at % 4) * 2 + (at % 10 == 0)
    amounts = {"cpu": str(cpus) if own else "500m", "memory": "3Gi"}
    return {
        "metadata": meta(at, name=f"virt-launcher-vm-{at}", ownerReferences=[owner]),
        "spec": {
            "nodeName": NODES[at // 2 % nodes],
            "containers": [{"name": "compute", "resources": {"limits": amounts, "requests": amounts}}],
        },
        "status": {
            "phase": "Running", "qosClass": "Guaranteed" if own else "Burstable", "startTime": CREATED,
        },
    }


KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {}, "status": {"observedKubeVirtVersion": "v1.7.0"},
}
CONFIGZ = json.dumps({"kubeletconfig": {
    "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0,16", "topologyManagerPolicy": "best-effort",
}}).encode()
running = range(0, vms, 2)
KV = "/apis/kubevirt.io/v1/"
LISTS = {
    "/api/v1/nodes": [json.dumps(node(name)) for name in NODES],
    "/api/v1/pods": [json.dumps(pod(at)) for at in running],
    KV + "virtualmachines": [json.dumps(machine(at)) for at in range(vms)],
    KV + "virtualmachineinstances": [json.dumps(instance(at)) for at in running],
    KV + "kubevirts": [json.dumps(KUBEVIRT)],
}


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        status, body = 200, CONFIGZ
        if not url.path.endswith("/configz"):
            items = LISTS.get(url.path)
            begin = int(query.get("continue", ["0"])[0])
            end = begin + int(query.get("limit", ["1000000"])[0])
            if items is None:
                status, body = 404, b"{}"
            else:
                metadata = {"continue": str(end)} if end < len(items) else {}
                page = ",".join(items[begin:end])
                body = f'{{"metadata": {json.dumps(metadata)}, "items": [{page}]}}'.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
(folder / "hosts").mkdir()
for name in NODES:
    (folder / "hosts" / f"{name}.json").symlink_to(host)
config = {
    "apiVersion": "v1", "kind": "Config", "current-context": "bench",
    "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
    "users": [{"name": "bench", "user": {"token": "bench"}}],
    "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
}
ready = folder / "ready"
ready.write_text(json.dumps(config))
ready.rename(folder / "kubeconfig")
server.serve_forever()
