# One Tidelog broker. Its settings are mounted at /etc/tidelog, its data lies in /var/lib/tidelog.
FROM docker.io/library/python:3.11-slim-bookworm

RUN useradd --system --uid 10001 --home-dir /var/lib/tidelog --create-home --shell /usr/sbin/nologin tidelog

WORKDIR /usr/src/tidelog
COPY pyproject.toml README.md LICENSE pyspark_tidelog.py ./
COPY tidelog ./tidelog
COPY storage ./storage
COPY cluster ./cluster
COPY node ./node
COPY verify ./verify
RUN pip install --no-cache-dir --root-user-action=ignore '.[cli,broker]' && rm -rf /usr/src/tidelog/*

WORKDIR /var/lib/tidelog
USER tidelog
VOLUME /var/lib/tidelog
EXPOSE 9092 9601 9680

# A stop hands the leadership over first, which takes up to controlled_shutdown_timeout_ms.
STOPSIGNAL SIGTERM
# Asks http_listener, which the settings must have at this port.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-I", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9680/readyz', timeout=3)"]

ENTRYPOINT ["tidelog"]
CMD ["broker", "--config", "/etc/tidelog/broker.toml"]
