#!/usr/bin/env bash
# Puts VMs into a cluster of `vmlab cluster up`, asks vmlab about them, and keeps its
# answers and the server's lists.
#
# Usage: clusters.sh VMLAB CLUSTER SERVER PROGRAMS FOLDER
#
# CLUSTER is the cluster's folder, PROGRAMS that of scripts/get-kube.
set -eu
vmlab=$1 cluster=$2 api=$3 programs=$4 work=$5
scripts=$(cd "$(dirname "$0")/../../../../scripts" && pwd)
cd "$work"

ask() {
    curl -sS -f --cacert "$cluster/ca.crt" --cert "$cluster/admin.crt" --key "$cluster/admin.key" "$@"
}
post() { # path, content
    ask -o answer -H 'Content-Type: application/json' "$api$1" -d "$2"
}
apply() { # path, name: the document comes from standard input
    ask -o answer -X PATCH -H 'Content-Type: application/apply-patch+yaml' --data-binary @- \
        "$api$1/$2?fieldManager=test&force=true"
}
# shellcheck source=scripts/kubelet-node
. "$scripts/kubelet-node"
cp "$cluster/ca.crt" .
gates=CPUManager,NUMA
# shellcheck source=scripts/kubevirt-objects
. "$scripts/kubevirt-objects"

# The administrator, and a user without any right for whom they can speak.
python3 - "$cluster/kubeconfig" >kubeconfig <<'END'
import json, sys

config = json.load(open(sys.argv[1]))
reader = json.loads(json.dumps(config["users"][0]["user"])) | {"as": "reader"}
config["users"].append({"name": "reader", "user": reader})
cluster = config["clusters"][0]["name"]
config["contexts"].append({"name": "reader", "context": {"cluster": cluster, "user": "reader"}})
json.dump(config, sys.stdout)
END
export KUBECONFIG=$work/kubeconfig

kubevirt=/apis/kubevirt.io/v1
post /api/v1/namespaces '{"metadata": {"name": "shop"}}'
for file in virtualmachines.*.json virtualmachineinstances.*.json; do
    post "$kubevirt/namespaces/shop/${file%%.*}" "@$file"
done
post /apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes @type.json
# What virt-operator and virt-handler do.
status='{"status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.7.0"}}'
ask -o answer -X PATCH -H 'Content-Type: application/merge-patch+json' -d "$status" \
    "$api$kubevirt/namespaces/kubevirt/kubevirts/kubevirt/status"
labels='{"metadata": {"labels": {"kubevirt.io/schedulable": "true", "cpumanager": "true"}}}'
ask -o answer -X PATCH -H 'Content-Type: application/merge-patch+json' -d "$labels" \
    "$api/api/v1/nodes/vmlab"

code=0
"$vmlab" plan --cluster=reader >forbidden.txt 2>&1 || code=$?
[ $code -eq 2 ]
"$vmlab" k8s rbac --user reader >role.yaml
rbac=/apis/rbac.authorization.k8s.io/v1
awk '/^---$/ { n++; next } { print > ("role." n+0 ".yaml") }' role.yaml
apply $rbac/clusterroles vmlab-reader <role.0.yaml
apply $rbac/clusterrolebindings vmlab-reader <role.1.yaml
# The server learns of a new role a moment later.
for _ in $(seq 100); do
    code=0
    "$vmlab" plan --cluster=reader --json >plan.json 2>plan.txt || code=$?
    [ $code -eq 2 ] || grep -q 'nodes/proxy\|May not' plan.json || break
    sleep 0.1
done
[ $code -eq 1 ]
# A kubelet writes its node's status again and again: what was read is what is compared.
"$vmlab" lint --cluster=reader --json >lint.json || [ $? -eq 1 ]
ask "$api/api/v1/nodes" >nodes.json
ask "$api/api/v1/nodes/vmlab/proxy/configz" >configz.json
ask "$api/api/v1/pods" >pods.json
ask "$api$kubevirt/virtualmachines" >vms.json
ask "$api$kubevirt/virtualmachineinstances" >instances.json
ask "$api$kubevirt/kubevirts" >kubevirts.json
ask "$api/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes" >types.json
