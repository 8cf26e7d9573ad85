#!/usr/bin/env bash
# Compiles llama.cpp's server for the GPU of this machine and checks it, without containers:
#   tests/gpu/llamacpp.sh CARRIED OUT
# CARRIED is what tests/gpu/carry.sh collected. OUT gets the report and the engine's logs.
# What is compiled lies in LLAMACPP_WORK, and a second run with the same one does not compile again.
set -euo pipefail

main() {
    carried=$(cd -- "$1" && pwd)
    mkdir -p "$2"
    out=$(cd -- "$2" && pwd)
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
    work=${LLAMACPP_WORK:-$(mktemp -d)}
    mkdir -p "$work"
    work=$(cd -- "$work" && pwd)
    echo "working in $work"

    step packages
    unpack engine "$work/site"
    unpack llamacpp "$work/llama.cpp"
    PYTHONPATH="$work/site:$here:$here/tests:$here/images/wire/src:$here/images/inference/placing/src"
    PYTHONPATH+=":$here/images/inference/llamacpp/src:$here/images/inference/kt-legacy/src"
    export PYTHONPATH
    find_cuda
    compile

    step checks
    python3 -m gpu.llamacpp "$work" "$out"
}

unpack() {
    if [[ ! -d $2 ]]; then
        python3 -m tarfile -e "$carried/$1.tar.xz" "$2.part"
        mv -- "$2.part" "$2"
    fi
}

# The compiler's own folder has no cuBLAS; that of torch's packages has.
find_cuda() {
    cuda=${CUDA_HOME:-$(dirname -- "$(dirname -- "$(readlink -f -- "$(command -v nvcc)")")")}
    cublas=$(python3 -c '
import importlib.util, pathlib
folders = importlib.util.find_spec("nvidia").submodule_search_locations
print(next(found.parents[1] for folder in folders for found in pathlib.Path(folder).glob("cu13/lib/libcublas.so.13")))')
    export LD_LIBRARY_PATH="$cublas/lib:$cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

compile() {
    if [[ -e $work/compiled.json ]]; then
        return
    fi
    step compile
    local architecture began
    architecture=${CUDA_ARCHITECTURES:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)}
    began=$(date +%s)
    PATH="$cuda/bin:$PATH" BUILD="$work/build" VARIANTS=$(variant) sh "$here/images/inference/llamacpp/cuda/build-server" \
        "$work/llama.cpp" "$work/llama" "$architecture" -DCUDAToolkit_ROOT="$cuda" \
        -DCMAKE_CUDA_FLAGS="-isystem $cublas/include" \
        -DCUDA_cublas_LIBRARY="$cublas/lib/libcublas.so.13" \
        -DCUDA_cublasLt_LIBRARY="$cublas/lib/libcublasLt.so.13" >"$out/compile.log" 2>&1 || {
        tail -n 40 "$out/compile.log" >&2
        return 1
    }
    printf '{"seconds": %d, "cores": %d, "architecture": "%s"}\n' \
        $(($(date +%s) - began)) "$(nproc)" "$architecture" >"$work/compiled.json"
    cat "$work/compiled.json"
}

# The best of the CPU's instructions: the image has one for each, this machine needs no other.
variant() {
    case " $(grep -m 1 ^flags /proc/cpuinfo) " in
    *' amx_int8 '*) echo sapphirerapids ;;
    *' avx512_bf16 '*) echo zen4 ;;
    *' avx512f '*) echo skylakex ;;
    *) echo haswell ;;
    esac
}

step() {
    echo "== $1 ($(date +%T))"
}

if (($# != 2)); then
    echo "usage: tests/gpu/llamacpp.sh CARRIED OUT" >&2
    exit 2
fi
main "$@"
