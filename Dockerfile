# docker build -t hetopt .
# docker run --rm -v "$PWD:/data" --user "$(id -u):$(id -g)" hetopt plan my-cluster.yaml --out plan.json
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY hetopt hetopt
COPY formulations formulations
COPY instances instances
RUN python -m venv /opt/hetopt \
    && /opt/hetopt/bin/pip install --no-cache-dir .

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 hetopt
COPY --from=build /opt/hetopt /opt/hetopt
# With `--user` there is no home folder to keep fonts in.
ENV PATH=/opt/hetopt/bin:$PATH MPLCONFIGDIR=/tmp/matplotlib
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["hetopt"]
CMD ["--help"]
