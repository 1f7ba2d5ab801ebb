#!/bin/sh
# Installs the Debian packages that build, demo and tests use and that are missing; says nothing
# when none is. Without root or sudo it says what to install and fails. `deps.sh bench` installs
# what only make bench uses, `deps.sh aarch64`, `deps.sh unwind`, `deps.sh names`, `deps.sh browser` and
# `deps.sh distros` what make test-aarch64, test-unwind, test-names, test-browser and test-distros do.
set -eu

# Compilers and the archives that are linked in
build="gcc g++ libc6-dev binutils make clang
    zlib1g-dev libzstd-dev libiberty-dev liblzma-dev libmicrohttpd-dev"
# The suites: Check, independent readers of profiles and pages, the reference unwinder, libcurl and a reader of
# requests, another linker, other allocators, clang's sanitizers
suites="check libsubunit-dev protobuf-compiler protobuf-c-compiler libprotobuf-c-dev libjansson-dev libunwind-dev lld
    libcurl4-openssl-dev libcurl3-gnutls python3-protobuf zstd xz-utils musl-tools libjemalloc2 libgoogle-perftools4
    libmimalloc2.0 util-linux libclang-rt-dev"
# Programs that are profiled, and the table of top functions
demo="redis-server redis-tools python3"
# Programs that suites run
programs="nodejs sqlite3 nginx postgresql openssl git perl bash bubblewrap sudo iputils-ping curl"
lint="clang-format clang-tidy cppcheck yamllint"
# make coverage
coverage="gcovr"
# The profilers that libagent is compared with (Debian's jemalloc has its profiler built in), and
# the programs on which it is
bench="libgoogle-perftools4 libjemalloc2 heaptrack redis-server redis-tools sqlite3 python3"

# make test-unwind: programs that are stepped through or sampled
unwind="ripgrep redis-server redis-tools postgresql"

# make test-names: what names are compared with, and compilers of the corpus (go and rustc of others
# will do); make test-names-deps gets google/pprof itself
names="llvm binutils lld dwz clang g++ golang-go rustc"

# make test-backends: the receivers, beside what the suites use (npm also comes with node of elsewhere)
command -v npm > /dev/null && npm= || npm="nodejs npm"
backends="$build $suites nginx openssl redis-server redis-tools $npm"

# The cross compiler, the emulator, and the libraries that suites and programs take (dpkg then knows
# arm64 as a second architecture)
aarch64="make gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user protobuf-c-compiler python3
    zlib1g-dev:arm64 libzstd-dev:arm64 libiberty-dev:arm64 liblzma-dev:arm64 check:arm64 libsubunit-dev:arm64
    libprotobuf-c-dev:arm64 libjansson-dev:arm64 libunwind-dev:arm64 libstdc++6:arm64 libcurl4-openssl-dev:arm64"

# make test-browser
browser="chromium bash python3 $npm"

# make test-distros
distros="debootstrap debian-archive-keyring python3-protobuf protobuf-compiler util-linux"

case ${1:-} in
distros) wanted=$distros ;;
bench) wanted=$bench ;;
aarch64) wanted=$aarch64 ;;
unwind) wanted=$unwind ;;
names) wanted=$names ;;
backends) wanted=$backends ;;
browser) wanted=$browser ;;
*) wanted="$build $suites $demo $programs $lint $coverage" ;;
esac
missing=
for package in $wanted; do
    case $(dpkg-query -W -f '${Status}' "$package" 2> /dev/null) in
    *" installed") ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo > /dev/null; then
    as_root=sudo
else
    echo "These Debian packages are missing; install them as root: apt-get install$missing" >&2
    exit 1
fi
echo "installing:$missing"
case $missing in
*:arm64*) $as_root dpkg --add-architecture arm64 ;;
esac
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
