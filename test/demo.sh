#!/bin/sh
# Profiles redis-server under redis-benchmark for about ten seconds, and shows the functions with
# the most CPU time and with the most allocated bytes. The profiles stay, in a new folder.
set -eu
cd "$(dirname "$0")/.."

folder=$(mktemp -d "${TMPDIR:-/tmp}/libagent-demo-XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || :' EXIT

# A port that nobody listens on: the kernel picks one.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

echo "redis-server on port $port, profiled"
LD_PRELOAD="$PWD/libagent.so" LIBAGENT_PERIOD=5s LIBAGENT_OUTPUT="$folder" \
    LIBAGENT_FORMAT=pprof,html \
    redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no --daemonize no \
    > "$folder/redis.log" 2>&1 &
server=$!
for try in $(seq 100); do
    [ "$(redis-cli -p "$port" ping 2> /dev/null)" = PONG ] && break
    [ "$try" -lt 100 ] || { echo "redis-server does not answer:"; cat "$folder/redis.log"; exit 1; }
    sleep 0.1
done

echo "redis-benchmark, about ten seconds"
end=$(($(date +%s) + 10))
while [ "$(date +%s)" -lt "$end" ]; do
    redis-benchmark -h 127.0.0.1 -p "$port" -q -n 50000 -d 256 -r 10000 -P 16 \
        -t set,get,lpush,sadd,hset,zadd,lrange_100 > "$folder/benchmark.log" 2>&1
done
redis-cli -p "$port" shutdown nosave || :
wait "$server" || { echo "redis-server ended badly:"; cat "$folder/redis.log"; exit 1; }
server=

echo
python3 test/top.py cpu "$folder"/*.cpu.pb.gz
echo
# Redis allocates through wrappers; who called them is what one wants to know.
python3 test/top.py alloc_space --hide '^z(m|c|re)alloc' "$folder"/*.heap.pb.gz
echo
echo "The profiles (pprof -http=: FILE shows one as a graph):"
ls "$folder"/*.pb.gz
echo
echo "The same as pages, which any browser opens:"
ls "$folder"/*.html
