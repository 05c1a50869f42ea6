# tampu with its server and the drivers of all stores, without Spark. How to run it: docs/how-to/deploy.md.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/run.txt requirements/run.txt
RUN python -m venv /opt/tampu \
    && /opt/tampu/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/tampu/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:3.13-slim
RUN useradd --uid 10001 --create-home --home-dir /data --shell /usr/sbin/nologin tampu
COPY --from=build /opt/tampu /opt/tampu
ENV PATH=/opt/tampu/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TAMPU_URL=/data/jobs.db \
    TAMPU_HOST=0.0.0.0 \
    TAMPU_PORT=8400 \
    TAMPU_KEY_FILE=/data/admin.key
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8400
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8400/ready', timeout=4)"]
ENTRYPOINT ["tampu"]
CMD ["serve"]
