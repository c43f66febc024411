cyclictest --quiet --mlockall --threads=2 --interval=200 --loops=10000 --histogram=100000 --histfile=/dev/null --json=/dev/stdout --priority=80 --affinity
