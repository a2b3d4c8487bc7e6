# One image for all roles of banlieue.
#
#   docker build -t banlieue:dev .
#   python -m hack.images          the same with buildah, on a base image made here by debootstrap
#
# The base needs Python 3.11 or newer as `python3`, and apt. Two secrets, both optional, make it
# build from other package sources than the defaults without a trace of them in the image:
# `apt-sources` (a sources.list) and `pip` (a pip.conf), with `ca` (certificates pip.conf may name).
ARG BASE_IMAGE=python:3.13-slim-bookworm

# ---- what builds wheels; nothing of it gets into the image ------------------------------------
FROM ${BASE_IMAGE} AS tools
ENV DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PIP_NO_CACHE_DIR=1
# libvirt-python comes as source only. Official Python images bring headers and pip, Debian's
# Python needs packages for them.
RUN --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list \
    set -eu; \
    set -- gcc libc6-dev libvirt-dev pkg-config; \
    headers="$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')"; \
    [ -e "$headers/Python.h" ] || set -- "$@" python3-dev; \
    python3 -c 'import ensurepip' 2>/dev/null || set -- "$@" python3-venv; \
    apt-get update -q; \
    apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--path-exclude=/usr/share/* \
       -o Dpkg::Options::=--path-include=/usr/share/pkgconfig/* \
       -o Dpkg::Options::=--path-include=/usr/share/libvirt/* \
       -o Dpkg::Options::=--path-include=/usr/share/python-wheels/* "$@"; \
    rm -rf /var/cache/apt/* /var/lib/apt/lists/*
COPY requirements/build.txt /build/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/run/ca.pem \
    python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install --require-hashes -r /build/build.txt

# ---- the libraries, as locked -----------------------------------------------------------------
FROM tools AS libraries
COPY requirements/image.txt /build/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/run/ca.pem \
    /opt/tools/bin/pip wheel --require-hashes --no-build-isolation -w /wheels -r /build/image.txt
COPY hack/images/slim.py /build/
# Bytecode that is never checked against its source stays valid whatever a copy does to file times.
RUN python3 -m venv --without-pip /opt/venv \
    && /opt/tools/bin/pip --python /opt/venv/bin/python install \
       --no-index --no-deps --no-compile /wheels/*.whl \
    && find /opt/venv -name '*.so' -exec strip --strip-debug {} + \
    && /opt/venv/bin/python /build/slim.py /opt/venv \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib

# ---- this distribution, in a tree of its own: a change of it makes one small layer -------------
FROM libraries AS package
COPY LICENSE README.md pyproject.toml /source/
COPY config /source/config
COPY src /source/src
RUN /opt/tools/bin/pip wheel --no-index --no-deps --no-build-isolation -w /dist /source \
    && /opt/tools/bin/pip --python /opt/venv/bin/python install --root /package \
       --no-index --no-deps --no-compile /dist/*.whl \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /package -p / /package

# ---- the system underneath: Python, libvirt's client library, certificates ---------------------
FROM ${BASE_IMAGE} AS system
ENV DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list \
    set -eu; \
    apt-get update -q; \
    apt-get install -q -y --no-install-recommends ca-certificates libvirt0
# No installers, no documentation (but licences), no caches or logs, nothing that gains privileges.
RUN set -eu; \
    library="$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"; \
    ! python3 -m pip --version >/dev/null 2>&1 || python3 -m pip uninstall -q -y pip; \
    apt-get purge -q -y --allow-remove-essential \
       $(dpkg-query -Wf '${Package}\n' | grep -xE 'apt|libapt-pkg[0-9.]+.*|sqv|gpgv'); \
    rm -rf "$library/ensurepip" "$library/idlelib" "$library/test" "$library/turtledemo" \
       "$library"/config-*/ /usr/local/include /usr/share/python-wheels \
       /usr/local/bin/idle* /usr/local/bin/pydoc* /usr/local/bin/python*-config; \
    find /usr/share/doc -type f ! -name copyright -delete; \
    find /usr/share/doc -type l -delete; \
    find /usr/share/doc -type d -empty -delete; \
    find /usr/share/locale -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +; \
    rm -rf /usr/share/man /usr/share/info /usr/share/lintian /root/.cache \
       /var/cache/* /var/lib/apt /var/log/* /tmp/* /etc/apt; \
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +; \
    echo 'banlieue:x:65532:65532:banlieue:/nonexistent:/usr/sbin/nologin' >> /etc/passwd; \
    echo 'banlieue:x:65532:' >> /etc/group; \
    python3 -m compileall -q -f --invalidation-mode unchecked-hash "$library"

# ---- the image: three layers, none of which ever held what was removed above -------------------
FROM scratch
COPY --from=system / /
COPY --from=libraries /opt/venv /opt/venv
COPY --from=package /package /
# Some libraries ask for the name of the user, which nobody else can tell them in a container.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    USER=banlieue
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG SOURCE=
LABEL org.opencontainers.image.title="banlieue" \
      org.opencontainers.image.description="One Kubernetes API for virtual machines over vSphere, Proxmox VE and libvirt" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
ENTRYPOINT ["banlieue"]
