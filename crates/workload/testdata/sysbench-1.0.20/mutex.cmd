sysbench mutex --threads=4 --time=0 --mutex-num=64 --mutex-locks=1000 --mutex-loops=1000 run
