# Serves model files over HTTP: docs/serving.md.
#
#   docker build -t gwi-serve .
#   docker run --rm -p 127.0.0.1:8000:8000 -e GWI_TOKEN -v "$PWD/models:/models:ro" gwi-serve /models/houses.gwi
FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt ./
# torch without the libraries of graphics cards, which are gigabytes.
RUN pip install --index-url https://download.pytorch.org/whl/cpu "$(sed -n 's/^\(torch==[0-9.]*\).*/\1/p' constraints.txt)"
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN sed '/^torch==/d' constraints.txt > others.txt && pip install --constraint others.txt '.[serve]'

FROM python:3.11-slim
# Of the numerical libraries.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home gwi
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp
USER 10001
EXPOSE 8000
# /health is open without the token.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# Needs GWI_TOKEN: inside of a container every address is another machine's.
ENTRYPOINT ["gwi", "serve", "--host", "0.0.0.0", "--port", "8000"]
