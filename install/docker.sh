# shellcheck shell=bash disable=SC2034,SC2154
# Docker Engine, its plugins, its daemon, and the user's right to use it.
# Sourced by ../install.sh, which holds the variables that all parts share.

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
