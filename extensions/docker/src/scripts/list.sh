# Tells what is in a folder. Arguments: the mark before each record, the path.
if [ ! -d "$2" ]; then
    if [ -e "$2" ] || [ -L "$2" ]; then exit 45; else exit 44; fi
fi
cd -- "$2" || exit 1
find . -mindepth 1 -maxdepth 1 -exec stat -c "$1 s %f %s %u %g %Y %n" {} + || exit 1
find . -mindepth 1 -maxdepth 1 -type l -exec sh -c '
mark=$0
for link; do printf "%s l %s\n%s t " "$mark" "$link" "$mark"; readlink "$link"; done' "$1" {} +
