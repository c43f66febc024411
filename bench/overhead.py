#!/usr/bin/env python3
"""What vmlab itself costs: time beside boot and benchmark, and memory.

Usage: bench/overhead.py VMLAB

Runs bench/overhead.toml (a benchmark that does next to nothing) and reads the
journal: a trial's wall time less its boot and less its benchmark is vmlab's
own, reading all counters included. Memory is the high-water mark of the vmlab
process, without QEMU.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def main() -> int:
    vmlab = sys.argv[1]
    study = os.path.join(os.path.dirname(os.path.abspath(__file__)), "overhead.toml")
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "results")
        process = subprocess.Popen(
            [vmlab, "run", study, "--out", results], stdout=subprocess.DEVNULL
        )
        peak_kib = 0
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status") as status:
                    for line in status:
                        if line.startswith("VmHWM:"):
                            peak_kib = int(line.split()[1])
            except (FileNotFoundError, ProcessLookupError):
                pass
            time.sleep(0.05)
        if process.returncode != 0:
            print(f"overhead: vmlab run ended with {process.returncode}", file=sys.stderr)
            return 1
        with open(os.path.join(results, "journal.jsonl")) as journal:
            events = [json.loads(line.rsplit("\t", 1)[0]) for line in journal]
    trials = [event for event in events if event["event"] == "trial-ended"]
    own = [
        trial["wall_s"] - trial["boot_s"] - sum(run["wall_s"] for run in trial["runs"])
        for trial in trials
    ]
    print(
        f"overhead a trial, all counters read: median {statistics.median(own):.3f} s, "
        f"greatest {max(own):.3f} s ({len(own)} trials; aim: at most 0.3 s)"
    )
    print(f"memory of vmlab: {peak_kib / 1024:.1f} MB resident at most (aim: at most 50 MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
