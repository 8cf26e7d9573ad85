#!/usr/bin/env bash
# Collects what tests/gpu/kt_legacy.sh needs on a machine that can fetch nothing:
#   tests/gpu/carry.sh FOLDER
# Wheels for Python 3.12 on x86-64, and the engine's source by hash: 24 MB. What is taken for granted
# there: python3.12 with torch 2.11, Triton and NumPy, nvcc, cmake, ninja, g++, setuptools, PyYAML,
# and what transformers needs beside the wheels here (regex, requests, safetensors, tqdm, filelock).
set -euo pipefail

readonly WHEELS=(
    annotated-types==0.8.0 gguf==0.19.0 huggingface-hub==0.36.2 jinja2==3.1.6
    pydantic==2.14.4 pydantic-core==2.50.5 tokenizers==0.19.1 transformers==4.43.2
    typing-extensions==4.16.0 typing-inspection==0.4.5 uvicorn==0.54.0
)

main() {
    local here folder=$1
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
    mkdir -p "$folder"
    folder=$(cd -- "$folder" && pwd)
    python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 -d "$folder/wheels" "${WHEELS[@]}"
    build=$(mktemp -d)
    trap 'rm -rf -- "$build"' EXIT
    python3 -m venv "$build/venv"
    "$build/venv/bin/python3" -m pip install --quiet setuptools wheel packaging
    PATH="$build/venv/bin:$PATH" sh "$here/images/inference/kt-legacy/build/fetch-source" \
        "$here/images/inference/kt-legacy/build" \
        "$here/images/inference/kt-legacy/source.lock" "$folder"
    du -sh -- "$folder"
}

if (($# != 1)); then
    echo "usage: tests/gpu/carry.sh FOLDER" >&2
    exit 2
fi
main "$@"
