stress-ng --cpu 2 --cpu-method matrixprod --timeout 1s --no-rand-seed --metrics --yaml /dev/stdout
