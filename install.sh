#!/usr/bin/env bash
# From a bare Debian or Ubuntu machine to a running appliance. Safe to run again, and to interrupt.
# shellcheck disable=SC2317,SC2329  # many functions are called only by way of `act`
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: ./install.sh [--dry-run] [--no-up] [--] [ARGUMENTS FOR up]

Installs what is missing (Docker Engine, its Compose and buildx plugins, python3-venv, debootstrap where no
image registry answers, the NVIDIA container toolkit where there is a GPU), starts Docker, makes .venv, and
ends with `python -m orchestrator up ARGUMENTS`. What is there already is left as it is.

  --dry-run   print each action and why; change nothing
  --no-up     stop before `python -m orchestrator up`
  --help      this text
  --          what follows is for `up`, even if it looks like one of these options

Debian 12 and 13: proven on bare machines. Ubuntu 22.04 and 24.04: only its plan is checked, on recorded
output; it was not run there. Other systems: it goes on where Docker, Compose, buildx and venv are there already.

Environment: ORCH_BASE_IMAGE and ORCH_BASE_DIGEST (whose registry is asked), DEBIAN_MIRROR, NVIDIA_TOOLKIT_REPO, and the
proxy variables. apt, pip and Docker use this machine's own configuration.
Exit codes: 0 done, 2 usage, 3 this machine lacks something, 5 a download failed, 6 a Python package has
the wrong hash, 9 another run is at work, 10 Docker does not answer; any other is that of `up`.
TEXT
}

# The image that images/base/rootfs.sh makes and the orchestrator builds on where no registry answers.
readonly ROOTFS_IMAGE=appliance/rootfs:bookworm
# The orchestrator's default for ORCH_BASE_IMAGE.
readonly DEFAULT_BASE_IMAGE=docker.io/library/debian:bookworm-slim
readonly PLUGIN_FOLDER=/usr/local/lib/docker/cli-plugins
readonly DOCKERD_LOG=/var/log/dockerd.log
readonly DOCKERD_PATIENCE_S=90
# What sudo would drop and the programs behind it need.
readonly KEPT_BY_SUDO=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY,DOCKER_HOST,DEBIAN_MIRROR,TMPDIR

# A folder that stands for / in the tests: a recorded machine. Only a dry run may have one.
ROOT=${INSTALL_ROOT:-}
DRY_RUN=no
NO_UP=no
UP_ARGUMENTS=()
SCRATCH=""

