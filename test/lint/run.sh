#!/bin/sh
# make lint: every check, also after one failed, so that all breaches are seen at once.
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

lint "gcc without a warning" without_warning gcc
lint "clang without a warning" without_warning clang
lint "sources" python3 test/lint/sources.py
lint "format" formatted
lint "preload.map" map_is_made_of_list
lint "libagent.so" python3 test/lint/binary.py libagent.so
lint "README's options" python3 test/lint/readme_options.py README.md libagent.so
exit $failed
