"""Draw the plots of a report with Altair. Colours are variables of the page's style sheet, so one plot serves light and
dark, screen and paper. The plots are specifications that the page renders; nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import ceil, floor, log10
from typing import Any, Final

from afflux.capture.report.creditline import CreditLine
from afflux.capture.report.summary import CAUSES, Cause, Route
from afflux.capture.report.timeline import Timeline
from afflux.capture.report.words import clock, count, seconds, size

__all__ = ["SHARES", "causes", "credit", "latencies", "most_shown", "stalling", "traffic"]

Spec = dict[str, Any]
"A Vega-Lite specification."

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
"The percentiles that are shown."
_UNBOUNDED: Final = 1 << 30
"Credit above this is shown as unbounded."
_AXIS_WIDTH: Final = 58
"Pixels left of the plots over time, so that they line up."

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 4,
        "tickSize": 4,
    },
    "text": {"color": "var(--ink)", "fontSize": 11},
}
_CAUSE_COLOURS: Final = [f"var(--{cause})" for cause in CAUSES]
_CLOCK: Final = "utcFormat(datum.value, datum.value % 1000 ? '%H:%M:%S.%L' : '%H:%M:%S')"
_BAR: Final = "M-0.12,-0.9H0.12V0.9H-0.12Z"
"The shape of an upright bar."
_SECONDS: Final = "format(datum.value, '~s') + 's'"


def _altair() -> Any:
    return import_module("altair")


def _spec(chart: Any, height: int | None = None) -> Spec:
    """Return the specification of a chart as wide as its place on the page."""
    sized = chart.properties(width="container", **({} if height is None else {"height": height}))
    made: Spec = sized.configure(**_CONFIG).to_dict()
    made.pop("$schema", None)
    return made


def causes(found: dict[str, Cause]) -> Spec:
    """Seconds of stalls by cause."""
    alt = _altair()
    values: list[dict[str, Any]] = [
        {"cause": cause, "seconds": one.seconds, "text": f"{seconds(one.seconds)} in {_stalls(one.count)}"}
        for cause, one in found.items()
        if one.count
    ]
    most = max((value["seconds"] for value in values), default=1.0)
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("cause:N", sort=list(CAUSES), title=None, axis=alt.Axis(labelFontSize=12, labelColor="var(--ink)")),
        x=alt.X("seconds:Q", title=None, axis=None, scale=alt.Scale(domain=[0, most * 1.25 or 1])),
    )
    colour = alt.Color("cause:N", scale=alt.Scale(domain=list(CAUSES), range=_CAUSE_COLOURS), legend=None)
    bars = base.mark_bar(height={"band": 0.62}, cornerRadiusEnd=2).encode(color=colour)
    return _spec(bars + base.mark_text(align="left", dx=7).encode(text="text:N"), 30 * len(values))


def most_shown(line: CreditLine) -> int:
    """Return the number of items at which the plot of ``credit`` ends. With much credit, the items sent would otherwise
    be a flat line."""
    return 4 * max(1, max(point.used for point in line.points))


def credit(line: CreditLine, stalls: Sequence[tuple[float, float, str]], most: int) -> tuple[Spec, Spec]:
    """Items granted and sent over time, and the credit left.

    Args:
        line: the credit.
        stalls: (start, stop, cause), to be shaded; times in microseconds.
        most: about how many points a line has.
    """
    alt = _altair()
    start, points = line.points[0].ts, line.shown(most)
    ceiling = most_shown(line)
    values = [
        {"s": (point.ts - start) / 1e6, "granted": min(point.granted, ceiling), "sent": point.used} for point in points
    ]
    left = [
        {"s": (point.ts - start) / 1e6, "left": min(max(balance, 0), ceiling)}
        for point in points
        for balance in ((point.balance - point.n, point.balance) if point.n else (point.balance,))
    ]
    top = max(max(value["granted"], value["sent"]) for value in values)
    x, below = _elapsed(alt), _elapsed(alt, "seconds since the first credit")
    base = alt.Chart(alt.Data(values=values)).encode(x=x)
    given = base.mark_line(interpolate="step-after", color="var(--granted)", strokeWidth=1.75, clip=True)
    sent = base.mark_line(color="var(--used)", strokeWidth=1.75, strokeDash=[5, 2], clip=True)
    hover = base.mark_point(size=70, opacity=0, clip=True)
    hover = hover.encode(y=_items(alt, "sent", 4, top), tooltip=["s:Q", "granted:Q", "sent:Q"])
    lines = [given.encode(y=_items(alt, "granted", 4, top)), sent.encode(y=_items(alt, "sent", 4, top)), hover]
    room = alt.Chart(alt.Data(values=left)).mark_area(color="var(--granted)", opacity=0.45)
    room = room.encode(x=below, y=_items(alt, "left", 2, max(value["left"] for value in left)))
    shades = [{"s": (low - start) / 1e6, "until": (high - start) / 1e6, "cause": cause} for low, high, cause in stalls]
    return (
        _spec(alt.layer(*_shaded(alt, shades, x), *lines), 150),
        _spec(alt.layer(*_shaded(alt, shades, below), room), 54),
    )


def _shaded(alt: Any, values: list[dict[str, Any]], x: Any) -> list[Any]:
    """Return the layer of stalls, if there are any."""
    colour = alt.Color("cause:N", scale=alt.Scale(domain=list(CAUSES), range=_CAUSE_COLOURS), legend=None)
    rects = alt.Chart(alt.Data(values=values)).mark_rect(opacity=0.18)
    return [rects.encode(x=x, x2="until:Q", color=colour)] if values else []


def _elapsed(alt: Any, title: str | None = None) -> Any:
    """Return an axis of seconds."""
    axis = alt.Axis(tickCount=6, grid=False, format="~g", labels=title is not None)
    return alt.X("s:Q", title=title, scale=alt.Scale(nice=False, zero=True), axis=axis)


def _items(alt: Any, name: str, ticks: int, top: float) -> Any:
    """Return an axis of items up to ``top``. There are no halves of items, which would be labelled 1, 1, 2, 2."""
    few = {"values": [*range(int(top) + 1)]} if top <= ticks else {"tickCount": ticks}
    axis = alt.Axis(**few, format=",d", minExtent=_AXIS_WIDTH, maxExtent=_AXIS_WIDTH)
    return alt.Y(f"{name}:Q", stack=None, title="left" if name == "left" else "items", axis=axis)


def _stalls(number: int) -> str:
    return "1 stall" if number == 1 else f"{count(number)} stalls"


def granted(items: int) -> str:
    """Return an amount of credit in words."""
    return "unbounded" if items >= _UNBOUNDED else count(items)


def traffic(timeline: Timeline, like: Timeline) -> Spec:
    """Bytes per second over time, of each side, on a time axis that includes another timeline."""
    alt = _altair()
    sides, second = ["client", "server"], timeline.width / 1e6
    values = [
        {"at": at, "rate": sums[series] / second, "side": side, "text": f"{side}: {size(sums[series] / second)}/s"}
        for at, sums in _closed(timeline, like)
        for series, side in enumerate(sides)
    ]
    y = alt.Y("rate:Q", stack=None, title="bytes per second", axis=_amounts(alt, "~s"))
    colours = alt.Scale(domain=sides, range=["var(--client)", "var(--server)"])
    dashes = alt.Scale(domain=sides, range=[[5, 2], [1, 0]])
    base = alt.Chart(alt.Data(values=_timed(values))).encode(
        x=_times(alt), y=y, color=alt.Color("side:N", scale=colours, legend=None)
    )
    area = base.mark_area(interpolate="step-after", opacity=0.1)
    line = base.mark_line(interpolate="step-after", strokeWidth=1.5, clip=True)
    line = line.encode(strokeDash=alt.StrokeDash("side:N", scale=dashes, legend=None))
    return _spec(area + line + base.mark_point(size=60, opacity=0, clip=True).encode(tooltip=["time:N", "text:N"]), 180)


def stalling(timeline: Timeline, like: Timeline) -> Spec:
    """How many streams were stalled over time, by cause, on a time axis that includes another timeline."""
    alt = _altair()
    rows = _closed(timeline, like)
    shown = [series for series in range(len(CAUSES)) if any(sums[series] for _, sums in rows)]
    values = [
        {"at": at, "stalled": sums[series] / timeline.width, "cause": CAUSES[series], "order": series}
        | {"text": f"{CAUSES[series]}: {sums[series] / timeline.width:.3g} stalled"}
        for at, sums in rows
        for series in shown
    ]
    colour = alt.Color("cause:N", scale=alt.Scale(domain=list(CAUSES), range=_CAUSE_COLOURS), legend=None)
    y = alt.Y("stalled:Q", stack="zero", title="streams stalled", axis=_amounts(alt, "~g"))
    chart = alt.Chart(alt.Data(values=_timed(values))).mark_area(interpolate="step-after", opacity=0.85)
    return _spec(chart.encode(x=_times(alt), y=y, color=colour, order="order:Q", tooltip=["time:N", "text:N"]), 110)


def _closed(timeline: Timeline, like: Timeline) -> list[tuple[int, list[float]]]:
    """Return the rows of a timeline, and empty ones where it ends and where the other begins and ends."""
    rows = timeline.rows()
    nothing = [0.0] * len(rows[0][1])
    stop = rows[-1][0] + timeline.width
    others = [at for at, _ in like.rows()]
    edges = {stop, *others[:1], *(at + like.width for at in others[-1:])}
    return sorted([*rows, *((at, nothing) for at in edges if not rows[0][0] <= at < stop)])


def _amounts(alt: Any, form: str) -> Any:
    return alt.Axis(tickCount=4, format=form, minExtent=_AXIS_WIDTH, maxExtent=_AXIS_WIDTH)


def _times(alt: Any) -> Any:
    """Return a time axis in UTC over all values."""
    axis = alt.Axis(grid=False, tickCount=7, labelOverlap=True, labelExpr=_CLOCK)
    return alt.X("at:T", title=None, scale=alt.Scale(type="utc", nice=False), axis=axis)


def _timed(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert times from microseconds to the milliseconds of Vega, and add them in words."""
    return [value | {"time": clock(value["at"]), "at": value["at"] / 1000} for value in values]


