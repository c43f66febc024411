sysbench cpu --nonsense=1 run