main() {
    parse_arguments "$@"
    cd -- "$(dirname -- "${BASH_SOURCE[0]:-.}")"
    [[ -f requirements.lock && -d orchestrator ]] ||
        die 2 "this is not the project's folder" "requirements.lock and orchestrator/ belong beside install.sh" \
            "clone the whole repository and run ./install.sh there"
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

# --- saying and doing ---

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

as_root() { # act_as_root WHAT WHY REQUEST COMMAND...
    FOR_ROOT+=("$1 — $2")
    REQUESTS+=("$3")
    act "$1" "$2" "${@:4}"
}

is_root() {
    [[ $(id -u) == 0 ]]
}

has_sudo() {
    command -v sudo >/dev/null || return 1
    sudo -n true 2>/dev/null && return
    [[ -t 0 ]] || return 1
    [[ $DRY_RUN == yes ]] || sudo -v
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

# --- which system ---

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

# --- Python ---

PYTHON=""

python_step() {
    if [[ -n $SYSTEM && ! -e $ROOT/etc/ssl/certs/ca-certificates.crt ]]; then
        need "TLS certificates" "HTTPS needs the system's certificates" ca-certificates
    fi
    find_python && return
    need "Python 3.10 or newer with venv" "no Python from 3.10 on here can make a virtual environment" python3-venv
    [[ $MODE == look ]] || find_python ||
        die 3 "no usable Python after python3-venv was installed" "python3 is $(command -v python3)" \
            "python3 -m venv /tmp/try"
}

find_python() {
    for PYTHON in python3 "$ROOT/usr/bin/python3"; do
        # Debian's venv module imports without python3-venv, but has no ensurepip.
        "$PYTHON" -I -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && return
    done
    PYTHON=""
    return 1
}

# Through Python, since a bare machine has no curl. The proxy variables count.
answers() { # answers URL: 0 it does, 1 it doesn't, 2 it can't be asked yet
    [[ -n $PYTHON ]] || return 2
    timeout 20 "$PYTHON" -I - "$1" <<'PY' || return 1
import http.client, sys, urllib.error, urllib.request
try:
    status = urllib.request.urlopen(sys.argv[1], timeout=8).status
except urllib.error.HTTPError as error:
    status = error.code
except (OSError, ValueError, http.client.HTTPException):
    sys.exit(1)
sys.exit(status not in (200, 401))
PY
}

# --- Docker Engine ---

docker_state() { # answers, denied or silent
    local said
    if said=$(LC_ALL=C timeout 20 docker version --format '{{.Server.Version}}' 2>&1); then
        echo answers
    elif [[ $said == *"permission denied"* ]]; then
        echo denied
    else
        echo silent
    fi
}

# A daemon that the user chose: Docker Desktop, rootless, another host.
docker_is_elsewhere() {
    command -v docker >/dev/null || return 1
    case ${DOCKER_HOST:-} in
        "") [[ $(docker_context) != default ]] ;;
        unix:///var/run/docker.sock | unix:///run/docker.sock) return 1 ;;
    esac
}

docker_context() {
    local name=${DOCKER_CONTEXT:-}
    # Docker 20.10 has no `docker context show`.
    [[ -n $name ]] || name=$(docker context inspect --format '{{.Name}}' 2>/dev/null) || true
    echo "${name:-default}"
}

ENGINE="" # which packages Docker is from: docker.io, docker-ce or other

engine_step() {
    ENGINE=other
    if is_installed docker-ce; then ENGINE=docker-ce; fi
    if is_installed docker.io; then ENGINE=docker.io; fi
    if command -v dockerd >/dev/null; then
        command -v docker >/dev/null || need_client
        return
    fi
    # A client alone is no Engine: it may be a stray binary.
    if docker_is_elsewhere || [[ $(docker_state) != silent ]]; then return; fi
    local packages
    read -ra packages <<<"$(packages_for engine)"
    # Where the kernel has AppArmor on, dockerd starts no container without its parser.
    if grep -qs Y "$ROOT/sys/module/apparmor/parameters/enabled" && ! command -v apparmor_parser >/dev/null; then
        packages+=(apparmor)
    fi
    need "Docker Engine" "there is no Docker Engine here" "${packages[@]}"
    ENGINE=docker.io
}

need_client() {
    local package
    package=$(packages_for client)
    if [[ $ENGINE == docker-ce ]]; then package=docker-ce-cli; fi
    need "the docker client" "dockerd is here without its client" "$package"
}

# --- Compose and buildx ---

plugins_step() {
    local name fetch=()
    for name in compose buildx; do
        docker "$name" version >/dev/null 2>&1 && continue
        if [[ -z $SYSTEM ]]; then
            need "the docker $name plugin" "\`docker $name version\` fails"
        elif [[ $ENGINE == docker-ce ]] && apt_knows "docker-$name-plugin" && may_act_as_root; then
            need "the docker $name plugin" "\`docker $name version\` fails; Docker is docker-ce" "docker-$name-plugin"
        elif [[ $ENGINE == docker.io && $SYSTEM != debian-12 ]] && may_act_as_root; then
            need "the docker $name plugin" "\`docker $name version\` fails" "$(packages_for "$name")"
        else
            fetch+=("$name")
        fi
    done
    ((${#fetch[@]} == 0)) || fetch_plugins "${fetch[@]}"
    [[ $MODE == look ]] || check_plugins
}

# Single binaries out of packages: Debian 12 has none of them, and beside a Docker of another origin the
# distribution's package could bring a second Engine.
fetch_plugins() { # fetch_plugins NAME...
    local name packages=() folder=$PLUGIN_FOLDER origin="this system's packages"
    for name in "$@"; do packages+=("$(packages_for "$name")"); done
    if [[ $SYSTEM == debian-12 ]]; then origin="Debian 13's packages, as Debian 12 has none"; fi
    if ! may_act_as_root; then folder=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins; fi
    for name in "$@"; do
        act "put the docker $name plugin into $folder" "\`docker $name version\` fails; from $origin" true
    done
    [[ $MODE == look ]] || fetch_plugins_into "$folder" "${packages[@]}"
}

fetch_plugins_into() { # fetch_plugins_into FOLDER PACKAGE...
    local folder=$1 work=$SCRATCH/plugins options package binary
    mkdir -p "$work"/{lists,cache,sources,debs,root}
    options=(-q -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::Etc::Preferences=/dev/null
        -o Dir::Etc::PreferencesParts=/dev/null -o Acquire::Languages=none -o APT::Default-Release=
        -o APT::Sandbox::User=)
    if [[ $SYSTEM == debian-12 ]]; then
        write_trixie_source "$work/sources/trixie.sources"
        options+=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources")
    fi
    if ! apt-get "${options[@]}" update >"$SCRATCH/apt.log" 2>&1 ||
        ! (cd "$work/debs" && apt-get "${options[@]}" download "${@:2}") >>"$SCRATCH/apt.log" 2>&1; then
        die 5 "could not download ${*:2}" "$(grep '^[EW]:' "$SCRATCH/apt.log" | tail -n 3)" \
            "check the mirror, or set DEBIAN_MIRROR to one that has Debian 13, and run ./install.sh again"
    fi
    for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done
    for binary in "$work"/root/usr/libexec/docker/cli-plugins/docker-*; do
        put_program "$binary" "$folder"
    done
}

# From the mirror that this machine's apt uses: it is known to be in reach and allowed.
write_trixie_source() { # write_trixie_source FILE
    local mirror
    mirror=$(images/base/rootfs.sh --print-mirror | sed -n 's/^mirror=//p')
    printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' \
        "${mirror:-http://deb.debian.org/debian}" /usr/share/keyrings/debian-archive-keyring.gpg >"$1"
}

put_program() { # put_program FILE FOLDER
    local elevate=()
    if [[ $2 == "$PLUGIN_FOLDER" ]]; then elevate=(as_root); fi
    "${elevate[@]}" mkdir -p "$2"
    # By rename, so an interrupted copy is never taken for the program.
    "${elevate[@]}" install -m 755 "$1" "$2/.${1##*/}.new"
    "${elevate[@]}" mv -f "$2/.${1##*/}.new" "$2/${1##*/}"
}

check_plugins() {
    local name
    for name in compose buildx; do
        docker "$name" version >/dev/null 2>&1 ||
            die 10 "\`docker $name version\` still fails" "$(docker "$name" version 2>&1 | head -n 1)" \
                "docker $name version; docker info"
    done
}

# --- NVIDIA ---

nvidia_step() {
    gpu_is_present || return 0
    if [[ ! -e $ROOT/proc/driver/nvidia/version ]]; then
        warn "an NVIDIA GPU without its driver" "/proc/driver/nvidia/version is not there" \
            "install it (Ubuntu: sudo ubuntu-drivers install; Debian: nvidia-driver), reboot, run ./install.sh"
    fi
    command -v nvidia-ctk >/dev/null || toolkit_step || return 0
    runtime_is_registered && return
    if ! command -v dockerd >/dev/null && [[ $ENGINE == other ]]; then
        warn "Docker's NVIDIA runtime is not set up" "this Docker has no dockerd here to configure" \
            "set it up where the daemon runs: nvidia-ctk runtime configure --runtime=docker"
        return
    fi
    act_as_root "register NVIDIA's runtime in /etc/docker/daemon.json" \
        "Docker does not know it (running containers go on)" \
        "nvidia-ctk runtime configure --runtime=docker && systemctl reload docker" register_nvidia_runtime
}

runtime_is_registered() {
    if [[ $(docker_state) == answers ]]; then
        docker info --format '{{json .Runtimes}}' 2>/dev/null | grep -q '"nvidia"'
    else
        grep -qs nvidia-container-runtime "$ROOT/etc/docker/daemon.json"
    fi
}

gpu_is_present() {
    local device
    for device in "$ROOT"/sys/bus/pci/devices/*; do
        [[ -r $device/vendor && $(<"$device/vendor") == 0x10de && $(<"$device/class") == 0x03* ]] && return
    done
    [[ -e $ROOT/proc/driver/nvidia/version ]]
}

toolkit_repository() {
    echo "${NVIDIA_TOOLKIT_REPO:-$(sed -n 's/^NVIDIA_TOOLKIT_REPO=//p' configs/endpoints.env)}"
}

# 0 where the toolkit is there, or planned to be. The CPU profiles work without it, so its lack is only a warning.
toolkit_step() {
    local why="there is an NVIDIA GPU, and nvidia-ctk is not here" repository reach=0
    repository=$(toolkit_repository)
    if [[ -n $SYSTEM ]] && may_act_as_root; then
        if apt_knows nvidia-container-toolkit; then
            need "the NVIDIA container toolkit" "$why" nvidia-container-toolkit
            return
        fi
        answers "$repository/gpgkey" || reach=$?
        if ((reach != 1)); then
            if ((reach == 2)); then why+=" (only if $repository answers: not asked before Python is here)"; fi
            act_as_root "add $repository and install nvidia-container-toolkit" "$why" \
                "see NVIDIA's container toolkit install guide" add_toolkit "$repository"
            return
        fi
        why="$repository does not answer"
    fi
    warn "NVIDIA's container toolkit is not installed: GPU profiles won't run" "$why" \
        "NVIDIA_TOOLKIT_REPO=<a mirror of $repository> ./install.sh, or install nvidia-container-toolkit yourself"
    return 1
}

add_toolkit() { # add_toolkit REPOSITORY
    as_root_function add_toolkit_as_root -- "$PYTHON" "$1" >"$SCRATCH/toolkit.log" 2>&1 ||
        die 5 "could not install nvidia-container-toolkit from $1; nothing of it was left behind" \
            "$(tail -n 3 "$SCRATCH/toolkit.log")" \
            "set NVIDIA_TOOLKIT_REPO to a mirror that works and run ./install.sh again"
}

add_toolkit_as_root() { # add_toolkit_as_root PYTHON REPOSITORY
    # Not local: the trap runs after the function. Undone unless all of it works.
    key=/usr/share/keyrings/nvidia-container-toolkit-keyring.asc
    list=/etc/apt/sources.list.d/nvidia-container-toolkit.list
    trap 'rm -f -- "$key" "$list"' EXIT
    "$1" -I -c 'import sys, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=20).read())' "$2/gpgkey" >"$key"
    chmod 644 "$key"
    printf 'deb [signed-by=%s] %s/stable/deb/%s /\n' "$key" "$2" "$(dpkg --print-architecture)" >"$list"
    apt-get -q update -o Dir::Etc::SourceList="$list" -o Dir::Etc::SourceParts=/dev/null -o APT::Get::List-Cleanup=false
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-remove -o DPkg::Lock::Timeout=300 install nvidia-container-toolkit
    trap - EXIT
}

register_nvidia_runtime() {
    as_root nvidia-ctk runtime configure --runtime=docker >/dev/null
    [[ $(docker_state) != silent ]] || return 0
    # Runtimes are among what dockerd takes over on SIGHUP. A restart would stop the user's containers.
    if [[ -d /run/systemd/system ]]; then
        as_root systemctl reload docker
    else
        as_root kill -HUP "$(</var/run/docker.pid)"
    fi
}

# --- dockerd ---

dockerd_step() {
    local state
    state=$(docker_state)
    case $state in
        answers) return ;;
        denied) if any_process dockerd; then return; fi ;;
    esac
    if docker_is_elsewhere; then
        die 10 "Docker does not answer at ${DOCKER_HOST:-the context $(docker_context)}" \
            "a Docker elsewhere was chosen, and install.sh does not start that one" \
            "start it, or unset DOCKER_HOST: docker info"
    fi
    if [[ -d $ROOT/run/systemd/system ]]; then
        act_as_root "start dockerd through systemd" "no Docker daemon answers" \
            "systemctl enable --now docker" start_through_systemd
    elif any_process dockerd; then
        act "wait for dockerd" "it is running and does not answer yet" true
    else
        act_as_root "start dockerd directly" "no Docker daemon answers, and systemd does not run here" \
            "dockerd" start_directly
    fi
    [[ $MODE == look ]] || wait_for_dockerd
}

any_process() { # any_process NAME: alive, so no zombie
    local status
    for status in "${ROOT:-}"/proc/[0-9]*/status; do
        is_process "$1" "$status" && return
    done
    return 1
}

is_process() { # is_process NAME STATUS_FILE
    local key value name="" state=""
    while read -r key value; do
        case $key in
            Name:) name=$value ;;
            State:) state=$value && break ;;
        esac
    done <"$2"
    [[ $name == "$1" && $state != [ZX]* ]]
} 2>/dev/null

start_through_systemd() {
    # After quick deaths systemd refuses to start it until this.
    as_root systemctl reset-failed docker.service docker.socket 2>/dev/null || true
    as_root systemctl enable --now docker >"$SCRATCH/systemctl.log" 2>&1 ||
        dockerd_failed "$(<"$SCRATCH/systemctl.log")"
}

start_directly() {
    as_root_function launch_dockerd forget_dead any_process is_process -- "$DOCKERD_LOG"
}

# Runs as root. What a killed dockerd left behind must not be taken for a living one, as a reused pid would be.
launch_dockerd() { # launch_dockerd LOG
    forget_dead dockerd /var/run/docker.pid
    forget_dead containerd /var/run/docker/containerd/containerd.pid
    # dockerd prefers a system containerd wherever this socket exists, and would wait for a dead one.
    any_process containerd || rm -f /run/containerd/containerd.sock
    # Each start has its own log, and the last words of the one before stay readable.
    [[ ! -e $1 ]] || mv -f "$1" "$1.1"
    # nohup for the moment before setsid: sudo's terminal may close in it.
    nohup setsid --fork dockerd >>"$1" 2>&1 </dev/null
}

forget_dead() { # forget_dead NAME PID_FILE
    [[ -e $2 ]] || return 0
    is_process "$1" "/proc/$(<"$2")/status" || rm -f "$2"
}

wait_for_dockerd() {
    local began=$SECONDS
    until as_root timeout 20 docker version >/dev/null 2>&1; do
        if ((SECONDS - began > DOCKERD_PATIENCE_S)); then
            dockerd_failed "it did not answer within $DOCKERD_PATIENCE_S s"
        fi
        if ((SECONDS - began > 5)) && ! any_process dockerd && [[ ! -d /run/systemd/system ]]; then
            dockerd_failed "it ended at once"
        fi
        sleep 1
    done
}

dockerd_failed() { # dockerd_failed WHY
    local last_words next="sudo tail -n 50 $DOCKERD_LOG"
    if [[ -d /run/systemd/system ]]; then
        last_words=$(as_root journalctl -u docker -n 20 --no-pager 2>&1 || true)
        next="sudo journalctl -u docker; sudo systemctl status docker"
    else
        last_words=$(as_root tail -n 20 "$DOCKERD_LOG" 2>&1 || true)
    fi
    die 10 "dockerd does not come up" "$1; its last words:"$'\n'"$last_words" "$next"
}

# --- the user's right to use Docker ---

THROUGH_SG=no # yes where this session is older than the user's membership

group_step() {
    THROUGH_SG=no
    if is_root || docker_is_elsewhere || [[ $(docker_state) == answers ]]; then return; fi
    local user in_group=yes
    user=$(id -un)
    if [[ " $(id -nG "$user") " != *" docker "* ]]; then
        # Before it is done, sg would ask for a password of the group.
        [[ $MODE == act ]] || in_group=no
        act_as_root "add $user to the group docker" "only its members may use Docker, which equals root here" \
            "usermod -aG docker $user" as_root usermod -aG docker "$user"
    fi
    THROUGH_SG=$in_group
    [[ $MODE == look ]] || with_docker docker version >/dev/null ||
        die 10 "Docker refuses $user" "not even as a member of the group docker" \
            "log out and in again, then: docker info"
}

with_docker() {
    if [[ $THROUGH_SG == yes ]]; then sg docker -c "$(quoted "$@")"; else "$@"; fi
}

# For sh, which sg runs.
quoted() {
    local word
    for word in "$@"; do printf "'%s' " "${word//\'/\'\\\'\'}"; done
}

# --- a base image where no registry answers ---

rootfs_step() {
    local registry reach=0 why
    base_image_is_here && return
    registry=$(base_registry)
    answers "https://$registry/v2/" || reach=$?
    case $reach in
        0) return ;;
        1) why="the image registry $registry does not answer" ;;
        2) why="only if the image registry $registry does not answer: not asked before Python is here" ;;
    esac
    if ! command -v debootstrap >/dev/null; then
        local packages
        read -ra packages <<<"$(packages_for debootstrap)"
        need "debootstrap" "$why" "${packages[@]}"
    fi
    if [[ $(docker_state) != answers ]]; then why+=" (left out if Docker, once it answers, has it already)"; fi
    act_as_root "make the image $ROOTFS_IMAGE from Debian's packages" "$why" \
        "docker image inspect $ROOTFS_IMAGE >/dev/null || $PWD/images/base/rootfs.sh $ROOTFS_IMAGE" make_rootfs
}

