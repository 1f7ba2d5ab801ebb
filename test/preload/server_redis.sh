# redis-server, on a socket in the folder that it is started in.
exec redis-server --port 0 --unixsocket "$PWD/socket" --save '' --enable-debug-command yes \
    --pidfile redis.pid
