#!/usr/bin/env bash
# What llama.cpp reserves on cards, on a machine without any: its own log lines of each buffer.
#   tests/gpu/reserve.sh SOURCE MODEL CONTEXT [SLOTS [CARDS]]
# SOURCE: llama.cpp's folder, as images/inference/llamacpp/cuda/source.lock has it (vendor/llama.cpp).
# MODEL: GGUF, or a hollow one: PYTHONPATH=tests:.:images/wire/src python3 -m gpu.synthetic_model FILE 3 newer
# What is compiled, in some minutes of one core, lies in RESERVE_WORK. Needs cmake, ninja and g++.
set -euo pipefail

main() {
    local source here work=${RESERVE_WORK:-/tmp/reserve}
    source=$(cd -- "$1" && pwd)
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
    # Nothing is computed, so nothing is optimised.
    cmake --log-level=ERROR -S "$source" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_C_FLAGS=-O0 \
        -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF -DGGML_OPENMP=OFF \
        -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF >/dev/null
    ninja -C "$work" llama >/dev/null
    g++ -std=c++17 -O0 -w -I"$source/include" -I"$source/ggml/include" -I"$source/ggml/src" "$here/reserve.cpp" \
        -o "$work/reserve" -L"$work/bin" -lllama -lggml -lggml-base -lggml-cpu -Wl,-rpath,"$work/bin"
    "$work/reserve" "$2" "$3" "${4:-1}" "${5:-1}"
}

if (($# < 3 || $# > 5)); then
    echo "usage: tests/gpu/reserve.sh SOURCE MODEL CONTEXT [SLOTS [CARDS]]" >&2
    exit 2
fi
main "$@"
