redis-benchmark --csv -h 127.0.0.1 -t get -p 6379 -n 2000 -c 5 -P 1 -d 64
