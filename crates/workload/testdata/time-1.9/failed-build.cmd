time -f kernbench: %e %U %S %P %c %w false
