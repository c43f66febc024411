sockperf throughput --ip 127.0.0.1 --port 11111 --msg-size 64 --time 2
