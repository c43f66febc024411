stress-ng --mutex 2 --timeout 1s --metrics
