stress-ng --cpu 1 --pipe 1 --timeout 1s --no-rand-seed --metrics --yaml /dev/stdout
