# Sourced by fetch.sh and run.sh: where guests are kept, and whether they match these scripts.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/shade-nfs"

made_by() { # the commands that made a guest: others make it anew
    cat "$here/fetch.sh" "$here/init.sh" | grep -v '^ *#' | cksum
}

is_ready() { # is_ready ENGINE
    [[ "$(cat "$cache/$1/made-by" 2>/dev/null)" == "$(made_by)" ]]
}
