"""Draw ``results.json`` as an SVG that is legible on light and dark pages.

Each workload is a panel, each contender a row: a bar on a logarithmic scale, its figure, afflux's ratio to it, the CPU
seconds of both processes and their peak memory. ``desc`` contains a digest of the figures, by which a test checks that
the picture matches them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib import import_module
from math import floor, log10
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from benchmarks import words
from benchmarks.bars import JUDGED, OURSELVES
from benchmarks.peers import PEERS

__all__ = ["PICTURE", "digest", "draw", "panels"]

PICTURE: Final = Path(__file__).resolve().parent.parent / "docs" / "img" / "benchmarks.svg"

_ROWS: Final = {
    "afflux": ("afflux", "#0f766e"),
    "afflux-batches": ("afflux, lists", "#2f9e93"),
    "afflux-sync": ("afflux, blocking", "#86cdc4"),
    "afflux-reactivesocket": ("reactivesocket", "#2f9e93"),
    "afflux-rsio": ("rsio", "#2f9e93"),
    "afflux-rsocket-draft": ("draft", "#2f9e93"),
    "afflux-rsocket-draft-entries": ("draft, entries", "#2f9e93"),
    "afflux-limit": ("limit", "#2f9e93"),
    "afflux-limit-unchecked": ("limit unchecked", "#2f9e93"),
    "afflux-tls": ("TLS", "#2f9e93"),
    "afflux-ws": ("WebSocket", "#2f9e93"),
    "afflux-uvicorn": ("Uvicorn", "#2f9e93"),
    "afflux-compiled": ("compiled", "#2f9e93"),
    "afflux-jmux": ("jmux", "#2f9e93"),
    "jeri": ("Jmux, Java", "#94a3b8"),
    "rsocket-java": ("rsocket-java", "#94a3b8"),
    "rsocket-js": ("rsocket-js, Node", "#94a3b8"),
    "grpc": ("grpcio, asyncio", "#94a3b8"),
    "rsocket": ("rsocket, PyPI", "#94a3b8"),
    "skeleton": ("(skeleton)", "#d6dce5"),
}
"The contenders from top to bottom: name and colour."

_TEXT, _FAINT, _LINE, _PAPER = "#0f172a", "#64748b", "#e2e8f0", "#ffffff"
_DARK: Final = {_TEXT: "#e2e8f0", _FAINT: "#9aa8bc", _LINE: "#334155", _PAPER: "#0f172a", "#d6dce5": "#475569"}
"Colours in dark mode. The background changes with them, so the picture is legible either way."

_WIDTH, _ROW, _FONT = 472, 17, 11.5
_BAR: Final = (112, 216)
"Horizontal range of the bars, clear of the longest name and the widest figure, even in wider fonts."
_COLUMNS: Final = {"rate": 298, "times": 356, "cpu": 416, "memory": _WIDTH}
"Right edge of the figures."
_TITLE: Final = {
    "fontSize": 17,
    "subtitleFontSize": _FONT,
    "color": _TEXT,
    "subtitleColor": _FAINT,
    "subtitlePadding": 6,
    "offset": 16,
}
_SETTINGS: Final = {
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "background": "transparent",
    "padding": 20,
    "aria": False,
}


def panels(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is drawn: title, rows and scale of each workload."""
    drawn = []
    for workload in figures["workloads"]:
        if rows := list(_rows(workload)):
            unit = "CPU s/GB" if workload["in_bytes"] else "CPU s/M"
            drawn.append({"title": workload["title"], "cpu": unit, "large": workload["in_bytes"], "rows": rows})
    for large in (False, True):
        values = [row["value"] for panel in drawn for row in panel["rows"] if panel["large"] == large]
        for panel in drawn:
            if panel["large"] == large:
                panel["scale"] = [10 ** floor(log10(min(values) / 1.2)), max(values)]
    return drawn