def latencies(routes: Sequence[tuple[str, Route]], which: str) -> Spec:
    """Percentiles by route on a logarithmic axis; ``which`` is ``first`` or ``total``."""
    alt = _altair()
    values = [
        {"route": name, "share": share, "seconds": max(value, 1e-9), "text": f"{share} {seconds(value)}"}
        for name, route in routes
        for share, at in SHARES.items()
        if (value := getattr(route, which).at(at)) is not None
    ]
    names, shares = [name for name, _ in routes], list(SHARES)
    axis = alt.Axis(labelLimit=190, ticks=False, domain=False, labelColor="var(--ink)", labelFontSize=12)
    y = alt.Y("route:N", sort=names, title=None, axis=axis, scale=alt.Scale(domain=names))
    ticks = alt.Axis(labelExpr=_SECONDS, values=_decades([value["seconds"] for value in values]), labelOverlap=True)
    x = alt.X("seconds:Q", title=None, scale=alt.Scale(type="log", padding=10), axis=ticks)
    colours = alt.Scale(domain=shares, range=[f"var(--q{at})" for at in range(len(shares))])
    shapes = alt.Scale(domain=shares, range=["circle", "square", "triangle-up", "diamond", _BAR])
    base = alt.Chart(alt.Data(values=values))
    line = base.mark_rule(color="var(--line)", strokeWidth=2).encode(y=y, x="min(seconds):Q", x2="max(seconds):Q")
    dots = base.mark_point(filled=True, size=75, opacity=1, strokeWidth=2, stroke="var(--ink)").encode(
        y=y,
        x=x,
        color=alt.Color("share:N", scale=colours, legend=None),
        shape=alt.Shape("share:N", scale=shapes, legend=None),
        tooltip=["route:N", "text:N"],
    )
    return _spec(line + dots, 26 * len(names) + 4)


def _decades(values: Sequence[float]) -> list[float]:
    """Return the ticks of a logarithmic axis: powers of ten, and 2 and 5 times them if there are few."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    steps = (1, 2, 5) if high - low < 3 else (1,)
    return [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]
