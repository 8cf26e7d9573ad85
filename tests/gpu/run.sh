#!/usr/bin/env bash
# Builds the engine kt-legacy and checks it on an NVIDIA GPU, without containers:
#   tests/gpu/run.sh CHECK CARRIED OUT      CHECK: kt_legacy, with_gateway, record, synthetic or marlin
# Without Marlin, but for the check of that name; what is built with it does for the others too.
# CARRIED is what tests/gpu/carry.sh collected. OUT gets the report and the engine's logs.
# What is built lies in KT_WORK, and a second run with the same KT_WORK does not build again.
set -euo pipefail

main() {
    check=$1
    carried=$(cd -- "$2" && pwd)
    mkdir -p "$3"
    out=$(cd -- "$3" && pwd)
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
    build="$here/images/inference/kt-legacy/build"
    work=${KT_WORK:-$(mktemp -d)}
    mkdir -p "$work"
    work=$(cd -- "$work" && pwd)
    GPU_BEGAN=$(date +%s)
    export GPU_BEGAN
    echo "working in $work"

    step packages
    unpack engine "$work/site"
    unpack gateway "$work/gateway-site"
    export GATEWAY_PYTHONPATH="$here/images/gateway/src:$work/gateway-site:$work/site"
    export PYTHONPATH="$work/kt:$work/site:$here:$here/tests:$here/images/wire/src"
    PYTHONPATH+=":$here/images/inference/placing/src:$here/images/inference/kt-legacy/src"
    PYTHONPATH+=":$here/images/inference/kt-legacy/stand-ins"
    build_engine

    step "$check"
    python3 -m "gpu.$check" "$work" "$out"
}

unpack() {
    if [[ ! -d $2 ]]; then
        python3 -m tarfile -e "$carried/$1.tar.xz" "$2.part"
        mv -- "$2.part" "$2"
    fi
}

build_engine() {
    if [[ -e $work/kt/built-with-marlin || ($check != marlin && -e $work/kt/built) ]]; then
        return
    fi
    step source
    rm -rf -- "$work/src" "$work/cpu" "$work/kt"
    mkdir -p "$work/src" "$work/cpu" "$work/kt"
    tar -xzf "$carried/ktransformers-0.2.1.post1.tar.gz" -C "$work/src" --strip-components=1
    sh "$build/start-hang/check" "$work/src" hangs
    python3 "$build/patch_source.py" "$work/src" start-hang
    local without=--without-marlin built=built
    if [[ $check == marlin ]]; then
        without='' built=built-with-marlin
        python3 -m gpu.marlin_source "$work/src"
    else
        python3 "$build/patch_source.py" "$work/src" without-marlin
    fi
    sh "$build/start-hang/check" "$work/src" starts

    step kernels
    local variant architecture cpu
    variant=$(python3 - <<'PYTHON'
from pathlib import Path
from kt_legacy_engine.arguments import VARIANTS
from kt_legacy_engine.kernels import NEEDS, cpu_flags
flags = cpu_flags(Path("/proc/cpuinfo").read_text())
print(next(name for name in VARIANTS if NEEDS[name] <= flags))
PYTHON
    )
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    if [[ -z ${CUDA_HOME:-} ]]; then
        CUDA_HOME=$(dirname -- "$(dirname -- "$(readlink -f -- "$(command -v nvcc)")")")
        export CUDA_HOME
    fi
    # Marlin's as in the image: from C++ for the oldest, and from there for this one.
    if [[ $check == marlin && $architecture != 80 ]]; then
        architecture="80 $architecture"
    fi
    sh "$build/cpu-kernels" "$work/src" "$work/cpu" "$variant" &
    cpu=$!
    MAX_JOBS=4 python3 "$build/gpu_kernels.py" "$work/src" "$work/kt" "$architecture" \
        ${without:+"$without"} >"$out/gpu-kernels.log" 2>&1 || {
        tail -n 40 "$out/gpu-kernels.log" >&2
        return 1
    }
    wait "$cpu"
    cp -r "$work/src/ktransformers" "$work/kt/"
    touch "$work/kt/$built"
}

step() {
    echo "== $1 ($(date +%T))"
}

if (($# != 3)); then
    echo "usage: tests/gpu/run.sh kt_legacy|with_gateway|record|synthetic|marlin CARRIED OUT" >&2
    exit 2
fi
main "$@"
