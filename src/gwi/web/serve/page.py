"""One page that says what is served: no scripts, nothing from elsewhere."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping

from gwi._progress import said
from gwi.estimators.columns import encoder_of
from gwi.web.serve.served import Served

HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "td,th{text-align:left;padding:0 1em 0 0}pre{background:#eee;padding:1em;overflow:auto}"
)
# Columns of a table that are shown.
MOST_COLUMNS = 200


def page(models: Mapping[str, Served]) -> str:
    """What each model takes and gives, with a request to copy."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>gwi serve</title>",
        f"<style>{_STYLE}</style><h1>gwi serve</h1>",
    ]
    parts += ["<p>The same for programs: <a href=openapi.json>openapi.json</a>, <a href=models>models</a>.</p>"]
    for model in models.values():
        kinds = {column.name: column.kind for column in encoder_of(model.estimator).columns}
        rows = "".join(f"<tr><td>{_safe(name)}<td>{kinds.get(name, '')}" for name in model.wanted[:MOST_COLUMNS])
        more = f"<p>and {len(model.wanted) - MOST_COLUMNS} more</p>" if len(model.wanted) > MOST_COLUMNS else ""
        body = json.dumps(model.example, ensure_ascii=False).replace("'", "\\u0027")
        ask = f"curl -H 'Content-Type: application/json' -d '{body}' \\\n  http://HOST/models/{model.name}/predict"
        parts += [f"<h2>{model.name}</h2><p>{_safe(model.of)}. Gives: {_safe(', '.join(model.outputs))}.</p>"]
        parts += [f"<table><tr><th>column<th>holds{rows}</table>{more}<pre>{_safe(ask)}</pre>"]
    return "".join(parts)


def _safe(text: str) -> str:
    return html.escape(said(text))
