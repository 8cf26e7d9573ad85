#!/usr/bin/env bash
# What `make test` needs beyond an installed appliance: the development packages, a browser and promtool.
set -euo pipefail

main() {
    cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
    ./install.sh --no-up
    docker version >/dev/null ||
        fail 10 "Docker refuses this session" "it is older than the membership in the group docker" "log in anew"
    development_packages
    browser
    rule_checker
}

say() {
    printf '[setup] %s\n' "$*"
}

fail() { # fail EXIT_CODE WHAT WHY NEXT
    printf '[setup] error: %s\n  why:  %s\n  next: %s\n' "$2" "$3" "$4" >&2
    exit "$1"
}

# The stamp lies in .venv, so that it goes when install.sh makes that anew, and is written last.
development_packages() {
    local stamp=.venv/.made-from-development wanted
    wanted=$(sha256sum requirements-dev.lock)
    [[ $(cat "$stamp" 2>/dev/null) != "$wanted" ]] || return 0
    say "install requirements-dev.lock into .venv — it is not there or has changed"
    rm -f "$stamp"
    .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes --no-deps \
        -r requirements-dev.lock || fail 5 "could not install requirements-dev.lock" "see above" "run it again"
    echo "$wanted" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

browser() {
    local name log
    for name in chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null; then return; fi
    done
    say "install chromium — the tests log in to the web page with a real browser, and there is none"
    log=$(mktemp)
    if ! { as_root apt-get -q update && as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        --no-install-recommends -o DPkg::Lock::Timeout=300 install chromium; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        fail 5 "could not install chromium" "see above" "install a Chromium by hand"
    fi
    rm -f "$log"
}

# From Debian's package, which is taken apart and not installed: it would start a service. Last into its place.
rule_checker() {
    local folder found
    [[ ! -x .venv/bin/promtool ]] || return 0
    if found=$(type -P promtool); then
        ln -s "$found" .venv/bin/promtool
        return
    fi
    say "take promtool from the package prometheus — the tests check the rules of configs/ with it"
    folder=$(mktemp -d)
    if ! { download_package "$folder" || { as_root apt-get -q update && download_package "$folder"; }; } \
        >"$folder/log" 2>&1; then
        tail -n 5 "$folder/log" >&2
        rm -rf "$folder"
        fail 5 "could not download the package prometheus" "see above" "put a promtool into the PATH by hand"
    fi
    dpkg-deb -x "$folder"/prometheus_*.deb "$folder/package"
    mv "$folder/package/usr/bin/promtool" .venv/bin/promtool
    rm -rf "$folder"
}

download_package() { # download_package FOLDER
    (cd -- "$1" && apt-get -q download prometheus)
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    else
        sudo --preserve-env=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY "$@"
    fi
}

# In braces: a file cut short runs nothing.
{ main "$@"; exit; }
