# wall_servers.sh redis|nginx USER|postgres: a server that answers a little, and waits most of the
# time, for some two seconds.
set -e
case $1 in
redis)
    redis-server --port 0 --unixsocket "$PWD/socket" --save '' > /dev/null &
    until redis-cli -s "$PWD/socket" ping > /dev/null 2>&1; do sleep 0.05; done
    redis-benchmark -s "$PWD/socket" -q -n 20000 -t set,get,lpush > /dev/null
    for i in 1 2 3 4 5 6 7 8 9 10; do
        redis-cli -s "$PWD/socket" incr counter > /dev/null
        sleep 0.15
    done
    redis-cli -s "$PWD/socket" shutdown nosave
    ;;
nginx)
    mkdir pages
    seq 1 30000 > pages/numbers
    cat > nginx.conf <<END
user $2 nogroup;
daemon off;
pid nginx.pid;
error_log errors notice;
worker_processes 2;
events { worker_connections 64; }
http {
    gzip on;
    gzip_types *;
    access_log off;
    server { listen unix:$PWD/socket; root pages; }
}
END
    /usr/sbin/nginx -p "$PWD/" -c nginx.conf -e errors &
    until [ -S socket ]; do sleep 0.05; done
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
    bin=$(echo /usr/lib/postgresql/*/bin)
    mkdir -m 777 postgres
    cd postgres
    as_postgres() { runuser -u postgres -- "$@"; }
    as_postgres "$bin/initdb" -D data --no-sync -A trust > /dev/null
    as_postgres "$bin/pg_ctl" -D data -l log -w -o "-k $PWD -c listen_addresses='' -c fsync=off" \
        start > /dev/null
    as_postgres "$bin/pgbench" -h "$PWD" -i -q postgres > /dev/null 2>&1
    as_postgres "$bin/pgbench" -h "$PWD" -T 2 -c 2 -R 50 postgres > /dev/null 2>&1
    as_postgres "$bin/pg_ctl" -D data -m fast -w stop > /dev/null
    ;;
esac
wait
