#!/bin/sh
# make fuzz: runs each target for FUZZ_SECONDS from its seeds and from what former runs found worth
# keeping (build/fuzz/corpus). Usage: run_fuzz.sh SECONDS PROGRAM...  An input that crashes, leaks,
# reads outside or takes more than 5 s is left in build/fuzz/finds; status 1 when there is one.
seconds=$1
shift
here=build/fuzz
python3 test/fuzz/fuzz_seeds.py unpack $here/seeds < test/fuzz/fuzz_seeds.txt || exit 1
failed=0
for program; do
    name=$(basename "$program")
    target=${name#fuzz_}
    mkdir -p $here/corpus/$target $here/seeds/$target $here/finds
    # Inputs of 8 KiB hold a dozen entries of a table, and as many ways to break them.
    "$program" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=8192 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix=$here/finds/$target- \
        $here/corpus/$target $here/seeds/$target > $here/$target.log 2>&1
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' $here/$target.log)
    if [ $status -eq 0 ]; then
        echo "$name: $runs inputs, all good"
    else
        failed=1
        cat $here/$target.log
        echo "$name: FAILED, status $status"
    fi
done
exit $failed
