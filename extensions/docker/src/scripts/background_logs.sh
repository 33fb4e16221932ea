# Gives kept output. Arguments: the id, `stdout` or `stderr`, the offset, how many tenths of a second to wait for more,
# how many bytes to give. The first line is: size, bytes that were not kept, 1 if nothing more will come.
own=/run/sandboxer/execs/$1
[ -f "$own/meta" ] && [ -f "$own/pid" ] || exit 44
tries=0
while :; do
    last=0 more=0
    if [ -f "$own/exit" ]; then last=1; fi
    read -r pid <"$own/pid"
    if [ ! -d "/proc/$pid" ]; then last=1; fi
    size=$(wc -c <"$own/$2" 2>/dev/null) || size=0
    size=$((size))
    if [ $last = 1 ] || [ "$size" -gt "$3" ] || [ $tries -ge "$4" ]; then break; fi
    tries=$((tries + 1))
    sleep 0.1
done
read -r more 2>/dev/null <"$own/$2.more"
echo "$size ${more:-0} $last"
tail -c +$(($3 + 1)) "$own/$2" 2>/dev/null | head -c "$5"
exit 0
