# servers.sh: servers with a folder of their own in the current one, for scripts that take this in.

# start_nginx USER CONNECTIONS: answers GET /numbers at the socket `socket`.
start_nginx() {
    mkdir pages
    seq 1 30000 > pages/numbers
    cat > nginx.conf <<END
user $1 nogroup;
daemon off;
pid nginx.pid;
error_log errors notice;
worker_processes 2;
events { worker_connections $2; }
http {
    gzip on;
    gzip_types *;
    access_log off;
    server { listen unix:$PWD/socket; root pages; }
}
END
    /usr/sbin/nginx -p "$PWD/" -c nginx.conf -e errors &
    until [ -S socket ]; do sleep 0.05; done
}

# start_redis OPTION...: $server is its process.
start_redis() {
    redis-server --port 0 --unixsocket "$PWD/socket" --save '' "$@" > /dev/null &
    server=$!
    until redis-cli -s "$PWD/socket" ping > /dev/null 2>&1; do sleep 0.02; done
}

as_postgres() { runuser -u postgres -- "$@"; }

# start_postgres: with pgbench's tables; goes to its folder. $bin has its programs.
start_postgres() {
    bin=$(echo /usr/lib/postgresql/*/bin)
    mkdir -m 777 postgres
    cd postgres
    as_postgres "$bin/initdb" -D data --no-sync -A trust > /dev/null
    as_postgres "$bin/pg_ctl" -D data -l log -w -o "-k $PWD -c listen_addresses='' -c fsync=off" \
        start > /dev/null
    as_postgres "$bin/pgbench" -h "$PWD" -i -q postgres > /dev/null 2>&1
}

stop_postgres() { as_postgres "$bin/pg_ctl" -D data -m fast -w stop > /dev/null; }
