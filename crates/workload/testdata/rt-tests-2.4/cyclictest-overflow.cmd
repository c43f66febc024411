cyclictest --quiet --mlockall --threads=2 --interval=500 --loops=2000 --histogram=100 --histfile=/dev/null --json=/dev/stdout --policy=other --affinity