base_image_is_here() {
    local image of_registry=${ORCH_BASE_IMAGE:-$DEFAULT_BASE_IMAGE}${ORCH_BASE_DIGEST:+@$ORCH_BASE_DIGEST}
    for image in "$ROOTFS_IMAGE" "$of_registry"; do
        with_docker timeout 20 docker image inspect "$image" >/dev/null 2>&1 && return
    done
    return 1
}

# As Docker reads a reference: a first part with a dot, a port or "localhost" is a registry.
base_registry() {
    local image=${ORCH_BASE_IMAGE:-$DEFAULT_BASE_IMAGE} first=docker.io
    if [[ $image == */* ]]; then first=${image%%/*}; fi
    case $first in
        docker.io | index.docker.io) echo registry-1.docker.io ;;
        *.* | *:* | localhost) echo "$first" ;;
        *) echo registry-1.docker.io ;;
    esac
}

make_rootfs() {
    local code=0
    as_root images/base/rootfs.sh "$ROOTFS_IMAGE" >/dev/null || code=$?
    ((code == 0)) || die "$((code == 1 ? 5 : code))" "no base image" "images/base/rootfs.sh failed, see above" \
        "sudo images/base/rootfs.sh $ROOTFS_IMAGE"
}

# --- .venv ---

venv_step() {
    local why
    why=$(venv_fault)
    [[ -z $why ]] || act "make .venv from requirements.lock" "$why" make_venv
}

# What is wrong with it; nothing where it is good. The stamp is written last, so a half-made one has none.
venv_fault() {
    local stamp
    if [[ ! -d .venv ]]; then
        echo "there is none"
    elif ! .venv/bin/python -c '' 2>/dev/null; then
        echo "its Python does not start"
    elif ! stamp=$(cat .venv/.made-from 2>/dev/null); then
        echo "it was not finished"
    elif [[ $stamp != "$(venv_stamp)" ]]; then
        echo "requirements.lock or Python changed since"
    fi
}

venv_stamp() {
    .venv/bin/python -c 'import sys; print("Python", *sys.version_info[:2])'
    sha256sum requirements.lock
}

make_venv() {
    "$PYTHON" -m venv --clear .venv >"$SCRATCH/venv.log" 2>&1 ||
        die 3 "could not make .venv" "$(tail -n 3 "$SCRATCH/venv.log")" "$PYTHON -m venv --clear .venv"
    .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes \
        -r requirements.lock >"$SCRATCH/pip.log" 2>&1 || pip_failed
    venv_stamp >"$SCRATCH/stamp"
    cp "$SCRATCH/stamp" .venv/.made-from.new
    mv .venv/.made-from.new .venv/.made-from
}

pip_failed() {
    if grep -q 'DO NOT MATCH THE HASHES' "$SCRATCH/pip.log"; then
        die 6 "a Python package is not the one that requirements.lock names" "$(tail -n 4 "$SCRATCH/pip.log")" \
            "find out who changed it: the package index, a proxy, or requirements.lock (git diff requirements.lock)"
    fi
    die 5 "could not install the Python packages" "$(tail -n 5 "$SCRATCH/pip.log")" \
        "check this machine's pip configuration and proxy, then run ./install.sh again"
}

# --- the end ---

up_in_words() {
    local words=(run python -m orchestrator up "${UP_ARGUMENTS[@]}")
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
