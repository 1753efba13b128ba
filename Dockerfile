# Loupe as an image. The content is the archive that scripts/package makes:
#   scripts/package && docker build -t loupe .
#   docker run -it --rm loupe generate "ROMEO:"
#   docker run -it --rm -p 8080:8080 -v loupe:/cache loupe serve --host 0.0.0.0
# With NVIDIA's cards (docker run --gpus all); the driver comes from the host, cuBLAS from this image:
#   docker build -t loupe:gpu --build-arg BASE=nvidia/cuda:12.6.3-base-ubuntu24.04 --build-arg CUBLAS=libcublas-12-6 .
ARG BASE=debian:13-slim
FROM ${BASE}
ARG CUBLAS=
# A font for pictures of maps.
RUN apt-get update \
  && apt-get install -y --no-install-recommends fontconfig fonts-dejavu-core ${CUBLAS} \
  && rm -rf /var/lib/apt/lists/*
ADD target/loupe-*-linux-*.tar.gz /opt/
RUN ln -s /opt/loupe-*/bin/loupe /usr/local/bin/loupe && mkdir -m 777 /cache
# Models that were pulled, and what is unpacked once.
ENV LOUPE_CACHE=/cache
VOLUME /cache
USER nobody
EXPOSE 8080
ENTRYPOINT ["loupe"]
