"""A report as one HTML file: verdicts, findings, charts, tables. It asks nobody for anything and prints well."""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gradsight_server.diagnosis.texts import Figure
from gradsight_server.figures import resolved
from gradsight_server.reports.advice import blocks_of
from gradsight_server.reports.contents import Contents, StreamContents
from gradsight_server.reports.style import STYLE

TITLES = {
    "norm": "Gradient norm before clipping",
    "histogram": "How the norms are distributed",
    "clip_fraction": "Share of steps that were clipped",
    "clip_coef": "Clip coefficient",
    "loss": "Loss and learning rate",
    "loss_scale": "Loss scale",
    "update_ratio": "Update-to-weight ratio",
    "metrics": "Metrics",
    "layers": "Norm of each layer before clipping",
}
LABELS = {"clipping": "Clipping", "loss_scaling": "Loss scale", "nonfinite": "NaN and Inf"}
MOST_LAYERS = 20


def page(contents: Contents, *, plotly_js: str, written_at_s: float) -> str:
    """The whole file.

    Args:
        plotly_js: What draws the charts, put into the file.
    """
    parts = [*_head(contents, written_at_s), *_streams(contents), *_tables(contents)]
    name = html.escape(contents.run["name"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name} · Gradsight report</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(parts)
        + f"</main>\n<script>{_in_script(plotly_js)}</script>\n<script>{DRAW}</script></body></html>\n"
    )


DRAW = """for (const place of document.querySelectorAll(".chart")) {
  const { data, layout } = JSON.parse(place.querySelector("script").textContent);
  place.replaceChildren();
  Plotly.newPlot(place, data, layout, { responsive: true, displaylogo: false, displayModeBar: "hover" });
}
addEventListener("beforeprint", () => {
  for (const place of document.querySelectorAll(".chart")) Plotly.Plots.resize(place);
});"""


def _head(contents: Contents, written_at_s: float) -> Iterator[str]:
    run = contents.run
    yield f"<header><h1>{html.escape(run['name'])}</h1><p class='muted'>{html.escape(run['project'])}</p></header>"
    steps = f"{run['num_steps']:,} steps"
    if run["last_step"] is not None:
        steps += f", the last is {run['last_step']:,}"
        steps += f" of {run['total_steps']:,}" if run["total_steps"] else ""
    facts = {
        "State": run["state"],
        "Steps": steps,
        "Started": _moment(run["started_at_s"]),
        "Last seen": _moment(run["last_seen_s"]),
        "Report written": _moment(written_at_s),
        "Run": run["id"],
    }
    yield _facts(facts)


def _streams(contents: Contents) -> Iterator[str]:
    for name, stream in contents.streams.items():
        if len(contents.streams) > 1:
            yield f"<h2>Stream {html.escape(name)}</h2>"
        yield from _verdicts(stream.diagnosis)
        yield from _findings(stream.diagnosis)
        yield from _charts(stream)
        yield from _layers(stream.diagnosis)
    if not contents.streams:
        yield "<p>Nothing was recorded.</p>"


def _verdicts(diagnosis: dict[str, Any]) -> Iterator[str]:
    nonfinite = diagnosis["nonfinite"]
    count = nonfinite["num_steps"]
    worst = max((finding["severity"] == "critical" for finding in diagnosis["findings"]), default=False)
    word = f"{count:,} step{'s' * (count != 1)}" if count else "none"
    severity = "ok" if not count else "critical" if worst else "info"
    cards = [
        _card(LABELS[name], section["verdict"].replace("_", " "), section["severity"], section["advice"])
        for name, section in ((name, diagnosis[name]) for name in ("clipping", "loss_scaling"))
    ]
    yield f"<section class='cards'>{''.join(cards)}{_card(LABELS['nonfinite'], word, severity, '')}</section>"
    yield _table(("", ""), list(_numbers(diagnosis)), caption="In numbers")


def _card(label: str, word: str, severity: str, advice: str) -> str:
    words = [block.text for block in blocks_of(advice) if not block.is_code]
    advice = f"<p>{html.escape(words[0])}</p>" if words else ""
    return (
        f"<article class='card {severity}'><h3>{label}</h3><p class='word'>{html.escape(word)}"
        f"<span class='severity'>{severity}</span></p>{advice}</article>"
    )


