fio --output-format=json --name=vmlab --directory=/scratch --rw=randrw --ioengine=libaio --bs=4k --iodepth=32 --numjobs=1 --size=16m --time_based --runtime=1 --group_reporting --randseed=1 --direct=1
