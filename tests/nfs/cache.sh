# Sourced by fetch.sh and run.sh: where the guests are kept, and whether they are of these scripts.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/shade-nfs"

made_by() { # what a guest in the cache depends on: other scripts make it anew
    cat "$here/fetch.sh" "$here/init.sh" | cksum
}

is_ready() { # is_ready ENGINE
    [[ "$(cat "$cache/$1/made-by" 2>/dev/null)" == "$(made_by)" ]]
}
