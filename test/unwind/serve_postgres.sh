#!/bin/sh
# serve_postgres.sh start|stop FOLDER: a process of PostgreSQL that serves pgbench, over a socket in
# that folder. The server refuses to be root's, so it gets the user postgres, which its package made.
bin=$(echo /usr/lib/postgresql/*/bin)
as_postgres() { if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
cd / || exit 1
case $1 in
start)
    [ -x "$bin/pgbench" ] || { echo "PostgreSQL is not there"; exit 1; }
    [ "$(id -u)" -ne 0 ] || chown postgres "$2"
    as_postgres "$bin/initdb" -D "$2/data" --no-sync -A trust || exit 1
    as_postgres "$bin/pg_ctl" -D "$2/data" -l "$2/server" -w \
        -o "-k $2 -c listen_addresses='' -c fsync=off" start || exit 1
    as_postgres "$bin/pgbench" -h "$2" -i -q postgres || exit 1
    as_postgres "$bin/pgbench" -h "$2" -T 600 -c 1 postgres > /dev/null 2>&1 &
    until [ -s "$2/pid" ]; do
        sleep 0.2
        as_postgres "$bin/psql" -h "$2" -At postgres -c \
            "select pid from pg_stat_activity where application_name = 'pgbench'" > "$2/pid"
    done
    ;;
stop)
    as_postgres "$bin/pg_ctl" -D "$2/data" -m immediate -w stop > /dev/null 2>&1
    ;;
esac
