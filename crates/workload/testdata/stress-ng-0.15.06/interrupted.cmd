timeout -s INT 0.3 stress-ng --cpu 2 --cpu-method matrixprod --timeout 1s --no-rand-seed --metrics --yaml /dev/stdout
