# openssl speed, in two children that its alarms stop.
# Told: all that it says, each figure as one letter.
set -o pipefail
openssl speed -elapsed -seconds 1 -bytes 4096 -multi 2 \
    -evp aes-256-gcm sha256 ecdsap256 rsa2048 2>&1 |
    sed 's/[0-9][0-9.]*/N/g; s/  */ /g' | sort
