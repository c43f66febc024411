timeout -s KILL 0.3 cyclictest --quiet --mlockall --threads=2 --interval=500 --loops=20000 --histogram=1000 --histfile=/dev/null --json=/dev/stdout --priority=80 --affinity
