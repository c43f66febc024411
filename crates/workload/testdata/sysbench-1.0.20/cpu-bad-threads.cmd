sysbench cpu --threads=0 --time=1 run
