#!/bin/sh
# Runs what programs.txt lists: differential.sh full|short BUILD [NAME...]. The first column of stops is
# the full form's. Status 1 when one failed. A server (serve_*.sh) starts in a folder of its own, puts
# its work into the background, and tells which process is to be looked at.
form=$1 U=$2/unwind P=$2/preload
shift 2
CC1=$(gcc -print-prog-name=cc1)
CC1PLUS=$(gcc -print-prog-name=cc1plus)
tool=$U/unwind_differential
failed=0
folder=$(mktemp -d)
chmod 755 "$folder"
server=
clean() {
    [ -z "$server" ] || sh "$server" stop "$folder"
    rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM

sample_server() { # mode name stops hertz script
    rm -rf "$folder"/*
    server=$5
    sh "$5" start "$folder" > "$folder/log" 2>&1 || {
        sh "$5" stop "$folder"
        server=
        echo "$2: NOT MEASURED: $(tail -n 1 "$folder/log")"
        return 0
    }
    "$tool" "$1" "$2" "$3" "$4" -p "$(cat "$folder/pid")"
    status=$?
    sh "$5" stop "$folder"
    server=
    return $status
}

while read -r mode name full short rest; do
    case $mode in \#* | "") continue ;; esac
    stops=$full
    [ "$form" = full ] || stops=$short
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    [ "$stops" -gt 0 ] || continue
    eval "set_aside=\"\$*\"; set -- $rest"
    place=3
    [ "$mode" = sample ] && place=2
    eval "command=\${$place} script=\${$((place + 1))}"
    if ! command -v "$command" > /dev/null; then
        echo "$name: NOT MEASURED: $command is not there"
    elif [ "$command $mode" = "sh sample" ]; then
        sample_server "$mode" "$name" "$stops" "$1" "$script" || failed=1
    else
        "$tool" "$mode" "$name" "$stops" "$@" < /dev/null || {
            failed=1
            echo "$mode $name: FAILED"
        }
    fi
    eval "set -- $set_aside"
done < test/unwind/programs.txt
exit $failed
