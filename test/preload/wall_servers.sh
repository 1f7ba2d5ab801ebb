# wall_servers.sh redis|nginx USER|postgres: a server that answers a little, and waits most of the
# time, for some two seconds.
set -e
. "$(dirname "$0")/servers.sh"
case $1 in
redis)
    start_redis
    redis-benchmark -s "$PWD/socket" -q -n 20000 -t set,get,lpush > /dev/null
    for i in 1 2 3 4 5 6 7 8 9 10; do
        redis-cli -s "$PWD/socket" incr counter > /dev/null
        sleep 0.15
    done
    redis-cli -s "$PWD/socket" shutdown nosave
    ;;
nginx)
    start_nginx "$2" 64
    /usr/bin/python3 - <<'END'
import http.client, socket, time
for i in range(300):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect("socket")
    connection.request("GET", "/numbers", headers={"Accept-Encoding": "gzip", "Connection": "close"})
    assert connection.getresponse().status == 200
    connection.close()
    time.sleep(0.005)
END
    kill -QUIT "$(cat nginx.pid)"
    ;;
postgres)
    start_postgres
    as_postgres "$bin/pgbench" -h "$PWD" -T 2 -c 2 -R 50 postgres > /dev/null 2>&1
    stop_postgres
    ;;
esac
wait
