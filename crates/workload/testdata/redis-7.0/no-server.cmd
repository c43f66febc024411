sh -c timeout 30 redis-cli -h 127.0.0.1 -p 6379 ping >/dev/null && exec redis-benchmark --csv -h 127.0.0.1 -p 6379 -t get -n 2000 -c 5 -P 1 -d 64
