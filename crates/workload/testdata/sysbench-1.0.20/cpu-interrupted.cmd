timeout -s INT 0.3 sysbench cpu --threads=2 --time=1 --events=0 --cpu-max-prime=10000 run
