#!/bin/sh
# Runs Check suites one after the other; prints the summary line of each, and everything else that
# a failing one said. Usage: run_suites.sh PROGRAM...  Status 1 when one failed.
#
# A suite that ends badly without saying so in its summary (a crash in main, a sanitizer's report
# at exit) counts as one error, so that totals made of the summary lines are right. So does a suite
# that leaves files: each has a TMPDIR of its own. Where tests failed they may have left some.
# SAN names the build that is run: a sanitizer, or coverage. RUNNER runs programs of another
# processor.
failed=0
[ $# -gt 0 ] || { echo "run_suites: no suite is there"; exit 1; }
out=$(mktemp)
folder=
trap 'rm -rf "$out" "$folder"' EXIT

# ThreadSanitizer has its shadow at fixed addresses, which wide address randomization may hit.
run=${RUNNER:-}
[ -z "$run" ] || {
    export LEFT_OUT="$(sed -n 's/^\([a-z_0-9]*\):.*/\1/p' test/aarch64.txt | tr '\n' ' ')"
    export CK_TIMEOUT_MULTIPLIER=10
    export LIBAGENT_ENABLED=0 # check_shim_next would start itself anew with it, unemulated
}
[ "$SAN" != thread ] || run="setarch -R"
# Two such builds run side by side, and each takes several times as long.
[ -z "$SAN" ] || export CK_TIMEOUT_MULTIPLIER=4

for program; do
    name=$(basename "$program")
    folder=$(mktemp -d)
    chmod 1777 "$folder" # as /tmp: some programs under test have another user
    TMPDIR=$folder $run "$program" > "$out" 2>&1 < /dev/null
    status=$?
    summary=$(grep -E '^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$' "$out" | tail -n 1)
    case $summary in
    "" | *"Failures: 0, Errors: 0") [ $status -eq 0 ] && [ -n "$summary" ] ||
        summary="0%: Checks: 1, Failures: 0, Errors: 1" ;;
    esac
    left=$(ls -A "$folder")
    rm -rf "$folder"
    case $summary$left in
    *"Failures: 0, Errors: 0") ;;
    *"Failures: 0, Errors: 0"*)
        failed=1
        summary="0%: Checks: 1, Failures: 0, Errors: 1"
        echo "$name: left in TMPDIR:" $left
        ;;
    *)
        failed=1
        grep -v -e '^Running suite' -e '^[0-9]*%: Checks' "$out"
        [ $status -le 1 ] || echo "$name: exit status $status"
        ;;
    esac
    printf '%s%s: %s\n' "$name" "${SAN:+ ($SAN)}" "$summary"
done
exit $failed
