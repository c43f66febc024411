#!/usr/bin/env python3
"""vmlab compare against benchstat: the same two files, in turns.

Usage: bench/compare.py VMLAB BENCHSTAT [ROUNDS]

Generates two files of Go's benchmark format (500 000 lines each: 50 000
benchmarks of 10 lines with two units) and two that are full of ties, runs each
program on them in turns, in an order that is drawn anew each round, and prints
CPU seconds (user and system), the highest memory, and the ratios of the pairs.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile

LINES = 500_000
SAMPLES = 10


def generate(path: str, factor: float, seed: int, ties: bool) -> None:
    """Lines of benchmarks whose times scatter by a few per cent."""
    noise = random.Random(seed)
    shape = random.Random(7)
    with open(path, "w") as out:
        out.write("goos: linux\ngoarch: amd64\npkg: example.org/bench\n")
        for case in range(LINES // SAMPLES):
            time_ns = shape.uniform(100, 2000) if ties else shape.uniform(100, 1e6)
            size = shape.randrange(10, 5000)
            for _ in range(SAMPLES):
                value = time_ns * factor * noise.lognormvariate(0, 0.01 if ties else 0.03)
                text = f"{value:.0f}" if ties else f"{value:.1f}"
                extra = noise.randrange(3) if ties else 0
                out.write(
                    f"BenchmarkCase{case}/size={case % 17}k-8\t{int(1e9 / value)}"
                    f"\t{text} ns/op\t{size + extra} B/op\n"
                )


def measure(command: list[str]) -> tuple[float, float]:
    """CPU seconds and MB of a run."""
    with open(os.devnull, "w") as null:
        process = subprocess.Popen(command, stdout=null, stderr=null)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    vmlab, benchstat = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    order = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for ties, what in [(False, "few ties"), (True, "full of ties")]:
            files = [os.path.join(folder, name) for name in ("old.txt", "new.txt")]
            generate(files[0], 1.0, 1, ties)
            generate(files[1], 1.01, 2, ties)
            programs = {
                "benchstat": [benchstat, *files],
                "vmlab compare --benchstat": [vmlab, "compare", "--benchstat", *files],
                "vmlab compare": [vmlab, "compare", *files],
            }
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
            for _ in range(rounds):
                names = list(programs)
                order.shuffle(names)
                for name in names:
                    found[name].append(measure(programs[name]))
            print(f"2 x {LINES} lines, {what}; {rounds} rounds in turns")
            for name, runs in found.items():
                cpu = statistics.median(run[0] for run in runs)
                memory = max(run[1] for run in runs)
                pairs = [base[0] / run[0] for base, run in zip(found["benchstat"], runs)]
                print(
                    f"  {name:26} {cpu:6.2f} CPU-s {memory:6.0f} MB"
                    f"   benchstat takes {statistics.median(pairs):5.1f} x"
                    f" [{min(pairs):.1f}, {max(pairs):.1f}]"
                )
    print("  aim: at most 1.0 CPU-s and 100 MB")


if __name__ == "__main__":
    main()
