# Signals a command, or everything that it started. It runs as the user of the command, which is all it can signal.
# Arguments: the mark of the exec, the signal's number, `tree` or `command`, and how the command was started: by the
# engine (`direct`), by a script of ours (`nested`), or on a kernel without reapers (`loose`).
# Each command runs under a small init that is the reaper of whatever it starts, so that the tree stays together. Without
# reapers the mark in the environment tells who belongs to it.
mark=$1
signal=$2
how=$4

status_of() { # process, key
    found=
    while read -r key value _; do
        if [ "$key" = "$2" ]; then found=$value; break; fi
    done 2>/dev/null <"$1/status"
}

is_marked() { # process
    case "
$(tr '\0' '\n' 2>/dev/null <"$1/environ")
" in *"
SANDBOXER_EXEC=$mark
"*) return 0 ;; esac
    return 1
}

root=
for process in /proc/[0-9]*; do
    name=
    read -r name 2>/dev/null <"$process/comm"
    [ "$name" = docker-init ] || continue
    status_of "$process" PPid:
    # A process that the engine started has no parent in here.
    [ "$found" = 0 ] || [ "$how" != direct ] || continue
    if is_marked "$process"; then
        root=${process#/proc/}
        break
    fi
done
[ -n "$root" ] || exit 3

family() {
    members=" "
    known=" $root "
    grew=1
    while [ $grew = 1 ]; do
        grew=0
        for process in /proc/[0-9]*; do
            pid=${process#/proc/}
            case $known in *" $pid "*) continue ;; esac
            status_of "$process" PPid:
            [ -n "$found" ] || continue
            case $known in *" $found "*) ;; *) [ "$how" = loose ] && is_marked "$process" || continue ;; esac
            known="$known$pid "
            members="$members$pid "
            grew=1
        done
    done
}

if [ "$3" = command ]; then
    # The init passes on whatever can be caught. Its first child is the command.
    if [ "$signal" != 9 ] && [ "$signal" != 19 ]; then
        kill -"$signal" "$root"
        exit
    fi
    family
    for pid in $members; do
        status_of "/proc/$pid" PPid:
        if [ "$found" = "$root" ]; then kill -"$signal" "$pid"; exit; fi
    done
    exit 3
fi

if [ "$signal" != 9 ]; then
    family
    for pid in $members; do kill -"$signal" "$pid" 2>/dev/null; done
    exit 0
fi
# Stopped first, so that nothing starts more of its kind while the others are being ended.
before=
for round in 1 2 3 4 5 6 7 8; do
    family
    [ "$members" != "$before" ] || break
    for pid in $members; do kill -STOP "$pid" 2>/dev/null; done
    before=$members
done
for round in 1 2 3 4 5 6 7 8 9 10; do
    family
    [ "$members" != " " ] || break
    for pid in $members; do kill -KILL "$pid" 2>/dev/null; done
done
kill -CONT "$root" 2>/dev/null
# The init ends with its command; one that hangs is ended as well.
tries=0
while [ -d "/proc/$root" ] && [ $tries -lt 20 ]; do
    tries=$((tries + 1))
    [ $tries -lt 10 ] || kill -KILL "$root" 2>/dev/null
    sleep 0.05 2>/dev/null || sleep 1
done
exit 0
