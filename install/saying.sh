# shellcheck shell=bash disable=SC2034,SC2154
# What the installer says, and the one place through which it changes the machine.
# Sourced by ../install.sh, which holds the variables that all parts share.

say() {
    printf '[install] %s\n' "$*"
}

warn() { # warn WHAT WHY NEXT: once, so not in the survey before the actions
    if [[ $MODE == look && $DRY_RUN == no ]]; then return; fi
    printf '[install] warning: %s\n  why:  %s\n  next: %s\n' "$1" "$2" "$3" >&2
}

die() { # die EXIT_CODE WHAT WHY NEXT
    printf '[install] error: %s\n  why:  %s\n  next: %s\n' "$2" "$3" "$4" >&2
    exit "$1"
}

# The steps run twice: first to survey (MODE=look, touches nothing), then to act (MODE=act). All changes of the
# machine pass through `act`, so the survey is the dry run.
MODE=look
PLANNED=()  # "what — why" of each action
FOR_ROOT=() # those of them that need root
REQUESTS=() # and the commands that root would run by hand
MISSING=()  # what must be installed
ACTIONS=0

act() { # act WHAT WHY COMMAND...
    if [[ $MODE == look ]]; then
        PLANNED+=("$1 — $2")
        return
    fi
    say "$1 — $2"
    ACTIONS=$((ACTIONS + 1))
    # A daemon must not inherit the lock: it would hold it for life.
    "${@:3}" 9<&-
}

act_as_root() { # act_as_root WHAT WHY REQUEST COMMAND...
    FOR_ROOT+=("$1 — $2")
    REQUESTS+=("$3")
    act "$1" "$2" "${@:4}"
}

is_root() {
    [[ $(id -u) == 0 ]]
}

# Asked at the first need, so that who needs nothing is asked no password.
SUDO=unknown

has_sudo() {
    if [[ $SUDO == unknown ]]; then
        SUDO=no
        if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || ask_for_password; }; then SUDO=yes; fi
    fi
    [[ $SUDO == yes ]]
}

ask_for_password() {
    [[ -t 0 ]] || return 1
    [[ $DRY_RUN == yes ]] || sudo -v
}

may_act_as_root() {
    is_root || has_sudo
}

as_root() {
    if is_root; then "$@"; else sudo --preserve-env="$KEPT_BY_SUDO" "$@"; fi
}

as_root_function() { # as_root_function NAME HELPER... -- ARGUMENT...
    local name=$1 functions=()
    while [[ $1 != -- ]]; do
        functions+=("$1")
        shift
    done
    shift
    as_root bash -euo pipefail -c "$(declare -f "${functions[@]}")"$'\n''"$@"' bash "$name" "$@"
}
