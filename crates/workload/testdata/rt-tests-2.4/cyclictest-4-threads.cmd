cyclictest --quiet --mlockall --threads=4 --interval=500 --loops=2000 --histogram=100000 --histfile=/dev/null --json=/dev/stdout --policy=other
