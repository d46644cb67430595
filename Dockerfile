# The server as an image: the wheel is built in one stage and installed, without PyTorch, in the next.
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.12-slim
COPY --from=build /wheel /tmp/wheel
RUN pip install --no-cache-dir "$(ls /tmp/wheel/gradsight-*.whl)[server,postgres,parquet]" \
    && rm -r /tmp/wheel \
    && useradd --uid 1000 --create-home --home-dir /data gradsight
USER 1000
# the working folder too, so that a `.gradsight` spool copied into the volume is found and taken in
WORKDIR /data
VOLUME /data
ENV PYTHONUNBUFFERED=1
EXPOSE 8420
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8420/healthz', timeout=5)"]
ENTRYPOINT ["gradsight"]
CMD ["serve", "--host", "0.0.0.0", "--db", "sqlite:////data/gradsight.db"]
