stress-ng --stdout --cpu 1 --timeout 1s --metrics-brief
