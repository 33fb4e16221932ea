# Runs a command that outlives its caller and keeps its output. Arguments: the id, a document about it, the seconds after
# which it is ended or 0, 1 if it gets input, how many bytes of each output are kept, the script that ends a tree, how
# it finds it; then the command.
id=$1 limit=$3 input=$4 most=$5 end=$6 how=$7
own=/run/sandboxer/execs/$id
mkdir "$own" || exit 1
printf '%s\n' "$2" >"$own/meta"
shift 7
mkfifo "$own/o" "$own/e" || exit 1
{ head -c "$most" >"$own/stdout"; wc -c >"$own/stdout.more"; } <"$own/o" &
{ head -c "$most" >"$own/stderr"; wc -c >"$own/stderr.more"; } <"$own/e" &
holder= watch=
if [ "$input" = 1 ]; then
    mkfifo "$own/in" || exit 1
    # As long as this holds the pipe, the command does not see the end of its input.
    sleep 2147483647 >"$own/in" &
    holder=$!
    echo "$holder" >"$own/holder"
    exec <"$own/in"
else
    exec </dev/null
fi
echo $$ >"$own/pid"
echo started
exec >/dev/null 2>&1
if [ "$limit" -gt 0 ]; then
    (
        sleep "$limit" &
        nap=$!
        trap 'kill "$nap"; exit' TERM
        wait "$nap"
        # From here on it finishes, although the init ends with the first of the tree that is killed.
        trap '' TERM
        echo 1 >"$own/timed_out"
        tries=0
        # The init may not have begun yet.
        while [ ! -e "$own/over" ] && [ $tries -lt 100 ]; do
            /bin/sh -c "$end" sandboxer "$id" 9 tree "$how"
            [ $? = 3 ] || break
            tries=$((tries + 1))
            sleep 0.1
        done
    ) &
    watch=$!
fi
reaper=-s
if [ "$how" = loose ]; then reaper=; fi
SANDBOXER_EXEC=$id /sbin/docker-init $reaper -- "$@" >"$own/o" 2>"$own/e"
code=$?
: >"$own/over"
for helper in $holder $watch; do kill "$helper"; done
if [ -n "$watch" ]; then wait "$watch"; fi
# Something that it left running may hold the output open; that is not waited for.
tries=0
while [ $tries -lt 20 ]; do
    if [ -s "$own/stdout.more" ] && [ -s "$own/stderr.more" ]; then break; fi
    sleep 0.1
    tries=$((tries + 1))
done
date +%s >"$own/ended"
echo "$code" >"$own/exit.new"
mv "$own/exit.new" "$own/exit"
