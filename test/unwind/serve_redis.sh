#!/bin/sh
# serve_redis.sh start|stop FOLDER: redis under redis-benchmark, over a socket in that folder.
case $1 in
start)
    command -v redis-benchmark redis-server || exit 1
    redis-server --port 0 --unixsocket "$2/socket" --save '' --dir "$2" --pidfile "$2/pid" \
        --daemonize yes --logfile "$2/server" || exit 1
    until redis-cli -s "$2/socket" ping; do sleep 0.1; done
    redis-benchmark -s "$2/socket" -q -l -P 4 -t set,get,lpush,lrange_100,zadd,hset \
        > /dev/null 2>&1 &
    echo $! > "$2/client"
    ;;
stop)
    [ ! -f "$2/client" ] || kill "$(cat "$2/client")"
    redis-cli -s "$2/socket" shutdown nosave
    ;;
esac > /dev/null 2>&1
