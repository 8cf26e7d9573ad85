# shellcheck shell=bash disable=SC2034,SC2154
# Python, its virtual environment, and a base image where no registry answers.
# Sourced by ../install.sh, which holds the variables that all parts share.

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
