# One image for every service: `docker run turnledger worker`, `… rollup`, `… db migrate`.
FROM python:3.11-slim

WORKDIR /app

# The packages first: they change seldom, and their layer is kept when only our code changes.
COPY constraints.txt pyproject.toml README.md ./
RUN mkdir -p services/turnledger && touch services/turnledger/__init__.py \
    && pip install --no-cache-dir -c constraints.txt .

COPY services ./services
COPY migrations ./migrations
# Editable, so that `turnledger db migrate` finds `migrations` beside the package.
RUN pip install --no-cache-dir --no-deps -e .

RUN useradd --system --home-dir /app --shell /usr/sbin/nologin turnledger
USER turnledger
ENV PYTHONUNBUFFERED=1

ENTRYPOINT ["turnledger"]
CMD ["--help"]
