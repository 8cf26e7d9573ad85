# shellcheck shell=bash disable=SC2034,SC2154
# Compose and buildx, the two plugins of Docker's client that the appliance needs.
# Sourced by ../install.sh, which holds the variables that all parts share.

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
            "check the mirror, or set ORCH_DEBIAN_MIRROR to one that has Debian 13, and run ./install.sh again"
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
    [[ -n $mirror ]] || die 5 "no Debian mirror is known" "this machine's apt sources name none that can be used" \
        "ORCH_DEBIAN_MIRROR=<address of a Debian mirror> ./install.sh"
    printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' \
        "$mirror" /usr/share/keyrings/debian-archive-keyring.gpg >"$1"
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
