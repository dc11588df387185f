# Trainyard, built from Debian's and PyPI's packages. docker build -t trainyard . && docker run --rm trainyard doctor
# The stage `tools` has what tools/setup asks of Debian and nothing of this tree; .devcontainer takes it.
FROM debian:12 AS tools
RUN apt-get update && apt-get install -y --no-install-recommends \
      g++ cmake ninja-build mold ccache binutils clang-format clang-tidy ca-certificates git python3-pip python3-venv \
      libgloo-dev libboost-dev libboost-filesystem-dev libtomlplusplus-dev libspdlog-dev libcli11-dev nlohmann-json3-dev catch2 \
      zlib1g-dev libssl-dev libjpeg62-turbo-dev libpng-dev libxgboost-dev libmetis-dev \
      libxxhash-dev libzstd-dev liblz4-dev coinor-libcbc-dev \
    && rm -rf /var/lib/apt/lists/*

FROM tools
WORKDIR /trainyard
COPY tools/setup tools/setup
RUN tools/setup
COPY . .
RUN cmake --preset release && cmake --build --preset release
ENV PATH=/trainyard/build/release/bin:$PATH
ENTRYPOINT ["trainyard"]
CMD ["--help"]
