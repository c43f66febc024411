stress-ng --cpu 1 --timeout 1s --yaml /dev/stdout
