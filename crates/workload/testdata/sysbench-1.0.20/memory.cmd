sysbench memory --threads=2 --time=1 --memory-block-size=64K --memory-total-size=1000000G --memory-oper=write --memory-access-mode=seq --memory-scope=global run
