#!/usr/bin/env bash
# How fast `vmlab import` reads: MB/s for each format.
# Usage: bench/import.sh [MEGABYTES]
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-100}
cargo run --quiet --release -p logs --example import_bench "$megabytes"
