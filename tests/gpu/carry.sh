#!/usr/bin/env bash
# Collects what tests/gpu/run.sh and tests/gpu/llamacpp.sh need on a machine that can fetch nothing:
#   tests/gpu/carry.sh FOLDER
# Packages for Python 3.12 on x86-64, of the engine and of the gateway, unpacked and packed again,
# since xz halves them; and the engines' sources by hash. 24 MB in all. What is taken for granted
# there: python3.12 with torch 2.11, Triton and NumPy, nvcc, cmake, ninja, g++, setuptools, PyYAML,
# and what transformers needs beside the packages here (regex, requests, safetensors, tqdm, filelock).
set -euo pipefail

readonly ENGINE=(
    annotated-types==0.8.0 click==8.5.1 gguf==0.19.0 h11==0.16.0 huggingface-hub==0.36.2
    jinja2==3.1.6 markupsafe==3.0.4 pydantic==2.14.4 pydantic-core==2.50.5 tokenizers==0.19.1 transformers==4.43.2
    typing-extensions==4.16.0 typing-inspection==0.4.5 uvicorn==0.54.0
)
# Of the gateway's lock what the engine does not bring. Its tokenizers are others.
readonly SHARED='annotated-types|click|h11|jinja2|markupsafe|pydantic|pydantic-core|typing-extensions|typing-inspection|uvicorn'
# Of llama.cpp, what its server with CUDA is made of.
readonly LLAMACPP=(CMakeLists.txt LICENSE cmake common ggml include licenses scripts src tools vendor)
readonly NOT_OF_IT=(
    ggml/src/ggml-{blas,cann,et,hexagon,hip,metal,musa,opencl,openvino,rpc,sycl,virtgpu,vulkan,webgpu,zdnn,zendnn}
    ggml/src/ggml-cpu/{arch/{arm,loongarch,powerpc,riscv,s390,wasm},kleidiai,spacemit}
    scripts/{apple,hip,jinja,snapdragon} tools/ui/{scripts,src,static,tests} tools/ui/package-lock.json
    '*.jpeg' '*.md' '*.mp3' '*.mp4' '*.png' '*.py' '*.sh' 'tests'
)

main() {
    local here folder=$1
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
    mkdir -p "$folder"
    folder=$(cd -- "$folder" && pwd)
    build=$(mktemp -d)
    trap 'rm -rf -- "$build"' EXIT

    printf '%s\n' "${ENGINE[@]}" >"$build/engine.txt"
    grep -oE '^[a-z0-9-]+==[^ ]+' "$here/images/gateway/requirements.lock" |
        grep -vE "^($SHARED)==" | sort -u >"$build/gateway.txt"
    pack engine
    pack gateway

    python3 -m venv "$build/venv"
    "$build/venv/bin/python3" -m pip install --quiet setuptools wheel packaging scikit-build-core
    fetch "$here/images/inference/kt-legacy/source.lock" "$folder"
    fetch "$here/images/inference/llamacpp/cuda/source.lock" "$build"
    pack_llamacpp
    du -sh -- "$folder"
}

fetch() {
    local from="$here/images/inference/kt-legacy/build"
    PATH="$build/venv/bin:$PATH" sh "$from/fetch-source" "$from" "$1" "$2"
}

pack_llamacpp() {
    local inside=llama_cpp_python-0.3.36/vendor/llama.cpp
    mkdir "$build/llamacpp"
    tar -xzf "$build/llama_cpp_python-0.3.36.tar.gz" -C "$build/llamacpp" --strip-components=3 \
        "${NOT_OF_IT[@]/#/--exclude=}" "${LLAMACPP[@]/#/$inside/}"
    tar -c --owner=0 --group=0 -C "$build/llamacpp" . | xz -9 -T0 >"$folder/llamacpp.tar.xz"
}

pack() {
    python3 -m pip install --quiet --no-deps --no-compile --only-binary=:all: --python-version 3.12 \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --target "$build/$1" -r "$build/$1.txt"
    tar -c --owner=0 --group=0 -C "$build/$1" . | xz -T0 >"$folder/$1.tar.xz"
}

if (($# != 1)); then
    echo "usage: tests/gpu/carry.sh FOLDER" >&2
    exit 2
fi
main "$@"
