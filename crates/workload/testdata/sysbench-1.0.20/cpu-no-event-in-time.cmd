sysbench cpu --threads=1 --time=1 --events=0 --cpu-max-prime=10000000 run
