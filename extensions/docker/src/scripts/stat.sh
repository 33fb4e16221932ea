# Tells about one entry. Arguments: the mark before each record, the path.
if [ ! -e "$2" ] && [ ! -L "$2" ]; then exit 44; fi
stat -c "$1 s %f %s %u %g %Y %n" -- "$2" || exit 1
if [ -L "$2" ]; then
    printf '%s l %s\n%s t ' "$1" "$2" "$1"
    readlink -- "$2"
fi
exit 0
