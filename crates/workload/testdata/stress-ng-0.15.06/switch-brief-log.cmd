stress-ng --switch 2 --timeout 1s --metrics-brief
