#!/usr/bin/env bash
# Makes the base image from Debian's own packages, for hosts where no image registry answers:
#   rootfs.sh IMAGE           assembles Debian 12 (minbase) and imports it as IMAGE; needs root
#   rootfs.sh --print-mirror  only says which mirrors it would use
# Environment:
#   DEBIAN_MIRROR  the mirror to use. Unset: the one of this host's apt where the host is Debian,
#                  else debootstrap's own
#   TMPDIR         where to work (default /var/tmp): 1 GB, on a file system without noexec and nodev
#   APT_DIR, OS_RELEASE_FILE  other places than /etc/apt and /etc/os-release, for the tests
set -euo pipefail

readonly SUITE=bookworm
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
work=""
child=""

say() {
    printf 'rootfs: %s\n' "$*" >&2
}

# fail EXIT_CODE WHAT WHY NEXT_STEP
fail() {
    printf 'rootfs: %s: %s. Next: %s\n' "$2" "$3" "$4" >&2
    exit "$1"
}

main() {
    if (($# != 1)) || [[ $1 == -* && $1 != --print-mirror ]]; then
        fail 2 "wrong arguments" "expected IMAGE or --print-mirror" \
            "${BASH_SOURCE[0]} appliance/rootfs:test"
    fi
    check_wanted_mirror
    if [[ $1 == --print-mirror ]]; then
        print_mirror
        return
    fi
    check_root "$1"
    check_tools

    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    clear_leftovers
    make_work_folder
    assemble
    write_sources
    strip
    import "$1"
}

# --- which mirror ---

check_wanted_mirror() {
    [[ -z ${DEBIAN_MIRROR:-} ]] && return
    if [[ ! $DEBIAN_MIRROR =~ ^https?://[^[:space:]@]+$ ]]; then
        fail 2 "DEBIAN_MIRROR can't be used" \
            "it must be an http or https address without spaces or a password" \
            "set it to something like https://mirror.example/debian"
    fi
}

print_mirror() {
    local mirror
    mirror=$(chosen_mirror)
    echo "mirror=$mirror"
    security_candidates "$mirror" | sed 's/^/security=/'
}

chosen_mirror() {
    if [[ -n ${DEBIAN_MIRROR:-} ]]; then
        echo "${DEBIAN_MIRROR%/}"
    else
        of_host mirror
    fi
}

# of_host mirror|security: what this host's apt uses; nothing where the host is not Debian.
of_host() {
    local apt=${APT_DIR:-/etc/apt} files=() file
    grep -Eqx 'ID="?debian"?' "${OS_RELEASE_FILE:-/etc/os-release}" || return 0
    for file in "$apt/sources.list" "$apt"/sources.list.d/*.list "$apt"/sources.list.d/*.sources; do
        [[ -r $file ]] && files+=("$file")
    done
    awk -f "$here/apt-mirrors.awk" /dev/null "${files[@]}" | sed -n "s/^$1=//p"
}

# Where Debian's security archive may be for a mirror, best first.
security_candidates() {
    local mirror=$1
    {
        [[ -n ${DEBIAN_MIRROR:-} ]] || of_host security
        [[ $mirror != */debian ]] || echo "$mirror-security"
        [[ -z ${DEBIAN_MIRROR:-} ]] || of_host security
    } | awk '!seen[$0]++'
}

answers() {
    wget -q -O /dev/null --timeout=20 --tries=2 "$1/dists/$2/InRelease"
}

# --- what must be there ---

check_root() {
    ((EUID == 0)) && return
    local name command=(sudo)
    for name in DEBIAN_MIRROR TMPDIR DOCKER_HOST; do
        [[ -z ${!name:-} ]] || command+=("$name=${!name}")
    done
    command+=("$here/rootfs.sh" "$1")
    fail 3 "no base image made" "debootstrap needs root" "$(printf '%q ' "${command[@]}")"
}

check_tools() {
    local tool reason
    for tool in debootstrap wget docker flock setsid; do
        command -v "$tool" >/dev/null ||
            fail 1 "no base image made" "$tool is not installed" \
                "./install.sh, or apt-get install debootstrap wget util-linux"
    done
    # Without Debian's keys debootstrap can't tell Debian from an impostor.
    compgen -G '/usr/share/keyrings/debian-archive-keyring.*' >/dev/null ||
        fail 1 "no base image made" "Debian's archive keys are not installed" \
            "apt-get install debian-archive-keyring"
    reason=$(docker version --format '{{.Server.Version}}' 2>&1) ||
        fail 10 "no base image made" "Docker does not answer (${reason##*$'\n'})" "docker info"
}

# --- the work folder ---

# Locked before it gets the name that clear_leftovers looks for: no run takes it for a leftover.
make_work_folder() {
    local fresh
    fresh=$(mktemp -d "$(work_parent)/.appliance-rootfs.XXXXXXXX")
    work=$fresh
    exec {lock}<"$fresh"
    flock -n "$lock"
    work="$(work_parent)/appliance-rootfs.${fresh##*.}"
    mv -T -- "$fresh" "$work"
}

work_parent() {
    realpath -- "${TMPDIR:-/var/tmp}"
}

# Folders of killed runs. A living run, or a debootstrap that outlived its run, holds the lock.
clear_leftovers() {
    local folder old
    for folder in "$(work_parent)"/appliance-rootfs.*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        exec {old}<"$folder"
        if flock -n "$old"; then
            say "removing what a killed run left in $folder"
            remove "$folder"
        fi
        exec {old}<&-
    done
}

# Unmounts first: deleting through a mounted /proc or /dev would reach the host's own.
remove() {
    local point
    while IFS= read -r point; do
        umount -- "$point" 2>/dev/null || umount --lazy -- "$point" || true
    done < <(mounts_below "$1")
    rm -rf --one-file-system -- "$1"
}

mounts_below() {
    awk -v prefix="$1/" 'index($5, prefix) == 1 { print $5 }' /proc/self/mountinfo | sort -r
}

clean_up() {
    local status=$?
    trap '' HUP INT TERM
    stop_child
    [[ -z $work || ! -d $work ]] || remove "$work"
    exit "$status"
}

# In a session of its own and waited for: bash runs a trap only between commands or during `wait`.
run_child() {
    setsid "$@" &
    child=$!
    local status=0
    wait "$child" || status=$?
    child=""
    return "$status"
}

stop_child() {
    [[ -n $child ]] || return 0
    local tries
    kill -TERM -- "-$child" 2>/dev/null || return 0
    for ((tries = 0; tries < 50; tries++)); do
        kill -0 -- "-$child" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$child" 2>/dev/null || true
}

# --- the image ---

assemble() {
    local mirror log="$work/debootstrap.log" arguments
    mirror=$(chosen_mirror)
    arguments=(--variant=minbase --force-check-gpg)
    # apt in the image needs certificates for such a mirror before it can install anything.
    [[ $mirror != https:* ]] || arguments+=(--include=ca-certificates)
    say "assembling Debian $SUITE from ${mirror:-the default mirror}"
    arguments+=("$SUITE" "$work/root" ${mirror:+"$mirror"})
    if ! run_child debootstrap "${arguments[@]}" >"$log" 2>&1; then
        tail -n 15 "$log" | sed 's/^/rootfs:   /' >&2
        fail 1 "debootstrap could not assemble Debian $SUITE from ${mirror:-the default mirror}" \
            "$(grep -E '^[EW]: ' "$log" | tail -n 1 || tail -n 1 "$log")" \
            "set DEBIAN_MIRROR to a mirror that this machine reaches, or TMPDIR to another disk"
    fi
}

# debootstrap leaves one line with the mirror that it used.
write_sources() {
    local list="$work/root/etc/apt/sources.list" mirror security
    mirror=$(awk '$1 == "deb" { print $2; exit }' "$list")
    echo "deb $mirror $SUITE main" >"$list"
    if answers "$mirror" "$SUITE-updates"; then
        echo "deb $mirror $SUITE-updates main" >>"$list"
    fi
    while IFS= read -r security; do
        if answers "$security" "$SUITE-security"; then
            echo "deb $security $SUITE-security main" >>"$list"
            return
        fi
    done < <(security_candidates "$mirror")
    say "found no mirror of Debian's security updates: going on without"
}

strip() {
    local root="$work/root"
    cat >"$root/etc/dpkg/dpkg.cfg.d/small" <<'DPKG'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
DPKG
    find "$root/usr/share/doc" ! -type d ! -name copyright -delete
    find "$root/usr/share/doc" -depth -type d -empty -delete
    rm -rf --one-file-system -- "${root:?}"/{dev,run,tmp}/* "$root"/usr/share/{info,locale,man}/* \
        "$root"/var/log/* "$root"/var/lib/apt/lists/* "$root"/var/cache/{apt,debconf,ldconfig}/*
    # The host's, copied in by debootstrap. Docker brings each container its own.
    rm -f -- "$root"/etc/{hostname,resolv.conf}
}

# By way of a file: a broken pipe could be taken for the end of a smaller image.
import() {
    local archive="$work/root.tar"
    run_child tar -C "$work/root" --numeric-owner --xattrs -cf "$archive" \
        --exclude='./proc/*' --exclude='./sys/*' . ||
        fail 1 "no base image made" "packing it failed" "df -h $(work_parent)"
    run_child docker import \
        --message "Debian $SUITE from packages" \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'ENV LANG=C.UTF-8' \
        --change 'CMD ["bash"]' \
        "$archive" "$1" ||
        fail 1 "no base image made" "docker import failed" "docker info; df -h"
}

main "$@"
