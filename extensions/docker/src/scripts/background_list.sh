# Tells about background commands. Arguments: the mark before each record, an id or `*` for all.
cd /run/sandboxer/execs || exit 1
for own in $2; do
    [ -f "$own/meta" ] && [ -f "$own/pid" ] || continue
    code=- ended=- late=- alive=0
    read -r code 2>/dev/null <"$own/exit"
    read -r ended 2>/dev/null <"$own/ended"
    read -r late 2>/dev/null <"$own/timed_out"
    read -r pid <"$own/pid"
    if [ -d "/proc/$pid" ]; then alive=1; fi
    printf '%s %s %s %s %s %s ' "$1" "$own" "${code:--}" "${ended:--}" "${late:--}" "$alive"
    cat "$own/meta"
done
exit 0
