cyclictest --nonsense
