# openssl's TLS server, on a socket in the folder that it is started in, for 58 connections, with a
# key of its own. It sends each line back turned round.
openssl req -x509 -newkey rsa:3072 -nodes -keyout key.pem -out certificate.pem -subj /CN=localhost \
    -days 2 2> /dev/null
exec openssl s_server -unix socket -key key.pem -cert certificate.pem -rev -naccept 58 -quiet