def _numbers(diagnosis: dict[str, Any]) -> Iterator[tuple[str, str]]:
    span, clipping, scaling = (diagnosis[name] for name in ("range", "clipping", "loss_scaling"))
    yield "Steps recorded", f"{span['num_steps']:,} ({span['num_finite']:,} with a finite norm)"
    if clipping["clip_fraction"] is not None:
        yield "Clipped, of the newest steps", f"{Figure(clipping['clip_fraction']):percent}"
    if clipping["median_clip_coef"] is not None:
        yield "Median clip coefficient", f"{Figure(clipping['median_clip_coef']):}"
    named = (("p50", "Median"), ("p90", "90th percentile"), ("p99", "99th percentile"), ("max", "Largest"))
    for name, word in (*named, ("last", "Last")):
        if clipping["norm"][name] is not None:
            yield f"{word} norm before clipping", f"{Figure(clipping['norm'][name]):}"
    if (wanted := clipping["recommended_max_norm"]) is not None:
        yield "Recommended max_norm", f"{Figure(wanted['low']):} to {Figure(wanted['high']):} ({wanted['basis']})"
    if scaling["last_scale"] is not None:
        yield "Loss scale, last and lowest", f"{Figure(scaling['last_scale']):}, {Figure(scaling['min_scale']):}"
        yield "Steps skipped for overflow", f"{scaling['num_skipped']:,}"


def _findings(diagnosis: dict[str, Any]) -> Iterator[str]:
    if diagnosis["findings"]:
        yield "<section class='findings'>"
    for finding in diagnosis["findings"]:
        first, last = finding["first_step"], finding["last_step"]
        steps = "" if first is None else f"steps {first:,} to {last:,}"
        numbers = ", ".join(f"{name.replace('_', ' ')} {Figure(value):}" for name, value in finding["evidence"].items())
        yield (
            f"<article class='finding {finding['severity']}'><h3><span class='severity'>{finding['severity']}</span> "
            f"{html.escape(finding['title'])}</h3>{_advice(finding['advice'])}"
            f"<p class='muted'>{html.escape('; '.join(part for part in (finding['code'], steps, numbers) if part))}</p>"
            "</article>"
        )
    if diagnosis["findings"]:
        yield "</section>"


def _advice(advice: str) -> str:
    return "".join(
        f"<pre>{html.escape(block.text)}</pre>" if block.is_code else f"<p class='advice'>{html.escape(block.text)}</p>"
        for block in blocks_of(advice)
    )


def _charts(stream: StreamContents) -> Iterator[str]:
    for name, figure in stream.figures.items():
        shown = resolved(figure)
        height = 260 + (min(240, 6 * len(figure["data"])) if name == "layers" else 0)
        margin = {"l": 80 if name != "layers" else 180, "r": 20, "t": 10, "b": 50}
        legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
        if shown["layout"]["yaxis"].get("type") == "log":
            shown["layout"]["yaxis"] |= {"nticks": 6, "exponentformat": "power"}
        shown["layout"] |= {"height": height, "margin": margin, "legend": legend, "autosize": True}
        told = json.dumps(shown, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        yield (
            f"<figure><figcaption>{TITLES[name]}</figcaption><div class='chart' style='height:{height}px'>"
            f"<script type='application/json'>{told}</script></div></figure>"
        )


def _layers(diagnosis: dict[str, Any]) -> Iterator[str]:
    rows = [(kind, ", ".join(_most(layers))) for kind, layers in diagnosis["layers"].items() if layers]
    if rows:
        yield _table(("Layers that are", ""), rows)


def _most(names: Sequence[str]) -> Iterator[str]:
    yield from names[:MOST_LAYERS]
    if len(names) > MOST_LAYERS:
        yield f"and {len(names) - MOST_LAYERS} more"


def _tables(contents: Contents) -> Iterator[str]:
    run = contents.run
    if contents.notes:
        yield "<section><h2>About these numbers</h2><ul>"
        yield "".join(f"<li>{html.escape(note)}</li>" for note in contents.notes) + "</ul></section>"
    rows: list[tuple[str, str]] = []
    for name, stream in run["streams_detail"].items():
        prefix = f"{name}: " if len(run["streams_detail"]) > 1 else ""
        rows += [(f"{prefix}{key}", value) for key, value in _flat(stream["record"])]
    rows += [*_flat(run["config"]), *run["frameworks"].items()]
    if rows:
        yield _table(("Configuration", ""), rows)
    if run["notes"]:
        yield f"<h2>Notes</h2><p class='advice'>{html.escape(run['notes'])}</p>"
    if contents.events:
        events = [("" if event["step"] is None else f"{event['step']:,}", *_told(event)) for event in contents.events]
        yield _table(("Step", "Event", "What happened", "When"), events)


def _told(event: Mapping[str, Any]) -> tuple[str, str, str]:
    return event["kind"], event["message"], _moment(event["wall_time_s"])


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)


def _facts(facts: Mapping[str, str]) -> str:
    rows = (f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl class='facts'>{''.join(rows)}</dl>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads) if any(heads) else ""
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<div class='scroll'><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _moment(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _in_script(program: str) -> str:
    """A program that stands in a script element: nothing in it can end the element."""
    return re.sub(r"</(?=script)", r"<\\/", program, flags=re.IGNORECASE)
