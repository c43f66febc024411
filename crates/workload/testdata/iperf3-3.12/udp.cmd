iperf3 --json --client 127.0.0.1 --port 5201 --time 1 --parallel 1 --udp --bitrate 50M
