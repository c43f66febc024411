sockperf ping-pong --ip 127.0.0.1 --port 11111 --msg-size 64 --time 1 --tcp
