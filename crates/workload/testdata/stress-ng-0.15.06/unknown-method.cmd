stress-ng --cpu 2 --cpu-method nonsense --timeout 1s --no-rand-seed --metrics --yaml /dev/stdout
