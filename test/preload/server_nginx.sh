# nginx with two workers of another user, on a socket in the folder that it is started in.
# Told: its status, and which messages it logged.
mkdir pages
seq 1 7919 280000000 | head -n 30000 > pages/large.txt
for i in 0 1 2 3 4 5 6 7 8 9; do
    seq "$i" 100 > "pages/small$i.html"
done
cat > nginx.conf <<'END'
user nobody nogroup;
daemon off;
pid nginx.pid;
error_log errors notice;
worker_processes 2;
events { worker_connections 64; }
http {
    types { text/html html; text/plain txt; }
    gzip on;
    gzip_types text/plain;
    gzip_comp_level 9;
    access_log off;
    log_not_found off;
    server {
        listen unix:socket;
        root pages;
        add_header X-Worker $pid;
        location /moved { return 301 /small1.html; }
        location /none { return 204; }
    }
}
END
sed -i "s,unix:,&$PWD/," nginx.conf
# A killed suite takes it along.
setpriv --pdeathsig TERM /usr/sbin/nginx -p "$PWD/" -c nginx.conf -e errors
echo "status $?"
# How often the master is told of its workers' ends, and of their pipes', depends on when they end.
sed 's/^.* [0-9]*#[0-9]*: //; s/process [0-9]*/process N/; s/from [0-9]*/from N/' errors |
    grep -v SIGIO | sort -u
