#!/bin/sh
# roots.sh FOLDER: the user lands of Debian 11, 12 and 13 as FOLDER/NAME, made once, by debootstrap
# from the archive that this machine's apt is set to. Wants root.
set -eu
[ "$(id -u)" -eq 0 ] || {
    echo "test-distros makes and enters roots: it wants root"
    exit 1
}
mirror=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' | grep -m 1 'debian/*$')
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "${proxy:-}" ] || export http_proxy="$proxy"
# libcurl is what uploads need; libmicrohttpd what libagent-uploader does.
for root in bullseye bookworm trixie; do
    [ ! -e "$1/$root/ready" ] || continue
    rm -rf "$1/$root.new" "$1/$root"
    mkdir -p "$1"
    debootstrap --variant=minbase --include=libcurl4,libmicrohttpd12 "$root" "$1/$root.new" \
        "$mirror" > "$1/$root.log" 2>&1 ||
        # Since Debian 13 both have another name.
        { rm -rf "$1/$root.new" && debootstrap --variant=minbase \
            --include=libcurl4t64,libmicrohttpd12t64 "$root" "$1/$root.new" "$mirror" \
            > "$1/$root.log" 2>&1; } || {
        tail -3 "$1/$root.log"
        exit 1
    }
    mv "$1/$root.new" "$1/$root"
    touch "$1/$root/ready"
done
