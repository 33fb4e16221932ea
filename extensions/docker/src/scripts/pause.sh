# Sends a signal to every process of the workload that runs as root; those of other users get theirs from their own.
# Then tells which other users still have processes that are in the wrong state. Runs as root.
# Arguments: the signal's name, and the letters of the states that it leads to or that it cannot change.
own=/run/sandboxer
read -r main 2>/dev/null <"$own/main"
read -r sleeper 2>/dev/null <"$own/sleeper"
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    user= state=
    while read -r key value _; do
        case $key in State:) state=$value ;; Uid:) user=$value; break ;; esac
    done 2>/dev/null <"$process/status"
    case $state in "" | Z | X) continue ;; esac
    # Not the container's init, not what keeps the deadline, and not this.
    case " 1 $main $sleeper $$ $PPID " in *" $pid "*) continue ;; esac
    case $2 in *"$state"*) continue ;; esac
    if [ "$user" = 0 ]; then kill -"$1" "$pid" 2>/dev/null; else echo "$user"; fi
done
