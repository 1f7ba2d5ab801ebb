# heap_programs.sh redis N | sqlite N | python N | nginx | gcc | cursors | postgres: programs that fill
# their heap, give a part of it back, and are asked for a profile (signal 39, rtmin+5) each time, while
# they wait: for the next command, for clients that do not read on, for the rest of a source.
# postgres alone writes its profiles as it works.
set -e
. "$(dirname "$0")/servers.sh"

# profile PID N: the N-th profile of that process, which is asked for it. Quiet around it, for the
# trace's sake, which tells all that was live within its ticks of 4 ms.
cat > profile <<'END'
sleep 0.05
kill -39 "$1"
until [ "$(find "$LIBAGENT_OUTPUT" -name "*.$1.*.heap.pb*" | wc -l)" -ge "$2" ]; do
    kill -0 "$1" || exit 1
    sleep 0.02
done
sleep 0.05
END

case $1 in
redis)
    start_redis --enable-debug-command yes
    redis-cli -s "$PWD/socket" debug populate "$2" key 1000 > /dev/null
    sh profile "$server" 1
    redis-cli -s "$PWD/socket" eval "for i = 0, $2 - 1, 2 do redis.call('del', 'key:' .. i) end" 0 \
        > /dev/null
    sh profile "$server" 2
    redis-cli -s "$PWD/socket" shutdown nosave
    wait
    ;;
sqlite)
    sqlite3 :memory: <<END
CREATE TABLE t(i INTEGER PRIMARY KEY, a TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO t SELECT i, hex(zeroblob(i % 60)) FROM n;
CREATE INDEX by_text ON t(a, i);
.shell sh profile \$PPID 1
DELETE FROM t WHERE i % 10 < 5;
VACUUM;
.shell sh profile \$PPID 2
SELECT count(*) FROM t;
END
    ;;
python)
    PYTHONMALLOC=malloc exec /usr/bin/python3 -S -s - "$2" <<'END'
import gc, os, subprocess, sys
def profile(number):
    subprocess.run(["sh", "profile", str(os.getpid()), str(number)], check=True)
class Node:
    pass
def ring(i):
    first, second = Node(), Node()
    first.other, second.other = second, first
    first.text, second.list = "text %d" % i * (i % 7), [i, i * 1.5]
    return first
nodes = [ring(i) for i in range(int(sys.argv[1]))]
profile(1)
del nodes[::2]
gc.collect()
profile(2)
END
    ;;
nginx)
    start_nginx nobody 512
    seq 1 200000 > pages/many # packed it is more than a socket takes of it
    /usr/bin/python3 - <<'END'
import http.client, os, signal, socket, subprocess, time
def get(page, keep):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect("socket")
    connection.request("GET", page, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.status == 200
    return (connection, answer) if keep else answer.read()
master = int(open("nginx.pid").read())
def workers():
    with open(f"/proc/{master}/task/{master}/children") as children:
        return children.read().split()
asked = {}
def profile():
    for worker in workers():
        asked[worker] = asked.get(worker, 0) + 1
        subprocess.run(["sh", "profile", worker, str(asked[worker])], check=True)
for reload in range(3):
    half_read = [get("/many", True) for i in range(60)]
    profile()
    before = set(workers())
    os.kill(master, signal.SIGHUP)
    while len(set(workers()) - before) < 2: # the old ones have clients to wait for
        time.sleep(0.02)
    for i in range(200):
        get("/numbers", False)
    profile()
    for connection, answer in half_read:
        answer.read()
END
    kill -QUIT "$(cat nginx.pid)"
    wait
    ;;
gcc)
    mkfifo middle.h end.h
    awk 'BEGIN {
        print "#include <stdio.h>\n#include <string.h>\nstruct s { int a[8]; double d; };"
        for (i = 0; i < 900; i++) {
            if (i == 450) print "#include \"middle.h\""
            printf "int f%d(struct s *p, int n) { int r = %d;\n", i, i
            printf "for (int i = 0; i < n; i++) { r += p[i].a[i %% 8] * %d;\n", i * 31 % 97
            printf "if (r & %d) { p[i].d /= r; r ^= (int)p[i].d; }\n", i % 13 + 1
            printf "switch (r %% 7) { case 1: r += %d; break; case 4: memset(p, r, n); }}\n", i
            printf "return r + printf(\"%%d\", r); }\n"
        }
        print "#include \"end.h\""
    }' > big.c
    gcc -O2 -c big.c -o big.o &
    for number in 1 2; do
        case $number in 1) exec 3> middle.h ;; 2) exec 3> end.h ;; esac
        cc1=$(tr -d " " < "/proc/$!/task/$!/children")
        sh profile "$cc1" "$number"
        exec 3>&-
    done
    wait $!
    ;;
cursors)
    start_postgres
    cp ../profile .
    as_postgres "$bin/psql" -h "$PWD" -q -t -v ON_ERROR_STOP=1 postgres <<'END' > /dev/null
SELECT pg_backend_pid() AS backend \gset
\setenv BACKEND :backend
SET work_mem = '512MB';
BEGIN;
DECLARE sorted CURSOR FOR SELECT md5(i::text) AS m FROM generate_series(1, 300000) i ORDER BY m;
FETCH 10 FROM sorted;
\! sh profile $BACKEND 1
DECLARE grouped CURSOR FOR
    SELECT md5(i::text) AS m, count(*) FROM generate_series(1, 200000) i GROUP BY m;
FETCH 10 FROM grouped;
\! sh profile $BACKEND 2
CLOSE sorted;
\! sh profile $BACKEND 3
COMMIT;
\! sh profile $BACKEND 4
END
    stop_postgres
    ;;
postgres)
    start_postgres
    as_postgres "$bin/pgbench" -h "$PWD" -T 3 -c 2 postgres > /dev/null 2>&1
    as_postgres "$bin/psql" -h "$PWD" -q -t postgres <<'END' > /dev/null
SET work_mem = '512MB';
SELECT count(*) FROM (SELECT md5(i::text) AS m, count(*) FROM generate_series(1, 600000) i
    GROUP BY m) AS g;
SELECT sum(length(m)) FROM (SELECT md5(i::text) AS m FROM generate_series(1, 900000) i ORDER BY m) s;
END
    stop_postgres
    ;;
esac
