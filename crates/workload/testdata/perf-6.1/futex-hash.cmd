perf bench futex hash --threads=2 --runtime=1
