#!/usr/bin/env bash
# From a bare Debian or Ubuntu machine to a running appliance. Safe to run again, and to interrupt.
# shellcheck disable=SC2034,SC2317,SC2329  # functions are called by way of `act`, variables used in the parts
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: ./install.sh [--dry-run] [--no-up] [--] [ARGUMENTS FOR up]

Installs what is missing (Docker Engine, its Compose and buildx plugins, python3-venv, debootstrap where no
image registry answers, the NVIDIA container toolkit where there is a GPU), starts Docker, makes .venv, and
ends with `python3 -m orchestrator up ARGUMENTS`. What is there already is left as it is.

  --dry-run   print each action and why; change nothing
  --no-up     stop before `python3 -m orchestrator up`
  --help      this text
  --          what follows is for `up`, even if it looks like one of these options

Debian 12 and 13: proven on bare machines. Ubuntu 22.04 and 24.04: only its plan is checked, on recorded
output; it was not run there. Other systems: it goes on where Docker, Compose, buildx and venv are there already.

Environment: ORCH_BASE_IMAGE and ORCH_BASE_DIGEST (whose registry is asked), ORCH_DEBIAN_MIRROR, NVIDIA_TOOLKIT_REPO, and the
proxy variables. apt, pip and Docker use this machine's own configuration.
Exit codes: 0 done, 2 usage, 3 this machine lacks something, 5 a download failed, 6 a Python package has
the wrong hash, 9 another run is at work, 10 Docker does not answer; any other is that of `up`.
TEXT
}

# The image that images/base/rootfs.sh makes and the orchestrator builds on where no registry answers.
ROOTFS_IMAGE=appliance/rootfs:bookworm
# The orchestrator's default for ORCH_BASE_IMAGE.
DEFAULT_BASE_IMAGE=docker.io/library/debian:bookworm-slim
PLUGIN_FOLDER=/usr/local/lib/docker/cli-plugins
DOCKERD_LOG=/var/log/dockerd.log
DOCKERD_PATIENCE_S=90
# What sudo would drop and the programs behind it need.
KEPT_BY_SUDO=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY,DOCKER_HOST,DEBIAN_MIRROR,TMPDIR

# A folder that stands for / in the tests: a recorded machine. Only a dry run may have one.
ROOT=${INSTALL_ROOT:-}
DRY_RUN=no
NO_UP=no
UP_ARGUMENTS=()
SCRATCH=""

main() {
    cd -- "$(dirname -- "${BASH_SOURCE[0]:-.}")"
    load_parts
    parse_arguments "$@"
    if [[ -n ${ORCH_DEBIAN_MIRROR:-} ]]; then export DEBIAN_MIRROR=$ORCH_DEBIAN_MIRROR; fi
    # Debian leaves these out of a user's PATH.
    PATH="$PATH:$ROOT/usr/sbin:$ROOT/sbin"
    recognise_system
    survey
    if [[ $DRY_RUN == yes ]]; then
        print_survey
        refuse_unfit
        return
    fi
    refuse_unfit
    trap 'rm -rf -- "$SCRATCH"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    SCRATCH=$(mktemp -d)
    hold_lock
    make_it_so
    hand_over
}

load_parts() {
    local part
    if ! [[ -f requirements.lock && -d orchestrator && -d install ]]; then
        printf '[install] error: %s\n  why:  %s\n  next: %s\n' "this is not the project's folder" \
            "requirements.lock, orchestrator/ and install/ belong beside install.sh" \
            "clone the whole repository and run ./install.sh there" >&2
        exit 2
    fi
    for part in install/*.sh; do
        # shellcheck source=/dev/null  # each is checked by itself
        source "$part"
    done
}

parse_arguments() {
    while (($#)); do
        case $1 in
            --dry-run) DRY_RUN=yes ;;
            --no-up) NO_UP=yes ;;
            -h | --help) usage && exit 0 ;;
            --)
                UP_ARGUMENTS+=("${@:2}")
                break
                ;;
            *) UP_ARGUMENTS+=("$1") ;;
        esac
        shift
    done
    if [[ $NO_UP == yes ]] && ((${#UP_ARGUMENTS[@]})); then
        die 2 "--no-up and '${UP_ARGUMENTS[0]}' exclude each other" "with --no-up, nothing is passed on" \
            "./install.sh --help"
    fi
    if [[ -n $ROOT && $DRY_RUN == no ]]; then
        die 2 "INSTALL_ROOT is for --dry-run only" "a recorded machine can't be changed" "unset INSTALL_ROOT"
    fi
}

hold_lock() {
    exec 9<install.sh
    local code=0
    # Any other failure is a file system without such locks.
    flock -n -E 99 9 2>/dev/null || code=$?
    ((code != 99)) || die 9 "another ./install.sh is at work here" "two at once would spoil each other's .venv" \
        "wait for it to end"
}

survey() {
    MODE=look
    PYTHON=""
    make_it_so
    if [[ $NO_UP == no ]]; then
        act "$(up_in_words)" "the machine is ready"
    fi
    MODE=act
}

print_survey() {
    local line
    for line in "${PLANNED[@]}"; do say "$line"; done
    ((${#PLANNED[@]})) || say "nothing to do: all that the appliance needs is here"
}

make_it_so() {
    python_step
    engine_step
    plugins_step
    nvidia_step
    dockerd_step
    group_step
    rootfs_step
    venv_step
}

refuse_unfit() {
    if [[ -z $SYSTEM ]] && ((${#MISSING[@]})); then
        refuse_system
    fi
    if ((${#REQUESTS[@]})) && ! may_act_as_root; then
        {
            echo "[install] error: this needs root, and there is neither root nor a usable sudo"
            echo "  why:  still to be done here:"
            printf '          %s\n' "${FOR_ROOT[@]}"
            echo "  next: ask the administrator to run as root, in this order, then run ./install.sh again:"
            printf '          %s\n' "${REQUESTS[@]}"
        } >&2
        exit 3
    fi
}

up_in_words() {
    local words=(run python3 -m orchestrator up "${UP_ARGUMENTS[@]}")
    echo "${words[*]}"
}

hand_over() {
    if ((ACTIONS == 0)); then
        say "nothing to do: all that the appliance needs is here"
    fi
    if [[ $NO_UP == yes ]]; then return; fi
    local up=(.venv/bin/python -m orchestrator up "${UP_ARGUMENTS[@]}")
    say "$(up_in_words) — the machine is ready"
    # exec runs no EXIT trap.
    rm -rf -- "$SCRATCH"
    exec 9<&-
    if [[ $THROUGH_SG == yes ]]; then exec sg docker -c "exec $(quoted "${up[@]}")"; fi
    exec "${up[@]}"
}

# In braces: a file cut short anywhere is a syntax error, and runs nothing.
{ main "$@"; exit; }
