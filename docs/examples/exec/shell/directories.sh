#!/bin/sh
# A complete backend in plain shell: a directory per volume below $BASE_DIR, handed out as hostPath.
# It needs nothing but POSIX tools. Where jq is installed, use that to read the request.
set -u

operation=${1:-}
base=${BASE_DIR:?"BASE_DIR is not set"}
request=$(cat)

# The value of the first field of that name with a plain string value. Requests are one line, and their
# own fields stand before the objects in them, so this finds ours. Quotes within values are escaped, so no
# value can look like a field.
field() {
    printf '%s\n' "$request" | tr ',{}' '\n\n\n' | sed -n "s/^\"$1\":\"\([^\"\\\\]*\)\"\$/\1/p" | head -n 1
}

fail() {
    printf '%s\n' "$1" >&2
    printf '{"outcome":"failed","message":"%s"}\n' "$1"
    exit 0
}

if [ "$operation" = capabilities ]; then
    echo '{"outcome":"done","operations":["provision","delete","keep"]}'
    exit 0
fi

# The name becomes a path: take only what is certainly one visible entry of the base.
name=$(field volumeName)
case $name in
    '' | .* | *[!a-z0-9.-]*) fail "the volume name is missing or not fit for a directory" ;;
esac
directory=$base/$name
doomed=$base/.deleting-$name
kept=$base/.kept-$name

case $operation in
    provision)
        # Made under another name and moved into place: a kill in between leaves no half-made volume.
        # A directory that is there already is adopted, with whatever is in it.
        if [ ! -d "$directory" ]; then
            new=$base/.new-$name
            mkdir -p "$new" && chmod 0777 "$new" && mv "$new" "$directory" ||
                fail "the directory could not be made"
        fi
        printf '{"outcome":"done","volume":{"source":{"hostPath":{"path":"%s","type":"Directory"}}}}\n' "$directory"
        ;;
    delete)
        # A volume that someone wrote by hand may point anywhere. Without a volume it is an orphan.
        path=$(printf '%s\n' "$request" | sed -n 's/.*"hostPath":{"path":"\([^"\\]*\)".*/\1/p')
        case $request in
            *'"volume":{'*) [ "$path" = "$directory" ] || fail "the volume is not $directory; nothing was removed" ;;
        esac
        # Moved away first, so that a kill in the middle leaves nothing that looks like a volume; what an
        # earlier call left is removed first.
        rm -rf "$doomed" || fail "a part of the directory could not be removed"
        if [ -d "$directory" ]; then
            mv "$directory" "$doomed" || fail "the directory could not be moved away"
        fi
        rm -rf "$doomed" "$base/.new-$name" "$kept" || fail "a part of the directory could not be removed"
        echo '{"outcome":"done"}'
        ;;
    keep)
        : > "$kept" || fail "it could not be recorded that the volume is kept"
        echo '{"outcome":"done"}'
        ;;
    *)
        fail "this program does not know the operation"
        ;;
esac
