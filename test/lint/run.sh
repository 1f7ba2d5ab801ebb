#!/bin/sh
# make lint, which gives C_FLAGS: every check, also after one failed, so that all breaches are seen at once.
cd "$(dirname "$0")/../.."
failed=0

# 1: what is checked; then the command
lint() {
    what=$1
    shift
    if "$@"; then
        echo "lint: $what: good"
    else
        echo "lint: $what: FAILED"
        failed=1
    fi
}

without_warning() {
    ${MAKE:-make} --no-print-directory WERROR=1 CC="$1" objects
}

formatted() {
    wrong=$(find agent shim uploader test -name '*.[ch]' -o -name '*.cc' | sort |
        xargs clang-format --dry-run -Werror 2>&1 | sed -n 's/:[0-9]*:[0-9]*: error:.*//p' | uniq)
    [ -z "$wrong" ] || {
        echo "not as .clang-format says (clang-format -i mends it):"
        echo "$wrong"
        return 1
    }
}

map_is_made_of_list() {
    sh test/lint/make_map.sh shim/exports.list | cmp - preload.map || {
        echo "preload.map differs from shim/exports.list: make map"
        return 1
    }
}

# clang-tidy with flags $1 over the files that come in, on all processors; each file's findings in
# one piece, and without the count of what it suppressed.
tidy_files() {
    FLAGS=$1 xargs -n 1 -P "$(nproc)" sh -c '
        found=$(clang-tidy --quiet "$1" -- $C_FLAGS $FLAGS 2>&1) || {
            printf "%s\n" "$found" | grep -v "^[0-9]* warnings\{0,1\} generated"
            exit 1
        }' sh
}

# The checks are in .clang-tidy here, in shim and in test. Programs that suites run, and what the
# benchmarks compare us with, do on purpose what is warned of.
tidy() {
    bad=0
    find agent shim uploader -name '*.c' | tidy_files "" || bad=1
    find test -name '*.c' ! -name 'prog_*' ! -path 'test/bench/*' |
        tidy_files -DLIBAGENT_TEST || bad=1
    return $bad
}

# Without the suites: their macros are too much for cppcheck, and a function that only they call is
# a finding. It does not know two names: the type of an ELF record, and typeof, used on sizes only.
cppcheck_product() {
    cppcheck -q --std=c11 --enable=warning,style,performance,portability,unusedFunction \
        --error-exitcode=1 --inline-suppr --suppressions-list=test/lint/cppcheck.txt \
        --library=posix --library=gnu --template='{file}:{line}: {message} [{id}]' \
        -I. -D_GNU_SOURCE -D__linux__ -D__x86_64__ \
        '-DElfW(x)=Elf64_##x' '-D__typeof__(x)=unsigned long' agent shim uploader
}

handed_out() {
    $MAKE dist > build/dist.log 2>&1 || {
        cat build/dist.log
        return 1
    }
}

# Behind the one before, which builds the sender.
installed() {
    rm -rf build/installed
    $MAKE install DESTDIR="$PWD/build/installed" PREFIX=/opt > build/install.log 2>&1 || {
        cat build/install.log
        return 1
    }
    (cd build/installed/opt && find . -type f | sort | xargs) > build/install.log
    echo ./bin/libagent-uploader ./include/libagent.h ./lib/libagent/libagent.so | diff - build/install.log
}

lint "gcc without a warning" without_warning gcc
lint "clang without a warning" without_warning clang
lint "clang-tidy" tidy
lint "cppcheck" cppcheck_product
lint "sources" python3 test/lint/sources.py
lint "YAML" yamllint -d relaxed uploader/sidecar
lint "format" formatted
lint "preload.map" map_is_made_of_list
lint "libagent.so" python3 test/lint/binary.py libagent.so
lint "what is handed out" handed_out
lint "what is installed" installed
lint "README's options" python3 test/lint/readme_options.py README.md libagent.so
exit $failed
