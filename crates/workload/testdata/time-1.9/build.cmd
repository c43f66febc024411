time -f kernbench: %e %U %S %P %c %w sh -c i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done
