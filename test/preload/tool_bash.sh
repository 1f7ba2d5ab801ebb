# bash: pipelines of 500 short children, and its kinds of children, statuses and traps.
# Told: what they print, and every status.
set -o pipefail
for ((i = 0; i < 125; i++)); do
    echo "$i" | tr 0-9 a-j | sed 's/a/A/' | cat -A
done
yes | head -n 1
echo "${PIPESTATUS[@]}"
false | true | (exit 9) | true
echo "$? ${PIPESTATUS[@]}"
diff <(seq 5) <(seq 2 6)
echo "$?"
trap 'echo usr1' USR1
kill -USR1 $$
sleep 30 &
kill -TERM $!
wait $!
echo "$?"
coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
echo "$line"
sum=$(for ((i = 0; i < 80000; i++)); do echo $((i * i % 7919)); done | sort -n | uniq -c | sha256sum)
echo "$sum"
trap 'echo exit' EXIT
exit 5
