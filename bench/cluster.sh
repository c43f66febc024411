#!/usr/bin/env bash
# `vmlab lint --cluster` and `vmlab plan --cluster` over lists of 10 000 VMs, of which
# half run, on 200 nodes: seconds and the most memory. The lists come from a server here
# that has them ready, so that the time is vmlab's; kubectl's own time for the same lists
# stands beside it where there is one.
#
# Usage: bench/cluster.sh [VMS] [NODES]
set -euo pipefail
cd "$(dirname "$0")/.."
vms=${1:-10000} nodes=${2:-200}
vmlab=$PWD/target/release/vmlab
work=$(mktemp -d)
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT

python3 bench/cluster_api.py "$vms" "$nodes" "$PWD/docs/plan/two-sockets.json" "$work" &
server=$!
until [ -s "$work/kubeconfig" ]; do
	kill -0 $server
	sleep 0.1
done

# timed NAME COMMAND...: seconds and the most memory.
timed() {
	local name=$1
	shift
	python3 - "$name" "$@" <<'END'
import resource, subprocess, sys, time

begin = time.monotonic()
with open("/dev/null", "w") as nothing:
    code = subprocess.run(sys.argv[2:], stdout=nothing).returncode
wall_s = time.monotonic() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{sys.argv[1]:32} {wall_s:6.2f} s  {used.ru_utime + used.ru_stime:6.2f} s of CPU  "
      f"{used.ru_maxrss / 1024:6.0f} MiB  exit {code}")
END
}
echo "$vms VMs, $nodes nodes"
cluster=(--cluster --kubeconfig "$work/kubeconfig")
timed "lint --cluster --json" "$vmlab" lint "${cluster[@]}" --json
timed "lint, hosts known" "$vmlab" lint "${cluster[@]}" --hosts "$work/hosts" --json
timed "plan --cluster --json" "$vmlab" plan "${cluster[@]}" --json
timed "plan, hosts known" "$vmlab" plan "${cluster[@]}" --hosts "$work/hosts" --json
if command -v kubectl >/dev/null; then
	lists=(/api/v1/{nodes,pods} /apis/kubevirt.io/v1/virtualmachine{s,instances})
	timed "kubectl get --raw, same lists" bash -c 'for list in "${@:2}"; do
		kubectl --kubeconfig "$1" get --raw "$list"
	done' - "$work/kubeconfig" "${lists[@]}"
fi
