#!/usr/bin/env bash
# `vmlab report` and `vmlab compare` of a study on many nodes: seconds and the most memory.
# The nodes are made up: a handful of simulated ones, of which each node is a copy.
#
# Usage: bench/nodes.sh [NODES] [BLOCKS]     1000 nodes of 6 blocks by default
set -euo pipefail
cd "$(dirname "$0")/.."
nodes=${1:-1000} blocks=${2:-6}
vmlab=${VMLAB:-$PWD/target/release/vmlab}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/study.toml" <<'END'
vmlab = 1
title = "One or two"
baseline = "one"

[vm]
memory_mib = 512

[[variant]]
name = "one"
vm.vcpus = 1

[[variant]]
name = "two"
vm.vcpus = 2

[[workload]]
run = "hackbench"
params = { groups = 2, loops = 20 }

[[workload]]
run = "probe-lock"
END
made=8
for ((number = 0; number < made; number++)); do
    "$vmlab" run "$work/study.toml" --on sim:studies/hosts/four-sockets.json --seed $number \
        --blocks "$blocks" --until budget --out "$work/made/$number" >/dev/null
done

# Copies whose values are those of another draw: each node by a factor of its own.
python3 - "$work" "$nodes" "$made" <<'END'
import json, math, os, random, shutil, sys, zlib

work, nodes, made = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
out = f"{work}/set"
entries = []
for number in range(nodes):
    chance = random.Random(number)
    kind = f"kind-{number % 5}"
    folder = f"{out}/nodes/node-{number:04}"
    os.makedirs(f"{folder}/blobs")
    source = f"{work}/made/{number % made}"
    for name in ["plan.json", "host.json"]:
        shutil.copy(f"{source}/{name}", folder)
    effect = chance.gauss(0.02 * (number % 5), 0.05)
    before = 0
    with open(f"{source}/journal.jsonl") as lines, open(f"{folder}/journal.jsonl", "w") as to:
        for line in lines:
            text, number_of_line, _, _ = line.rstrip("\n").split("\t")
            event = json.loads(text)
            for run in event.get("runs", []):
                factor = math.exp(effect if event["trial"]["variant"] == "two" else 0)
                for sample in run["samples"]:
                    sample["value"] *= factor * math.exp(chance.gauss(0, 0.02))
            # The line's number and the checksum of the line before stand behind it.
            text = f"{json.dumps(event)}\t{number_of_line}\t{before:08x}"
            before = zlib.crc32(text.encode())
            to.write(f"{text}\t{before:08x}\n")
    entries.append({
        "name": f"node-{number:04}", "class": kind, "folder": f"nodes/node-{number:04}",
        "state": "complete", "phases_s": {}, "warnings": [],
    })
with open(f"{out}/nodes.json", "w") as to:
    json.dump({
        "version": 1, "vmlab": "bench", "study": "One or two", "server": "https://bench",
        "namespace": "bench", "image": "bench", "class_label": "kind", "started_unix_s": 0,
        "nodes": entries,
    }, to)
END

# timed NAME COMMAND...: seconds and the most memory.
timed() {
    python3 - "$@" <<'END'
import resource, subprocess, sys, time

begin = time.monotonic()
with open("/dev/null", "w") as nothing:
    code = subprocess.run(sys.argv[2:], stdout=nothing).returncode
wall_s = time.monotonic() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{sys.argv[1]:20} {wall_s:6.2f} s  {used.ru_utime + used.ru_stime:6.2f} s of CPU  "
      f"{used.ru_maxrss / 1024:6.0f} MiB  exit {code}")
END
}
echo "$nodes nodes, $blocks blocks each"
timed "report" "$vmlab" report "$work/set"
timed "report --format json" "$vmlab" report "$work/set" --format json
timed "compare" "$vmlab" compare "$work/set"
"$vmlab" report "$work/set" | head -20
