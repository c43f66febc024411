#!/usr/bin/env python3
"""Makes cases.json: samples and what benchstat says about them.

Needs benchstat (go install golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da)
on the path. Usage: make.py > cases.json
"""

import csv
import io
import json
import pathlib
import random
import subprocess
import tempfile

SHAPES = [  # values of A, values of B, digits that are kept (few make ties)
    (3, 3, 6), (4, 4, 6), (5, 7, 6), (6, 6, 6), (10, 10, 6), (20, 15, 6), (30, 31, 6), (50, 50, 6),
    (51, 20, 6), (70, 80, 6), (4, 4, 1), (8, 9, 1), (10, 10, 1), (25, 25, 1), (26, 10, 1), (40, 45, 1),
    (12, 1, 6), (2, 9, 6), (25, 24, 0), (7, 7, 0),
    (21, 22, 6), (23, 24, 6), (25, 26, 6), (27, 28, 6), (29, 30, 6),
]


def ask(a, b):
    with tempfile.TemporaryDirectory() as folder:
        for name, values in (("a", a), ("b", b)):
            lines = "".join(f"BenchmarkX 1 {value!r} ns/op\n" for value in values)
            pathlib.Path(folder, name).write_text(lines)
        command = ["benchstat", "-format", "csv", "a", "b"]
        text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    row = next(row for row in csv.reader(io.StringIO(text)) if row and row[0] == "X")
    return row


def main():
    random.seed(7)
    cases = []
    for shift in (0.0, 1.2):
        for of_a, of_b, digits in SHAPES:
            a = [round(random.gauss(10, 2), digits) for _ in range(of_a)]
            b = [round(random.gauss(10 + shift, 2), digits) for _ in range(of_b)]
            row = ask(a, b)
            p = float(row[-1].split()[0].removeprefix("p="))
            cases.append({"a": a, "b": b, "ci": [row[2], row[4]], "p": p})
    print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")


main()
