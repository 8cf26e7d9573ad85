#!/usr/bin/env bash
# What `make test` needs beyond an installed appliance: the development packages and a browser.
set -euo pipefail

main() {
    cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
    ./install.sh --no-up
    docker version >/dev/null ||
        fail 10 "Docker refuses this session" "it is older than the membership in the group docker" "log in anew"
    development_packages
    browser
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

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    else
        sudo --preserve-env=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY "$@"
    fi
}

# In braces: a file cut short runs nothing.
{ main "$@"; exit; }
