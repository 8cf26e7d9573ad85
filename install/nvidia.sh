# shellcheck shell=bash disable=SC2034,SC2154
# The NVIDIA container toolkit, where there is a GPU.
# Sourced by ../install.sh, which holds the variables that all parts share.

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
