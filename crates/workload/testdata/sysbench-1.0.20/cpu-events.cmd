sysbench cpu --threads=3 --time=0 --events=500 --cpu-max-prime=2000 run
