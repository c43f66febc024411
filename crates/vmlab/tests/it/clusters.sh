#!/usr/bin/env bash
# Puts VMs into the cluster that scripts/with-kube started, asks vmlab about them, and
# keeps its answers and the server's lists.
#
# Usage: scripts/with-kube --node NAME clusters.sh VMLAB FOLDER
set -eu
vmlab=$1
cd "$2"

ask() { curl -sS -f --cacert "$KUBE_CA" -H "Authorization: Bearer $KUBE_TOKEN" "$@"; }
post() { # path, file
    ask -o answer -H 'Content-Type: application/json' "$KUBE_API$1" -d "@$2"
}
apply() { # path, name: the document comes from standard input
    ask -o answer -X PATCH -H 'Content-Type: application/apply-patch+yaml' --data-binary @- \
        "$KUBE_API$1/$2?fieldManager=test&force=true"
}
kubevirt=/apis/kubevirt.io/v1
echo '{"metadata": {"name": "shop"}}' >shop.json
post /api/v1/namespaces shop.json
for file in virtualmachines.*.json virtualmachineinstances.*.json; do
    post "$kubevirt/namespaces/shop/${file%%.*}" "$file"
done
post /apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes type.json
# What virt-operator and virt-handler do.
status='{"status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.7.0"}}'
ask -o answer -X PATCH -H 'Content-Type: application/merge-patch+json' -d "$status" \
    "$KUBE_API$kubevirt/namespaces/kubevirt/kubevirts/kubevirt/status"
labels='{"metadata": {"labels": {"kubevirt.io/schedulable": "true", "cpumanager": "true"}}}'
ask -o answer -X PATCH -H 'Content-Type: application/merge-patch+json' -d "$labels" \
    "$KUBE_API/api/v1/nodes/one"

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
ask "$KUBE_API/api/v1/nodes" >nodes.json
ask "$KUBE_API/api/v1/nodes/one/proxy/configz" >configz.json
ask "$KUBE_API/api/v1/pods" >pods.json
ask "$KUBE_API$kubevirt/virtualmachines" >vms.json
ask "$KUBE_API$kubevirt/virtualmachineinstances" >instances.json
ask "$KUBE_API$kubevirt/kubevirts" >kubevirts.json
ask "$KUBE_API/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes" >types.json
