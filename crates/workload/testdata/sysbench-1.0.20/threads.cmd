sysbench threads --threads=8 --time=1 --thread-yields=100 --thread-locks=4 run
