# Runs a build that ends when whoever asked for it is gone: its end of our standard input closes then.
# Arguments: the program and its arguments. The working directory is the build's folder.
folder=$(pwd -P)
exec 3<&0 </dev/null
"$@" 3<&- &
build=$!
end_all() {
    kill -KILL -- "-$build" 2>/dev/null
    # What left the group still works in the folder.
    for link in /proc/[0-9]*/cwd; do
        pid=${link#/proc/}
        pid=${pid%/cwd}
        case $(readlink "$link") in
        "$folder" | "$folder"/* | "$folder (deleted)") [ "$pid" = $$ ] || [ "$pid" = "$watch" ] || kill -KILL "$pid" ;;
        esac
    done 2>/dev/null
}
(
    watch=$(exec sh -c 'echo $PPID')
    cat <&3 >/dev/null
    end_all
    end_all
) &
watcher=$!
exec 3<&-
wait "$build"
code=$?
kill -KILL "$watcher" 2>/dev/null
exit "$code"
