#!/bin/sh
# Prints which part of the lines and branches of each file has run, and of all. Usage:
# coverage.sh FOLDER, that of the objects which were built and run with gcc --coverage.
#
# Most of the shim runs in whole programs (make check-preload) alone, and those are not counted.
# A line of a header counts once, wherever it was inlined. Children that a test ends by _exit or a
# signal take what they counted with them: the true figures are a little higher.
set -eu
gcovr "$1" --root . --object-directory "$1" --filter agent/ --filter shim/ --filter uploader/ \
    --exclude-unreachable-branches --csv |
    awk -F, '
        function row(name, lines, line_total, branches, branch_total) {
            printf "%6.1f %% of %5d lines  %6.1f %% of %5d branches  %s\n",
                line_total ? 100 * lines / line_total : 100, line_total,
                branch_total ? 100 * branches / branch_total : 100, branch_total, name
        }
        NR > 1 {
            row($1, $3, $2, $6, $5)
            total += $2; covered += $3; branch_total += $5; branch_covered += $6
        }
        END {
            if (!total) { print "coverage: nothing was counted"; exit 1 }
            row("in all", covered, total, branch_covered, branch_total)
        }'
