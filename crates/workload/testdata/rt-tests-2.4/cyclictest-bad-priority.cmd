cyclictest --quiet --mlockall --threads=1 --priority=500 --loops=2000 --histfile=/dev/null --json=/dev/stdout
