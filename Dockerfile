# One image for all of Readie: router, worker, Flower, the building of generations, clients. compose.yaml says how each
# is run.
#
#   PYTHON_VERSION   Python of the image and of its sandboxes; clients need the same minor version
#   RUNSC_SOURCE     where runsc comes from: release, debian, or path for the file `runsc` of this folder;
#                    without it, the first of release and debian that answers

ARG PYTHON_VERSION=3.13

FROM python:${PYTHON_VERSION}-slim-trixie AS packages
WORKDIR /src
# uv trusts what the image trusts, so a base image with another certificate authority works.
ENV UV_SYSTEM_CERTS=1 UV_NO_CACHE=1 VIRTUAL_ENV=/opt/readie
RUN python -m venv /opt/readie
COPY requirements.lock pyproject.toml ./
# Exact versions with their hashes, uv's own as well, and none of those that only development needs.
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock >uv.lock \
    && /opt/readie/bin/pip install --quiet --no-cache-dir --require-hashes --requirement uv.lock \
    && /opt/readie/bin/uv pip install --compile-bytecode --constraints requirements.lock \
        --requirements pyproject.toml --extra server --extra otel
COPY LICENSE README.md ./
COPY readie readie
COPY router router
COPY workers workers
RUN /opt/readie/bin/uv pip install --compile-bytecode --no-deps .

FROM python:${PYTHON_VERSION}-slim-trixie AS runsc
ARG RUNSC_SOURCE=
# The pattern lets `runsc` be absent.
COPY scripts/get-runsc scripts/runsc_probe.py scripts/debian_package.py runs[c] /opt/get-runsc/
# No sandbox can run while an image is built; the worker refuses a runsc that is too old when it starts.
RUN PATH="$PATH:/opt/get-runsc" /opt/get-runsc/get-runsc --no-probe --dest /opt/runsc \
    ${RUNSC_SOURCE:+--source "$RUNSC_SOURCE"}

FROM python:${PYTHON_VERSION}-slim-trixie
ENV PATH=/opt/readie/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    UV_SYSTEM_CERTS=1 \
    READIE_DATA=/var/lib/readie \
    READIE_HOME=/var/lib/readie-home
COPY --from=packages /opt/readie /opt/readie
COPY --from=runsc /opt/runsc /opt/readie/bin/runsc
RUN groupadd --gid 10001 readie \
    && useradd --uid 10001 --gid readie --home-dir /var/lib/readie-home --create-home readie
# Workers and the building of generations need root, to make sandboxes; nothing else does.
USER readie
CMD ["readie", "--help"]
