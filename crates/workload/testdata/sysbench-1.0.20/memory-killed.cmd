timeout -s KILL 0.3 sysbench memory --threads=2 --time=1 run
