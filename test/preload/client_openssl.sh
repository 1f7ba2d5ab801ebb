# 58 TLS connections to the server at $1/socket, by several versions and ciphers; the certificate is
# checked. Told: the hash of what came back, and what the client says.
set -o pipefail
seq 1 300 | sed 's/$/ is a line that is sent/' > text
echo CLOSE >> text
connect() {
    openssl s_client -unix "$1/socket" -quiet -CAfile "$1/certificate.pem" -verify_return_error \
        -servername localhost "${@:2}" < text
}
# The first one is tried until the server is there.
until connect "$1" > first 2> /dev/null; do sleep 0.01; done
sha256sum < first
i=1
while [ $i -lt 20 ]; do
    connect "$1" -tls1_3 | sha256sum
    connect "$1" -tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256 | sha256sum
    connect "$1" -tls1_2 -cipher ECDHE-RSA-CHACHA20-POLY1305 | sha256sum
    echo "status $?"
    i=$((i + 1))
done
