# Runs a build that ends when whoever asked for it is gone: its end of our standard input closes then.
# Arguments: the program and its arguments. The working directory is the build's folder.
folder=$(pwd -P)
exec 3<&0 </dev/null
"$@" 3<&- &
build=$!
# What the shell itself says about killed processes is no word of the build.
exec 2>/dev/null
end_all() {
    kill -s KILL -- "-$build" 2>/dev/null
    # What left the group still works in the folder. One program looks at all, since there may be hundreds.
    ls -l /proc/[0-9]*/cwd 2>/dev/null | sed -n 's|.* /proc/\([0-9]*\)/cwd -> |\1 |p' | while read -r pid path; do
        case ${path%" (deleted)"} in
        "$folder" | "$folder"/*) [ "$pid" = $$ ] || [ "$pid" = "$watcher" ] || kill -s KILL "$pid" 2>/dev/null ;;
        esac
    done
}
(
    watcher=$(exec sh -c 'echo $PPID')
    cat <&3 >/dev/null
    end_all
) &
exec 3<&-
wait "$build"
code=$?
# Whatever way it ended, nothing of it goes on; the watcher goes too, whose part this is now.
end_all
exit "$code"
