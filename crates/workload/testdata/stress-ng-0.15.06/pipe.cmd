stress-ng --pipe 2 --timeout 1s --no-rand-seed --metrics --yaml /dev/stdout