def _rows(workload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for peer, (name, colour) in _ROWS.items():
        loops = PEERS[peer].loops
        figure = workload["contenders"].get(f"{peer}/{loops[0] if len(loops) == 1 else JUDGED}")
        if figure is None:
            continue
        spent = figure["cpu_s_per_gb" if workload["in_bytes"] else "cpu_s_per_million"]
        yield {
            "name": name,
            "colour": colour,
            "value": figure["mb_per_second"] if workload["in_bytes"] else figure["per_second"],
            "rate": words.rate(workload, figure),
            "times": words.times(figure[f"{OURSELVES}_over_it"].get(JUDGED)),
            "cpu": words.short(spent["server"] + spent["client"]),
            "memory": f"{figure['peak_mib']['server'] + figure['peak_mib']['client']:,.0f}",
        }


def digest(figures: dict[str, Any]) -> str:
    """Return the digest by which a picture is matched to its figures."""
    shown = [panels(figures), *(figures[name] for name in ("cpu", "cores", "runs", "date"))]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def draw(figures: dict[str, Any]) -> str:
    """Return the SVG.

    Raises:
        ImportError: altair or vl-convert-python is not installed.
    """
    alt: Any = import_module("altair")
    converter: Any = import_module("vl_convert")
    cells = [_panel(alt, panel) for panel in panels(figures)]
    requests = sum(workload["name"].startswith("request") for workload in figures["workloads"])
    cells.insert(requests, _notes(alt, figures))  # three of them: streams with and without a window stand side by side
    chart = alt.concat(*cells, columns=2, spacing={"row": 22, "column": 48}).resolve_scale(x="independent")
    subtitle = "Throughput; a longer bar is faster. The scale is logarithmic: from line to line is a factor of ten."
    title = alt.Title("The same work by afflux and by its peers", subtitle=subtitle, anchor="start", **_TITLE)
    chart = chart.properties(title=title).configure(**_SETTINGS)
    return _finished(converter.vegalite_to_svg(chart.to_dict()), figures)


def _notes(alt: Any, figures: dict[str, Any]) -> Any:
    """Draw the legend of the columns, and the environment."""
    lines = [
        f"{OURSELVES} ×: how many times that figure {OURSELVES} reaches, item by item",
        "CPU s/M, s/GB: seconds for a million items or a GB, both processes",
        "MiB: peak memory, both processes",
        "lists: the handler yields lists of items, the client takes lists",
        "skeleton: only moves frames; the practical limit of pure Python",
        f"{figures['cpu']}, {figures['cores']} cores, loopback; Python on {JUDGED} unless it says",
        f"otherwise; medians of {figures['runs']} runs, {figures['date'][:10]}",
    ]
    text = alt.Chart(alt.Data(values=[{}])).mark_text(
        align="left", baseline="top", fontSize=_FONT, lineHeight=_ROW - 2, color=_FAINT, text=lines
    )
    return text.encode(x=alt.value(0), y=alt.value(-16)).properties(width=_WIDTH, height=_ROW * 5)


def _panel(alt: Any, panel: dict[str, Any]) -> Any:
    """Draw one workload."""
    low, high = panel["scale"]
    scale = alt.Scale(type="log", domain=[low, high], range=list(_BAR), nice=False)
    names = [row["name"] for row in panel["rows"]]
    height = _ROW * len(names)
    y = alt.Y("name:N", sort=names, axis=None, scale=alt.Scale(paddingInner=0.32, paddingOuter=0.16))
    rows = alt.Chart(alt.Data(values=panel["rows"]))
    decades = [{"at": 10**power} for power in range(round(log10(low)), floor(log10(high)) + 1)]
    x = alt.X("at:Q", scale=scale, axis=None)
    layers = [
        alt.Chart(alt.Data(values=decades)).mark_rule(color=_LINE).encode(x=x, y=alt.value(0), y2=alt.value(height)),
        rows.transform_calculate(at=str(low))
        .mark_bar(cornerRadiusEnd=2)
        .encode(x=x, x2="value:Q", y=y, color=alt.Color("colour:N", scale=None)),
        rows.mark_text(align="left", fontSize=_FONT, color=_TEXT).encode(x=alt.value(0), y=y, text="name:N"),
    ]
    for column, end in _COLUMNS.items():
        colour = _TEXT if column == "rate" else _FAINT
        text = rows.mark_text(align="right", fontSize=_FONT, color=colour)
        layers.append(text.encode(x=alt.value(end), y=y, text=f"{column}:N"))
    for column, head in (("times", f"{OURSELVES} ×"), ("cpu", panel["cpu"]), ("memory", "MiB")):
        text = alt.Chart(alt.Data(values=[{}])).mark_text(align="right", fontSize=_FONT - 1.5, color=_FAINT, text=head)
        layers.append(text.encode(x=alt.value(_COLUMNS[column]), y=alt.value(-9)))
    title = alt.Title(panel["title"], anchor="start", frame="group", fontSize=12.5, color=_TEXT, offset=4)
    return alt.layer(*layers).properties(width=_WIDTH, height=height, title=title)


def _finished(svg: str, figures: dict[str, Any]) -> str:
    """Add the background, the dark colours and the digest."""
    opening, rest = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", svg).split(">", 1)
    night = "".join(f'[{part}="{day}"]{{{part}:{dark}}}' for day, dark in _DARK.items() for part in ("fill", "stroke"))
    about = escape(f"{len(figures['workloads'])} workloads, measured on {figures['date'][:10]}")
    head = (
        f"<title>Throughput, CPU and memory of afflux and its peers</title><desc>{about}; {digest(figures)}</desc>"
        f"<style>@media (prefers-color-scheme: dark){{{night}}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{_PAPER}" stroke="{_LINE}"/>'
    )
    return f"{opening}>{head}{rest}\n"
