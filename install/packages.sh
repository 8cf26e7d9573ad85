# shellcheck shell=bash disable=SC2034,SC2154
# Which system this is, and its packages.
# Sourced by ../install.sh, which holds the variables that all parts share.

SYSTEM="" # one of the supported ones, or empty

recognise_system() {
    local id version
    id=$(os_release ID)
    version=$(os_release VERSION_ID)
    case $id-$version in
        debian-12 | debian-13 | ubuntu-22.04 | ubuntu-24.04) SYSTEM=$id-$version ;;
    esac
}

os_release() { # os_release KEY
    sed -n "s/^$1=//p" "$ROOT/etc/os-release" 2>/dev/null | tr -d "\"'" || true
}

packages_for() { # packages_for engine|client|compose|buildx|debootstrap
    case $1:$SYSTEM in
        engine:debian-13) echo docker.io docker-cli ;;
        client:debian-13) echo docker-cli ;;
        engine:* | client:*) echo docker.io ;;
        compose:debian-*) echo docker-compose ;;
        compose:ubuntu-*) echo docker-compose-v2 ;;
        buildx:*) echo docker-buildx ;;
        debootstrap:ubuntu-*) echo debootstrap debian-archive-keyring ;;
        debootstrap:*) echo debootstrap ;;
    esac
}

refuse_system() {
    local thing advice="with this system's package manager, or after docs.docker.com/engine/install"
    if [[ " $(os_release ID_LIKE) " == *" debian "* ]]; then
        advice="probably: apt-get install docker.io docker-compose-v2 (or docker-compose) docker-buildx python3-venv"
    fi
    {
        echo "[install] error: $(os_release PRETTY_NAME) is not one that install.sh can install packages on"
        echo "  why:  supported are Debian 12 and 13, Ubuntu 22.04 and 24.04; missing here:"
        for thing in "${MISSING[@]}"; do echo "          $thing"; done
        echo "  next: install these by hand ($advice), then run ./install.sh again"
    } >&2
    exit 3
}

# --- packages ---

need() { # need THING WHY PACKAGE...
    MISSING+=("$1 — $2")
    local packages=("${@:3}")
    if [[ -z $SYSTEM ]]; then packages=("$1"); fi
    act_as_root "install ${packages[*]}" "$2" "apt-get update && apt-get install -y ${packages[*]}" \
        install_packages "${packages[@]}"
}

APT_LISTS_ARE_FRESH=no

install_packages() {
    # Asking for a removal would mean that something of the user's stands in the way: never replaced.
    local options=(-q -y --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300)
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}")
    finish_interrupted_dpkg
    refresh_apt_lists
    as_root "${apt[@]}" --simulate install "$@" >"$SCRATCH/apt.log" 2>&1 ||
        die 3 "apt can't install $*" "$(grep -m 3 '^E:' "$SCRATCH/apt.log" | tr '\n' ' ')" \
            "sudo apt-get install $*; on Ubuntu these are in 'universe': sudo add-apt-repository universe"
    as_root "${apt[@]}" install "$@" >"$SCRATCH/apt.log" 2>&1 ||
        die 5 "apt could not install $*" "$(tail -n 5 "$SCRATCH/apt.log")" "sudo apt-get install $*"
    hash -r
}

finish_interrupted_dpkg() {
    [[ -z $(dpkg --audit 2>/dev/null) ]] || as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a
}

refresh_apt_lists() {
    [[ $APT_LISTS_ARE_FRESH == no ]] || return 0
    local try
    for try in 1 2 3; do
        if as_root apt-get -q update >"$SCRATCH/apt.log" 2>&1; then
            APT_LISTS_ARE_FRESH=yes
            return
        fi
        # A machine that has just booted updates its lists by itself, and holds their lock.
        ((try == 3)) || sleep 10
    done
    die 5 "apt could not read its package lists" "$(grep -m 3 '^E:' "$SCRATCH/apt.log" | tr '\n' ' ')" \
        "sudo apt-get update"
}

is_installed() { # is_installed PACKAGE
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

apt_knows() { # apt_knows PACKAGE
    apt-cache policy "$1" 2>/dev/null | grep -q '^ *Candidate: [^(]'
}
