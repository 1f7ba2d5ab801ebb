# Loads redis-server at $1/socket: redis-benchmark, which fails at the first reply that is an error,
# beside 30,000 commands of many kinds, whose replies are told. Told at the end: how often each
# command was called and failed, how many bytes all replies had together, the digest of all data.
socket=$1/socket
until redis-cli -s "$socket" ping > /dev/null 2>&1; do sleep 0.01; done
redis-cli -s "$socket" config resetstat
redis-benchmark -s "$socket" -q -n 50000 -d 100 -t set,get,incr,lpush,sadd,zadd,lrange_100 \
    > benchmark.out &
awk 'BEGIN {
    print "SELECT 1"
    for (i = 0; i < 2000; i++) {
        k = i * 7919 % 211
        print "SET s" k " value" i
        print "APPEND s" k " and-more"
        print "GETRANGE s" k " 2 9"
        print "INCRBY n" k " " i
        print "LPUSH l" k " " i " " i + 1
        print "LRANGE l" k " 0 5"
        print "LINSERT l" k " BEFORE " i " x"
        print "SADD set" k % 7 " " i
        print "SCARD set" k % 7
        print "ZADD z" k " " i % 97 " m" i
        print "ZRANGE z" k " 0 -1 WITHSCORES"
        print "HSET h" k " f" i " " i
        print "HGETALL h" k
        print "LPUSH s" k " wrong"
        print "EVAL \"return redis.call(\047GET\047, KEYS[1]) .. ARGV[1]\" 1 s" k " " i
    }
    print "SORT l1 ALPHA LIMIT 0 20"
}' | redis-cli -s "$socket" > replies
wc -l < replies
sha256sum replies
wait $!
echo "benchmark $?"
redis-cli -s "$socket" info stats | grep -e total_net_output_bytes -e total_commands_processed
redis-cli -s "$socket" info commandstats | sed 's/usec[^,]*,//g' | sort
redis-cli -s "$socket" debug digest
redis-cli -s "$socket" bgsave
until redis-cli -s "$socket" info persistence | grep rdb_bgsave_in_progress:0; do :; done
redis-cli -s "$socket" info persistence | grep rdb_last_bgsave_status
kill -TERM "$(cat "$1/redis.pid")"
