perf bench futex wake --threads=4
