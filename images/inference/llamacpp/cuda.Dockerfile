# The engine on a GPU: llama.cpp's own server, compiled from its source with CUDA; the experts stay in
# RAM. Build context: images/. From Debian's and Python's packages alone; the CUDA compiler too is one.
ARG BASE

# What both building and running need. Byte code is compiled here: containers can't write any.
# hadolint ignore=DL3006 -- the builder names the base image, and pins it
FROM ${BASE} AS libraries
COPY inference/llamacpp/cuda/base.lock /build/
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip-install /opt/app /build/base.lock --only-binary=:all:
ENV PATH=/opt/app/bin:$PATH

FROM libraries AS builder
COPY inference/kt-legacy/build/apt-install inference/kt-legacy/build/fetch-source /build/
RUN --mount=type=secret,id=ca sh /build/apt-install ccache cmake g++
COPY inference/llamacpp/cuda/build.lock inference/llamacpp/cuda/source.lock /build/
# The packages of one CUDA release share a folder. All it lacks of a CUDA installation are some names.
ENV CUDA_HOME=/usr/local/cuda
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip-install /opt/app /build/build.lock --only-binary=:all: && \
    ln -s "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13" \
        "$CUDA_HOME" && \
    ln -s lib "$CUDA_HOME/lib64" && \
    for name in cudart cublas cublasLt; do \
        ln -s "lib$name.so.13" "$CUDA_HOME/lib/lib$name.so" || exit 1; \
    done && \
    "$CUDA_HOME/bin/nvcc" --version
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    sh /build/fetch-source /build /build/source.lock /src && \
    mkdir /src/llama.cpp && \
    tar -xzf /src/llama_cpp_python-0.3.36.tar.gz -C /src/llama.cpp --strip-components=3 \
        llama_cpp_python-0.3.36/vendor/llama.cpp
COPY inference/llamacpp/cuda/build-server /build/
# As in 86 or "86 89": those of the host's cards. What was compiled once is found in the cache.
ARG CUDA_ARCHITECTURES
RUN --mount=type=cache,target=/root/.cache/ccache \
    PATH=$CUDA_HOME/bin:$PATH sh /build/build-server /src/llama.cpp /out "$CUDA_ARCHITECTURES" && \
    ccache --show-stats

FROM libraries
RUN pip uninstall -q -y --root-user-action=ignore pip setuptools && \
    rm -r /build && \
    python3 -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/nvidia/cu13/lib")' \
        >/etc/ld.so.conf.d/cuda.conf && \
    ldconfig
COPY --from=builder /out /opt/llama
COPY --from=builder /src/llama.cpp/LICENSE /opt/llama/
COPY wire/src inference/placing/src inference/llamacpp/src /opt/app/src/
RUN chmod -R a+rX /opt/app/src && python3 -m compileall -q /opt/app/src
ENV PYTHONPATH=/opt/app/src PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    LLAMA_SERVER=/opt/llama/llama-server \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["python3", "-m", "llamacpp_engine"]
