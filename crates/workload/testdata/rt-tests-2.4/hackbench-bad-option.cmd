hackbench --nonsense
