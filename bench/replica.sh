#!/usr/bin/env bash
# From `vmlab replica up` to a host in which commands run: one of 8 pCPUs and one of
# 32 pCPUs in two nodes, each booted and restored from a saved state, in turns. Prints
# seconds and the machine's load, asserts nothing.
#
# Usage: bench/replica.sh [ROUNDS]
#
# Images are built and states saved before anything is timed.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
rounds=${1:-3}
vmlab=${VMLAB:-target/release/vmlab}
work=$(mktemp -d)
export XDG_STATE_HOME=$work
trap '"$vmlab" replica down --all >/dev/null; rm -rf "$work"' EXIT

cat >"$work/8-pcpus.txt" <<'END'
Architecture:        x86_64
CPU(s):              8
On-line CPU(s) list: 0-7
Thread(s) per core:  1
Core(s) per socket:  8
Socket(s):           1
NUMA node(s):        1
NUMA node0 CPU(s):   0-7
END
hosts=("8 pCPUs=$work/8-pcpus.txt" "32 pCPUs=--like xeon-4208")

# up WORDS: the seconds of one `up`, the command's own and those of the boot.
up() {
	local began ended ready
	began=$(date +%s.%N)
	# shellcheck disable=SC2086
	ready=$("$vmlab" replica up $1 --name bench --timeout 1800 --json |
		sed -n 's/.*"ready_s": \([0-9.]*\).*/\1/p')
	ended=$(date +%s.%N)
	"$vmlab" replica down bench >/dev/null
	awk -v b="$began" -v e="$ended" -v r="$ready" 'BEGIN { printf "%.1f %.1f", e - b, r }'
}

for host in "${hosts[@]}"; do
	# Saves the state, if there is none yet.
	up "${host#*=}" >/dev/null
done
for round in $(seq "$rounds"); do
	for host in "${hosts[@]}"; do
		for how in booted restored; do
			fresh=
			[ $how = restored ] || fresh=--fresh
			read -r load _ </proc/loadavg
			times=$(up "${host#*=} $fresh")
			read -r whole ready <<<"$times"
			echo "round $round: ${host%%=*}, $how: $whole s in all, $ready s from QEMU's start (load before: $load)"
		done
	done
done
